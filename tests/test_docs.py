"""Documents: what they link to and the result files that they cite are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if not any(part[0] == "." for part in path.relative_to(ROOT).parts)
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md", "docs/performance-tried.md", "docs/kernels.md"])
def test_cited_results_are_kept(name) -> None:
    """JSON files, those in tried/ also without their suffix. ("_2.json" stands for the other end of a name before.)"""
    text = (ROOT / name).read_text()
    cited = re.findall(r"`((?:tried/)?[a-z]\w*\.json|tried/\w+)`", text)
    assert cited or name == "README.md"
    missing = [
        file
        for file in cited
        if not any((RESULTS / folder / file).with_suffix(".json").exists() for folder in ("", "tried"))
    ]
    assert not missing


def test_what_was_tried_names_its_files() -> None:
    """The last column of its tables. "likewise", remarks in brackets and second halves of names ("_2") are none."""
    rows = [line for line in (ROOT / "docs/performance-tried.md").read_text().splitlines() if line.startswith("| ")]
    names = set()
    for row in rows:
        last = re.sub(r"\(.*?\)|\".*?\"", "", row.strip("| ").split(" | ")[-1])
        names |= {part for part in re.split(r"[,;\s]+", last) if re.fullmatch(r"(\.\./)?[a-z]\w*_\w*", part)}
    assert len(names) > 80
    kept = {
        name for name in names for path in [RESULTS / "tried" / name] if path.exists() or Path(f"{path}.json").exists()
    }
    assert names == kept
