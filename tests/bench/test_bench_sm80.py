"""The tables of kernels compiled for sm_80 that docs/architectures.md shows are those of the measured file."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_are_those_of_the_result(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_sm80

    document = json.loads((ROOT / "benchmarks" / "results" / "h100_sm80.json").read_text())
    text = (ROOT / "docs" / "architectures.md").read_text()
    shown = text.split("<!-- begin sm80 -->")[1].split("<!-- end sm80 -->")[0]
    assert shown.strip() == bench_sm80.tables(document).strip()
