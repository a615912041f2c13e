"""Who issues the copies that store D: a warp of its own where there is a next tile to multiply, else each math warp."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from inputs import GuardedOutput, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator

M, N, K = 512, 256, 400


@pytest.mark.parametrize(
    ("swapped", "rows", "cols", "issuers"),
    [
        (False, 128, 128, 1),  # two partial accumulators
        (False, 256, 128, 1),  # looks ahead; several tiles a CTA
        (False, 192, 128, 12),  # in turn: each math warp its own
        (False, 64, 64, 4),  # one math warpgroup
        (True, 128, 64, 8),  # swapped
    ],
)
def test_copies_of_a_tile_are_issued_by(swapped, rows, cols, issuers) -> None:
    cpu = torch.device("cpu")
    a, b = random_rows((M, K), cpu, 0), random_blocks((N, K), cpu, 1)
    out = GuardedOutput((M, N), torch.bfloat16, cpu)
    with simulator.options(num_sms=2), forced_tile(cpu, (M, N, K), swapped, rows, cols):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), "D")
    report = simulator.last_report()
    assert report is not None
    tiles = -(-(N if swapped else M) // rows) * -(-(M if swapped else N) // cols)
    # One group of stores for all of a tile, or one for each warp's part (fewer buffers than chunks: several).
    groups = report.statistics["instructions"]["cp.async.bulk.commit_group"]
    assert groups == tiles if issuers == 1 else groups % (tiles * issuers) == 0
