"""bench_quantize.py: every form of deep_gemm.quantize runs, its bytes are counted, and it stands in the table."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from deep_gemm import quantize

ROOT = Path(__file__).resolve().parents[2]


def test_every_form_runs_and_stands_in_the_table(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    bench = importlib.import_module("bench_quantize")
    timer = importlib.import_module("timing").Timer(torch.device("cpu"), 0, calls=1)
    rows = []
    for m in (1, 3):
        x, gate_up = torch.randn((m, 256)).bfloat16(), torch.randn((m, 512)).bfloat16()
        rows += bench.measured(x, bench.plain_calls(x), timer)
        rows += bench.measured(gate_up, bench.gated_calls(gate_up), timer)

    names = {row["what"].split(",")[0] for row in rows}
    assert names >= set(quantize.__all__)
    moved = {row["what"]: row["gb_per_s"] * row["us"] * 1e3 for row in rows if row["shape"] == [3, 256]}
    assert moved["copy"] == pytest.approx(2 * 3 * 512)
    assert moved["fp8"] == pytest.approx(3 * 512 + 3 * 256 + 3 * 2 * 4)
    assert moved["mxfp4"] == pytest.approx(3 * 512 + 3 * 128 + 3 * 8)
    assert moved["empty kernel"] == 0

    machine = {"gpu": "a card", "driver": "1", "torch": "2", "commit": "abc"}
    text = bench.tables({"machine": machine, "rows": rows, "host_us": {"fp8": 3.0}})
    assert all(f"| {row['what']} |" in text for row in rows)
    assert "| 256 columns, rows: | 1 | 3 | GB/s at 3 | of the copy's |" in text
