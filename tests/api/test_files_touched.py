"""The files that know of one step, one format and one pair of them are those that docs/extending.md lists: no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".py", ".cuh", ".hpp", ".cpp"}
# What a file must match, all of it, to know of the thing.
KNOW = {
    "GeGLU": (r"(?i)geglu",),
    "8-bit weights beside BF16 and FP16": (r"Element::(s8b|u8)\b|\"s8b\"|zeros_order=\"u8\"",),
    "SwiGLU with FP8 output": (r"output_scaling", r"\bgate\b|GateKind|gated"),
}


def listed(thing: str) -> list[str]:
    page = (ROOT / "docs" / "extending.md").read_text()
    section = page.partition("\n## Files that an addition touches\n")[2].partition("\n## ")[0]
    found = re.search(rf"^\*\*{re.escape(thing)}\*\*.*?```\n(.*?)```", section, re.MULTILINE | re.DOTALL)
    assert found is not None, thing
    return found[1].split()


@pytest.mark.parametrize("thing", KNOW)
def test_files_that_know_of_a_thing_are_listed(thing) -> None:
    paths = (path for folder in ("csrc", "deep_gemm") for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    found = [name for name, text in texts.items() if all(re.search(pattern, text) for pattern in KNOW[thing])]
    assert sorted(found) == sorted(listed(thing))
