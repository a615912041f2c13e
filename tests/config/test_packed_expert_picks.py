"""Picks of experts beside packed weights lose little where counts scatter, by times of an H200."""

from __future__ import annotations

from pathlib import Path

import pytest
from candidates import parse
from field_calls import explain
from result_file import read_result

from deep_gemm._targets import HOPPER_SMS

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "fp8 x int4": {"s4m": 1, "gran_k_b": 128},
    "fp8 x mxfp4": {"e2m1x": 1, "gran_k_b": 128},
    "fp8 x int4, channels, fast": {"s4": 1, "fast_accumulation": 1},
    "fp8 x mxfp4, fast": {"e2m1x": 1, "gran_k_b": 128, "fast_accumulation": 1},
}
ROWS = read_result(ROOT / "benchmarks" / "results" / "h200_expert_counts.json")["results"]


def lost(row: dict) -> float:
    """Its pick's time over the fastest tile's."""
    name, grouping, experts, tokens, n, k, _ = row["case"]
    sizes = {"m": experts * -(-tokens // 128) * 128, "alignment": 128}
    if grouping == "masked":
        sizes = {"m": 4 * tokens, "expected_m": tokens}
    fields = {"n": n, "k": k, "groups": experts, "num_sms": HOPPER_SMS, "token_scales": 1}
    best = parse(explain("m_" + grouping if grouping == "contiguous" else grouping, fields | sizes | FIELDS[name]))[0]
    assert (best.swapped, best.rows, best.cluster_shape) == (True, 128, (1, 1, 1))
    return row["us"][str(best.cols)] / min(us for tile, us in row["us"].items() if tile != "pick")


@pytest.mark.parametrize("name", FIELDS)
def test_little_is_lost_where_counts_scatter(name) -> None:
    shares = [lost(row) for row in ROWS if row["case"][0] == name and row["case"][-1] == "drawn"]
    assert sum(shares) / len(shares) < 1.01
    assert max(shares) < 1.06
