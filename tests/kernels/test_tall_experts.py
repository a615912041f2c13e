"""Experts of 1,024 rows and more: several tiles of 256 rows, of which the last may have padding."""

from __future__ import annotations

import pytest
import torch
from candidates import forced, grouped_candidates, straight
from devices import EVERY_DEVICE, FEW
from grouped_inputs import Contiguous, Masked, assert_zero_padding, contiguous, masked
from inputs import GuardedOutput, ceil_div

import deep_gemm
from deep_gemm import simulator

N, K = 264, 272
TALL = 1024


def run_contiguous(case: Contiguous, layout: torch.Tensor, cluster_cols: int = 1) -> GuardedOutput:
    k = case.a.data.shape[1]
    found = grouped_candidates("m_contiguous", len(case.counts), case.m, case.n, k, 0, 128)
    out = case.output()
    with forced(case.device, 512, case.n, k, straight(found, 256, 128, (1, cluster_cols, 1))):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
    out.check(complete=False)
    return out


def run_masked(case: Masked, cluster_cols: int = 1) -> GuardedOutput:
    groups, max_m = case.a.data.shape[:2]
    found = grouped_candidates("masked", groups, max_m, 512, K, TALL, 128)
    out = case.output()
    with forced(case.counts.device, 512, 512, K, straight(found, 256, 128, (1, cluster_cols, 1))):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, TALL)
    out.check(complete=False)
    return out


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", EVERY_DEVICE, indirect=True)
@pytest.mark.parametrize("cluster_cols", [1, 2])
def test_contiguous(device, cluster_cols) -> None:
    """What lies behind an expert's rows is the next one's, or padding, which holds NaN."""
    counts = [1300, 1, 1900]
    case = contiguous(counts, 512 if cluster_cols == 2 else N, K, device)
    out = run_contiguous(case, case.indices, cluster_cols)
    case.check(out.tensor)
    assert_zero_padding(out.tensor, case.indices, len(counts))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cluster_cols", [1, 2])
@pytest.mark.parametrize("counts", [[1100, 0, 300], [1024, 1, 0, 64, 1089]], ids=str)
def test_masked_whatever_the_hint_promised(device, counts, cluster_cols) -> None:
    case = masked(counts, 1100, 512, K, device)
    out = run_masked(case, cluster_cols)
    case.check(out.tensor)
    for group, count in enumerate(counts):
        assert out.tensor[group, ceil_div(count, 256) * 256 :].isnan().all()


@pytest.mark.parametrize("counts", [[100, 49408], [130, 49200], [49000, 700]], ids=str)
def test_a_run_that_goes_on_behind_a_pass_has_no_tile_more(counts) -> None:
    """49,152 rows are looked at in one pass. An expert that crosses its end is one run all the same."""
    case = contiguous(counts, 16, 16, "cpu")
    case.check(run_contiguous(case, case.indices).tensor)
    report = simulator.last_report()
    assert report is not None
    found = report.statistics["instructions"]
    copies = sum(n for name, n in found.items() if name.startswith("cp.async.bulk.tensor.3d.shared::cluster"))
    scales_and_weights = 2 * sum(ceil_div(count, 256) for count in counts)
    assert copies == sum(ceil_div(count, 64) for count in counts) + scales_and_weights
