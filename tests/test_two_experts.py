"""Contiguous tiles of 256 rows where experts are aligned to 128: two experts may share one."""

from __future__ import annotations

import math

import pytest
import torch
from candidates import HOPPER_SMS, forced, grouped_candidates, straight
from devices import FEW
from grouped_inputs import Contiguous, alignment_of, contiguous
from inputs import GuardedOutput

import deep_gemm
from deep_gemm._extension import C

N, K = 392, 272


def run(
    case: Contiguous, layout: torch.Tensor, rows: int = 256, cluster_cols: int = 1, alignment: int = 128
) -> GuardedOutput:
    found = grouped_candidates("m_contiguous", len(case.counts), case.m, N, K, 0, alignment)
    candidate = straight(found, rows, 128, (1, cluster_cols, 1))
    assert candidate.refusal is None or "twice what" in candidate.refusal
    out = case.output()
    with alignment_of(alignment), forced(case.device, 512, N, K, candidate):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
    out.check(complete=False)
    return out


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cluster_cols", [1, 2])
@pytest.mark.parametrize(
    "counts", [[5, 0, 130, 300], [256, 250], [1, 1, 1], [300, 40, 200, 1, 128]], ids=lambda counts: str(counts)
)
def test_against_fp64(device, counts, cluster_cols) -> None:
    case = contiguous(counts, N, K, device)
    case.check(run(case, case.indices, cluster_cols=cluster_cols).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_blocks_of_padding_are_not_written(device, missing) -> None:
    """Beside an expert's block, before or after it, in the same tile."""
    case = contiguous([5, 130, 300, 7], N, K, device)
    layout, start = case.indices, case.starts[missing]
    end = (*case.starts, case.m)[missing + 1]
    layout[start:end] = -1
    case.counts[missing] = 0
    out = run(case, layout)
    case.check(out.tensor)
    assert out.tensor[start:end].isnan().all()


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cut_rows", [50, 120])
def test_the_last_tile_may_be_cut(device, cut_rows) -> None:
    for counts in ([200, 5], [5, 200, 8], [256, 6]):
        case = contiguous(counts, N, K, device, cut_rows=cut_rows)
        case.check(run(case, case.indices).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_an_expert_may_come_twice(device) -> None:
    case = contiguous([100, 200, 20], N, K, device)
    layout = case.indices
    layout[layout == 2] = 0  # expert 0 again, behind expert 1
    b = case.b.data.clone(), case.b.scales.clone()
    case.b.data[2], case.b.scales[2] = b[0][0], b[1][0]
    case.check(run(case, layout).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_experts_aligned_to_256_share_none(device) -> None:
    case = contiguous([100, 0, 300], N, K, device, alignment=256)
    case.check(run(case, case.indices, alignment=256).tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_the_same_bits_as_lower_tiles(device) -> None:
    """Which multiply another way: with a second partial accumulator."""
    case = contiguous([300, 40, 200, 128], N, K, device)
    high, low = (run(case, case.indices, rows).tensor for rows in (256, 128))
    real = case.indices >= 0
    assert torch.equal(high[real].view(torch.int16), low[real].view(torch.int16))


@pytest.mark.parametrize("cluster_cols", [1, 2])
@pytest.mark.parametrize("m", [1024, 8192, 34151])
def test_strips_give_shared_tiles_to_all_ctas(m, cluster_cols) -> None:
    found = grouped_candidates("m_contiguous", 4, m, 6144, 7168, 0, 128, HOPPER_SMS)
    candidate = straight(found, 256, 128, (1, cluster_cols, 1))
    assert math.gcd(candidate.strip, candidate.ctas // cluster_cols) == 1


def test_rows_that_do_not_start_at_16_bytes_are_left_to_lower_tiles() -> None:
    """They are stored past the copy engine, row by row, whoever's they are."""
    problem = {"m": 8192, "n": 6142, "k": 7168, "groups": 4, "num_sms": HOPPER_SMS, "tile_rows": 256, "tile_cols": 128}
    with pytest.raises(ValueError, match="stored by the copy engine"):
        C.problem_kernel("m_contiguous", problem)
