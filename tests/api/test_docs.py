"""Documents: what they link to, and the result files and tests that they cite, are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part[0] == "." or part in ("build", "dist") for part in path.relative_to(ROOT).parts)
)
SOURCES = [path for folder in ("csrc", "deep_gemm", "benchmarks") for path in (ROOT / folder).rglob("*.*")]
ALL_SOURCES = [*SOURCES, *(ROOT / "tests").rglob("*.cpp")]
CITING = DOCUMENTS + sorted(path for path in SOURCES if path.suffix in (".py", ".pyi", ".cuh", ".hpp", ".cpp"))
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]
    assert not missing


def test_cited_files_are_kept() -> None:
    """JSON files that documents cite by their path, or by their name alone where they are results."""
    cited = [
        (document.name, file)
        for document in DOCUMENTS
        if document.name != "CHANGELOG.md"
        for file in re.findall(r"`((?:\w+/)+\w+\.jsonl?|\w*h[12]00\w*\.json)`", document.read_text())
    ]
    assert len(cited) > 20
    missing = [(name, file) for name, file in cited if not (ROOT / file if "/" in file else RESULTS / file).exists()]
    assert missing == []


def test_cited_tests_are_there() -> None:
    """By their path, or in brackets by their name."""
    wrong = []
    for document in CITING:
        text = document.read_text()
        paths = re.findall(r"\btests/[\w/]+\.\w+", text)
        names = re.findall(r"`(test_\w+\.py)`", text) if document.suffix == ".md" else []
        wrong += [(document.name, path) for path in paths if not (ROOT / path).exists() and "test_x.py" not in path]
        wrong += [(document.name, name) for name in names if name not in TESTS]
    assert wrong == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_sources_are_there(document) -> None:
    """By the end of their path; ARCH in it stands for each architecture."""
    named = set(re.findall(r"(?<![\w/*])\w[\w/]*\.(?:cuh|hpp|cpp)\b", document.read_text()))
    each = {name.replace("ARCH", arch) for name in named for arch in ("sm80", "sm90", "sm100")}
    assert {
        name for name in each if not any(f"/{path.as_posix()}".endswith(f"/{name}") for path in ALL_SOURCES)
    } == set()


def test_the_layout_names_files_that_are_there() -> None:
    """docs/architecture.md, "Layout": of the package's own folder, and all that it leaves out are private."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    own = text.partition("\ndeep_gemm/\n")[2].partition("\ncsrc/\n")[0].partition("  include/deep_gemm/")[0]
    named = set(re.findall(r"\b\w+\.py\b", own))
    package = {path.name for path in (ROOT / "deep_gemm").glob("*.py")}
    assert named <= package
    assert {name for name in package - named if name[0] != "_"} == set()
