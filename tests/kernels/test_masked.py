"""Masked products, one matrix of the same height for each expert, on every device against FP64."""

from __future__ import annotations

import pytest
import torch
from devices import EACH_ARCH
from grouped_inputs import grouped_problems, masked
from hypothesis import HealthCheck, given, settings
from sampling import examples

import deep_gemm

DTYPES = [torch.bfloat16, torch.float32, torch.float16]


class TestMasked:
    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("expected_m", [1, 20, 64, 100_000])
    @pytest.mark.parametrize("counts", [[5, 0, 130, 200], [0, 0, 0], [200, 200], [1]], ids=str)
    def test_any_hint(self, device, counts, expected_m) -> None:
        case = masked(counts, 200, 136, 256, device)
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, expected_m)
        out.check(complete=False)
        case.check(out.tensor)
        if not any(counts):
            out.assert_untouched()

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize(("max_m", "n", "k"), [(1, 1, 16), (7, 24, 144), (67, 100, 64), (130, 576, 400)])
    @pytest.mark.parametrize("per_row_b", [False, True], ids=["blocks", "rows"])
    def test_odd_sizes(self, device, max_m, n, k, per_row_b) -> None:
        case = masked([max_m, 0, max_m // 2, 1], max_m, n, k, device, per_row_b)
        out = case.output()
        recipe = (1, 1, 128) if per_row_b else None
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, max_m // 2, recipe=recipe)
        out.check(complete=False)
        case.check(out.tensor)

    @pytest.mark.parametrize("k", [128 * 16, 128 * 17, 128 * 37 + 16])
    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_few_tokens_and_many_k_blocks(self, device, k) -> None:
        """Copied in pairs, of which the last K block may have none, over a ring that they go round more than once."""
        case = masked([5, 0, 20, 1], 20, 200, k, device)
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 16)
        out.check(complete=False)
        case.check(out.tensor)

    @pytest.mark.parametrize("experts", [31, 32, 33, 300])
    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_many_experts(self, device, experts) -> None:
        """Around what a warp, and then a pass over the counts, takes at once."""
        counts = [(7 * g) % 3 for g in range(experts)]
        case = masked(counts, 4, 24, 128, device)
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 2)
        out.check(complete=False)
        case.check(out.tensor)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_rows_past_the_last_tile_stay(self, device, dtype) -> None:
        case = masked([5, 0, 16], 512, 136, 256, device)
        out = case.output(dtype)
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 16)
        out.check(complete=False)
        case.check(out.tensor)
        assert out.tensor[:, 256:].isnan().all()
        assert out.tensor[1].isnan().all()

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_d_with_groups_between_rows(self, device) -> None:
        """D[g, m] at memory row m * G + g."""
        case = masked([5, 70], 70, 136, 256, device)
        whole = torch.full((70, 2, 136), float("nan"), dtype=torch.bfloat16, device=device)
        d = whole.transpose(0, 1)
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, d, case.counts, 32)
        case.check(d)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_counts_past_max_m_are_cut(self, device) -> None:
        case = masked([70, 70], 70, 136, 256, device)
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts * 1000, 70)
        out.check()
        case.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=grouped_problems())
def test_drawn_masked(device, problem) -> None:
    counts, n, k, expected_m = problem
    case = masked(counts, max(1, *counts), n, k, device)
    out = case.output()
    deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, expected_m, compiled_dims="")
    out.check(complete=False)
    case.check(out.tensor)
