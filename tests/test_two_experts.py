"""Contiguous tiles of 256 rows where experts are aligned to 128: two experts may share one."""

from __future__ import annotations

import pytest
import torch
from candidates import Candidate, forced, grouped_candidates
from devices import FEW
from grouped_inputs import Contiguous, alignment_of, contiguous
from inputs import GuardedOutput

import deep_gemm

N, K = 392, 272


def of_two_experts(case: Contiguous, cluster_cols: int, alignment: int = 128) -> Candidate:
    found = grouped_candidates("m_contiguous", len(case.counts), case.m, N, K, 0, alignment)
    shape = (256, 128, (1, cluster_cols, 1))
    (candidate,) = (c for c in found if not c.swapped and (c.rows, c.cols, c.cluster_shape) == shape)
    assert candidate.refusal is None or "twice what" in candidate.refusal
    return candidate


def run(case: Contiguous, layout: torch.Tensor, cluster_cols: int = 1, alignment: int = 128) -> GuardedOutput:
    out = case.output()
    with alignment_of(alignment), forced(case.device, 512, N, K, of_two_experts(case, cluster_cols, alignment)):
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
    case.check(run(case, case.indices, cluster_cols).tensor)


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
