"""Who issues the copies that store D: a warp of its own where there is a next tile to multiply, else each math warp."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from inputs import GuardedOutput, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator

N, K = 256, 400


@pytest.mark.parametrize(
    ("m", "swapped", "rows", "cols", "store_warp"),
    [
        (1280, False, 128, 128, True),  # two partial accumulators
        (1280, False, 256, 128, True),  # looks ahead
        (1280, False, 128, 192, True),  # likewise
        (1280, False, 128, 144, True),
        (512, False, 128, 128, False),  # four tiles a CTA: a stage instead of buffers
        (512, False, 128, 192, False),
        (1280, False, 192, 128, False),  # in turn: each math warp its own
        (1280, False, 64, 64, False),  # one math warpgroup
        (1280, True, 128, 64, False),  # swapped
    ],
)
def test_who_issues_the_copies_of_a_tile(m, swapped, rows, cols, store_warp) -> None:
    cpu = torch.device("cpu")
    a, b = random_rows((m, K), cpu, 0), random_blocks((N, K), cpu, 1)
    out = GuardedOutput((m, N), torch.bfloat16, cpu)
    with simulator.options(num_sms=2), forced_tile(cpu, (m, N, K), swapped, rows, cols):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), "D")
    report = simulator.last_report()
    assert report is not None
    tiles = -(-(N if swapped else m) // rows) * -(-(m if swapped else N) // cols)
    groups = report.statistics["instructions"]["cp.async.bulk.commit_group"]
    # One group of stores for all of a tile, or one for each warp's 16 rows (fewer buffers than chunks: several).
    assert groups == tiles if store_warp else groups % (tiles * rows // 16) == 0


@pytest.mark.parametrize(
    ("rows", "tiles", "paced"),
    [
        (256, 4, False),  # few tiles: each math warp stores its own
        (256, 5, True),
        (256, 7, True),
        (128, 7, False),  # two partial accumulators: not stored under the next tile's first wgmma
    ],
)
def test_copies_are_spread_over_the_next_tile(rows, tiles, paced) -> None:
    cpu = torch.device("cpu")
    m, n, k = rows, 128 * tiles, 1280
    a, b = random_rows((m, k), cpu, 0), random_blocks((n, k), cpu, 1)
    out = GuardedOutput((m, n), torch.bfloat16, cpu)
    with simulator.options(num_sms=1), forced_tile(cpu, (m, n, k), False, rows, 128):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), "D")
    report = simulator.last_report()
    assert report is not None
    assert (report.statistics["instructions"].get("nanosleep.u32", 0) > 0) == paced
