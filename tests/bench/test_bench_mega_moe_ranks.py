"""The table of a layer that is spread over GPUs is that of the measured file."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_is_that_of_the_result(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    bench = importlib.import_module("bench_mega_moe_ranks")
    document = json.loads((ROOT / "benchmarks" / "results" / "h200_mega_moe_ranks.json").read_text())
    text = (ROOT / "docs" / "layers.md").read_text()
    shown = text.split("<!-- begin mega moe ranks -->")[1].split("<!-- end mega moe ranks -->")[0]
    assert shown.strip() == bench.tables(document).strip()
