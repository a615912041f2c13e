"""The tables of kernels compiled for sm_80 that documents show are those of the measured files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOWN = [
    ("h100_sm80.json", "architectures.md", "sm80", "tables"),
    ("h100_sm80_copies.json", "notes/sm80.md", "sm80 copies", "two_commits"),
    ("h100_sm80_copy_warp.json", "notes/sm80.md", "sm80 copy warp", "two_commits"),
    ("h200_sm80_rescaled.json", "notes/sm80.md", "sm80 rescaled", "two_commits"),
    ("h100_sm80_unpacked.json", "notes/sm80.md", "sm80 unpacked", "unpacked"),
    ("h100_sm80_picks.json", "notes/sm80.md", "sm80 picks", "picks"),
]


@pytest.mark.parametrize(("result", "page", "name", "made_by"), SHOWN)
def test_the_tables_are_those_of_the_result(monkeypatch, result, page, name, made_by) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_sm80

    document = json.loads((ROOT / "benchmarks" / "results" / result).read_text())
    text = (ROOT / "docs" / page).read_text()
    shown = text.split(f"<!-- begin {name} -->")[1].split(f"<!-- end {name} -->")[0]
    assert shown.strip() == getattr(bench_sm80, made_by)(document).strip()
