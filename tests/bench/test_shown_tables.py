"""Tables that documents show are those of the measured files."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from result_file import read_result

ROOT = Path(__file__).resolve().parents[2]
SHOWN = [
    ("bench_sm80", "h200_sm80.json", "architectures.md", "sm80", "tables"),
    ("bench_sm80", "h100_sm80_copies.json", "notes/sm80.md", "sm80 copies", "two_commits"),
    ("bench_sm80", "h100_sm80_copy_warp.json", "notes/sm80.md", "sm80 copy warp", "two_commits"),
    ("bench_sm80", "h200_sm80_rescaled.json", "notes/sm80.md", "sm80 rescaled", "two_commits"),
    ("bench_sm80", "h200_rescaled.json", "notes/packed-speed.md", "rescaled", "two_commits"),
    ("bench_sm80", "h200_converted_ahead.json", "notes/packed-speed.md", "converted ahead", "two_commits"),
    ("bench_packed", "h200_issue_order.json", "notes/packed-speed.md", "issue order", "beside_bf16"),
    ("bench_packed", "h200_halved_blocks.json", "notes/packed-speed.md", "halved blocks", "beside_bf16"),
    ("bench_packed", "h200_expert_counts.json", "notes/cost-model.md", "expert counts", "of_counts"),
    ("bench_sm80", "h200_converted_before_wait.json", "notes/packed-speed.md", "converted before wait", "two_commits"),
    ("bench_sm80", "h200_fast_times.json", "notes/packed-speed.md", "fast times", "two_commits"),
    ("bench_sm80", "h100_sm80_unpacked.json", "notes/sm80.md", "sm80 unpacked", "unpacked"),
    ("bench_sm80", "h200_sm80.json", "notes/sm80.md", "sm80 bars", "bars"),
    ("bench_sm80", "h200_sm80_decode.json", "notes/sm80.md", "sm80 attempts", "attempts"),
    ("bench_sm80", "h100_sm80_picks.json", "notes/sm80.md", "sm80 picks", "picks"),
    ("bench_quantize", "h200_quantize.json", "quantize.md", "quantize", "tables"),
    ("bench_fast_accumulation", "h200_fast_accumulation.json", "low_precision.md", "fast accumulation", "tables"),
    ("bench_mega_moe_ranks", "h200_mega_moe_ranks.json", "mega-moe.md", "mega moe ranks", "tables"),
]


@pytest.mark.parametrize(("program", "result", "page", "name", "made_by"), SHOWN)
def test_the_tables_are_those_of_the_result(monkeypatch, program, result, page, name, made_by) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module(program)
    document = read_result(ROOT / "benchmarks" / "results" / result)
    text = (ROOT / "docs" / page).read_text()
    shown = text.split(f"<!-- begin {name} -->")[1].split(f"<!-- end {name} -->")[0]
    assert shown.strip() == getattr(module, made_by)(document).strip()
