"""The tables of packed weights that docs/low_precision.md shows are those of the measured file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("result", "part"),
    [("h200_packed", "packed"), ("h100_packed", "packed experts"), ("h100_packed_rest", "packed rest")],
)
def test_the_tables_are_those_of_the_result(result, part, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_packed

    document = json.loads((ROOT / "benchmarks" / "results" / f"{result}.json").read_text())
    text = (ROOT / "docs" / "low_precision.md").read_text()
    shown = text.split(f"<!-- begin {part} -->")[1].split(f"<!-- end {part} -->")[0]
    assert shown.strip() == bench_packed.tables(document).strip()
