"""Tiles of 256 rows leave out 64 rows that are nothing but padding: they are neither copied, multiplied nor stored."""

from __future__ import annotations

import pytest
import torch
from candidates import forced, grouped_candidates, straight
from devices import FEW
from grouped_inputs import Masked, contiguous, masked
from inputs import GuardedOutput, ceil_div

import deep_gemm
from deep_gemm import simulator

N, K = 392, 528


def run(case: Masked, rows: int = 256, cluster_cols: int = 1) -> GuardedOutput:
    groups, max_m = case.a.data.shape[:2]
    found = grouped_candidates("masked", groups, max_m, N, K, 256, 128)
    out = case.output()
    with forced(case.counts.device, 512, N, K, straight(found, rows, 128, (1, cluster_cols, 1))):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 256)
    out.check(complete=False)
    return out


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cluster_cols", [1, 2])
@pytest.mark.parametrize(
    "counts", [[1, 64, 65, 128, 0, 129], [192, 193, 191, 256], [320, 300, 129, 448, 511, 512]], ids=str
)
def test_every_share_of_a_tile(device, counts, cluster_cols) -> None:
    case = masked(counts, 512, N, K, device)
    out = run(case, cluster_cols=cluster_cols)
    case.check(out.tensor)
    for group, count in enumerate(counts):
        assert out.tensor[group, ceil_div(count, 16) * 16 :].isnan().all()


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_the_same_bits_as_lower_tiles(device) -> None:
    counts = [64, 128, 192, 256, 180]
    case = masked(counts, 256, N, K, device)
    high, low = (run(case, rows).tensor for rows in (256, 128))
    for group, count in enumerate(counts):
        assert torch.equal(high[group, :count].view(torch.int16), low[group, :count].view(torch.int16))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cluster_cols", [1, 2])
@pytest.mark.parametrize("counts", [[60, 130, 300], [190, 64, 1], [129, 250, 320, 3]], ids=str)
def test_contiguous(device, counts, cluster_cols) -> None:
    case = contiguous(counts, N, K, device)
    found = grouped_candidates("m_contiguous", len(counts), case.m, N, K, 0, 128)
    out = case.output()
    with forced(case.device, 512, N, K, straight(found, 256, 128, (1, cluster_cols, 1))):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
    out.check()
    case.check(out.tensor)


def work(count: int) -> dict[str, int]:
    """Instructions of the simulated kernel for one expert with so many rows, by opcode."""
    case = masked([count], 256, 128, K, torch.device("cpu"))
    found = grouped_candidates("masked", 1, 256, 128, K, 256, 128)
    out = case.output()
    with forced(case.counts.device, 512, 128, K, straight(found, 256, 128, (1, 1, 1))):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 256)
    case.check(out.tensor)
    report = simulator.last_report()
    assert report is not None
    return report.statistics["instructions"]


@pytest.mark.parametrize("count", [64, 128, 192, 256])
def test_padding_is_no_work(count) -> None:
    blocks, found = ceil_div(K, 128), work(count)
    of_64_rows = 4 * 4  # warps, steps of 32 along K
    first_block = of_64_rows if count == 64 else 0  # of the warpgroup that has nothing to do
    assert found["wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"] == (
        count // 64 * blocks * of_64_rows + first_block
    )
    loads = sum(n for name, n in found.items() if name.startswith("cp.async.bulk.tensor.3d.shared::cluster"))
    assert loads == blocks * (count // 64 + 2)  # weights, and scales of the rows
    stores = sum(n for name, n in found.items() if name.startswith("cp.async.bulk.tensor.3d.global"))
    assert stores == count // 16 * 2  # chunks of 64 columns
