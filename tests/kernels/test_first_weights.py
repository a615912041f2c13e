"""SM100: until the preceding kernel has ended, each CTA asks the L2 for the weights that it will read first."""

from __future__ import annotations

import re

import pytest
import torch
from bf16_inputs import lying, operands
from candidates import forced_tile
from devices import SCHEDULES, on_simulator
from field_calls import kernel_of
from fp4_inputs import Fp4Rows, Fp8Rows, matches
from fp4_operands import assert_near, operand
from grouped_inputs import contiguous, masked, run_experts
from inputs import GuardedOutput, random_blocks, random_rows
from reference import BF16_TOLERANCES, assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C

ON_SM100 = pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)

GLOBAL_MEMORY = re.compile(
    r"^\s+(?:@\S+ )?((?:(?:ld|st|red|atom)\S*\.global|cp\.async\.bulk|cp\.reduce)\S*)", re.MULTILINE
)


def asked() -> tuple[int, int]:
    """Boxes that the last kernel asked for, and those of them that it did not copy then."""
    report = simulator.last_report()
    assert report is not None
    return report.statistics["boxes_asked_for"], report.statistics["boxes_asked_in_vain"]


# Two CTAs a cluster have 10 of 20 K blocks each, which begin within a word of four; one has eleven stages.
@ON_SM100
@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("m", "swapped", "cols", "cluster", "each", "ctas"),
    [
        (5, True, 16, (1, 1, 1), 11 + 3, 2),
        (5, True, 16, (1, 1, 2), 10 + 3, 4),
        (30, True, 32, (2, 1, 1), 11 + 3, 2),  # a pair: each its own rows
        (256, False, 64, (2, 1, 1), 9 + 3, 4),  # half of the columns, the words of all
    ],
)
def test_it_is_what_is_copied_first(device, m, swapped, cols, cluster, each, ctas) -> None:
    n, k = 256, 128 * 20
    a, b = random_rows((m, k), device, 1), random_blocks((n, k), device, 2)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with forced_tile(device, (m, n, k), swapped, 128, cols, cluster):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))
    assert asked() == (each * ctas, 0)


@ON_SM100
def test_beside_fp32_scales(device) -> None:
    """Which are not asked for."""
    m, n, k = 5, 256, 128 * 20
    a, b = random_rows((m, k), device, 1), random_blocks((n, k), device, 2)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with forced_tile(device, (m, n, k), True, 128, 16):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, disable_ue8m0_cast=True)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))
    assert asked() == (2 * 12, 0)


@ON_SM100
def test_weights_of_four_bits(device) -> None:
    """A word of exponents is for a K block."""
    m, n, k = 5, 256, 128 * 3
    a, w = Fp8Rows((m, k)), Fp4Rows((n, k))
    d = torch.empty((m, n))
    with forced_tile(device, (m, n, k), True, 128, 16):
        deep_gemm.fp8_fp4_gemm_nt(a.pair, w.pair, d)
    matches(d, a, w)
    assert asked() == (2 * (3 + 3), 0)


@ON_SM100
@pytest.mark.parametrize("kind", ["mxfp4", "nvfp4"])
def test_four_bits_by_four_bits(device, kind) -> None:
    """Words of exponents, two or four a K block of 256, come at once."""
    m, n, k = 5, 256, 256 * 3
    a, b = operand(kind, m, k, 1), operand(kind, n, k, 2)
    d = torch.empty((m, n))
    with forced_tile(device, (m, n, k), True, 128, 16):
        deep_gemm.fp4_gemm_nt(a.pair, b.pair, d)
    assert_near(d, a.exact, b.exact)
    assert asked() == (2 * (3 + 3), 0)


@ON_SM100
@pytest.mark.parametrize(("cols", "boxes"), [(64, 1), (192, 3)])
def test_weights_along_n(device, cols, boxes) -> None:
    """In boxes of 64 of them."""
    m, n, k = 8, 384, 64 * 3
    a, b = operands(m, n, k, device)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with forced_tile(device, (m, n, k), False, 128, cols):
        deep_gemm.bf16_gemm_nn(a, lying(b, other_way=True), out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), tolerances=BF16_TOLERANCES)
    assert asked() == (3 * boxes * min(4, n // cols), 0)


@pytest.mark.sampled(8)
@ON_SM100
@pytest.mark.parametrize("counts", [[16, 16], [0, 16], [0, 0], [300, 1]], ids=str)
@pytest.mark.parametrize("expected_m", [16, 5000])
def test_results_are_right_whatever_the_counts_are(device, counts, expected_m) -> None:
    """Where they are as expected, what is asked for is what is copied."""
    case = masked(counts, 300, 200, 128 * 9, device)
    out = case.output()
    with simulator.options(num_sms=2):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, expected_m)
    out.check(complete=False)
    case.check(out.tensor)
    boxes, in_vain = asked()
    assert boxes > 0
    assert in_vain == 0 or (counts, expected_m) != ([16, 16], 16)


@pytest.mark.sampled(6)
@ON_SM100
@pytest.mark.parametrize("psum", [False, True])
@pytest.mark.parametrize("counts", [[128, 128], [0, 200], [300, 1]], ids=str)
def test_contiguous_experts(device, counts, psum) -> None:
    case = contiguous(counts, 200, 128 * 9, device)
    out = case.output()
    with simulator.options(num_sms=2):
        run_experts(case, out.tensor, 128, psum)
    out.check(complete=False)
    case.check(out.tensor)
    assert asked()[0] > 0


@pytest.mark.parametrize("grouping", ["dense", "m_contiguous", "m_psum", "masked", "batched"])
def test_it_is_all_that_happens_before_the_preceding_kernel_has_ended(grouping) -> None:
    """And no more than weights and their scales, though tokens' could be asked for too: one box of each."""
    fields = {"num_sms": 148, "m": 16, "n": 4096, "k": 7168, "groups": 4, "expected_m": 16}
    kernel = kernel_of(grouping, fields, "sm_100a")
    ptx = bytes(C.jit_compile(kernel["name"], kernel["text"], "sm_100a", "ptx")).decode()
    before, behind = ptx.split("griddepcontrol.wait")
    assert GLOBAL_MEMORY.findall(before) == ["cp.async.bulk.prefetch.tensor.3d.L2.global"] * 2
    assert "tcgen05.alloc" not in before
    assert "cp.async.bulk.prefetch" not in behind


def test_groups_of_k_have_no_weights() -> None:
    fields = {"num_sms": 148, "m": 4096, "n": 4096, "k": 32768, "groups": 8, "per_row_b": 1, "fp32_output": 1}
    kernel = kernel_of("k_contiguous", fields, "sm_100a")
    ptx = bytes(C.jit_compile(kernel["name"], kernel["text"], "sm_100a", "ptx")).decode()
    assert "cp.async.bulk.prefetch" not in ptx
