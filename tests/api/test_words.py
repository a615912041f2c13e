"""One word for one thing: what docs/architecture.md's glossary replaced stays out (tests/data/words.json)."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = json.loads((ROOT / "tests/data/words.json").read_text())
SUFFIXES = {".py", ".pyi", ".cpp", ".hpp", ".cuh"}
CODE = [
    path
    for folder in ("csrc", "deep_gemm", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in SUFFIXES
]


def found(pattern: str, paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize(("pattern", "word"), WORDS["code"].items())
def test_code_keeps_to_the_glossary(pattern, word) -> None:
    assert not found(pattern, CODE), f"the glossary's word is {word!r}"


@pytest.mark.parametrize(("pattern", "word"), WORDS["messages"].items())
def test_messages_are_plain_english(pattern, word) -> None:
    sources = [path for path in CODE if {"csrc", "deep_gemm"} & set(path.relative_to(ROOT).parts[:1])]
    assert not found(pattern, sources), f"say {word!r}"


@pytest.mark.parametrize(("pattern", "word"), WORDS["documents"].items())
def test_documents_are_plain_english(pattern, word) -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    assert not found(pattern, documents), f"say {word!r}"


def test_an_old_word_would_be_seen(tmp_path) -> None:
    old = tmp_path / "old.cpp"
    old.write_text('require(false, "w must be of int4, but is ", name); constexpr int kMostRows = 1;\n')
    patterns = {**WORDS["code"], **WORDS["messages"]}
    assert {"kMost[A-Z]", "must be of "} <= {pattern for pattern in patterns if re.search(pattern, old.read_text())}
