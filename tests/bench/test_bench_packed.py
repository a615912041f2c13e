"""The tables of packed weights that docs/low_precision.md shows are those of the measured file."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_are_those_of_the_result(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_packed

    document = json.loads((ROOT / "benchmarks" / "results" / "h200_packed.json").read_text())
    text = (ROOT / "docs" / "low_precision.md").read_text()
    shown = text.split("<!-- begin packed -->")[1].split("<!-- end packed -->")[0]
    assert shown.strip() == bench_packed.tables(document).strip()
