"""Rows of padding of D are zeros in both contiguous layouts, whatever A and its scales hold there: callers allocate D
with torch.empty and sum over it. In the psum layout `ensure_zero_padding=False` saves the work."""

from __future__ import annotations

import pytest
import torch
from bf16_grouped_inputs import Experts
from bf16_inputs import KINDS, lying
from devices import EACH_ARCH, EVERY_DEVICE
from grouped_inputs import Contiguous, alignment_of, assert_zero_padding, contiguous, poison_rows
from inputs import GuardedOutput, Operand

import deep_gemm

DTYPES = [torch.bfloat16, torch.float32, torch.float16]
N, K = 136, 256
LAYOUTS = pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])


def run(case: Contiguous, layout: torch.Tensor, out: GuardedOutput, nn: bool = False, **more) -> torch.Tensor:
    b = Operand(case.b.data.transpose(1, 2), case.b.scales.transpose(1, 2)) if nn else case.b
    gemm = deep_gemm.m_grouped_fp8_gemm_nn_contiguous if nn else deep_gemm.m_grouped_fp8_gemm_nt_contiguous
    gemm(case.a, b, out.tensor, layout, **more)
    return out.tensor


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", EVERY_DEVICE, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@LAYOUTS
def test_every_row_is_written(device, psum, dtype) -> None:
    """Behind each expert, of an empty one, and where M is no multiple of the alignment."""
    case = contiguous([5, 0, 130, 1], N, K, device, cut_rows=60)
    out = case.output(dtype)
    d = run(case, case.layout(psum), out, use_psum_layout=psum)
    out.check()
    case.check(d)
    assert_zero_padding(d, case.indices, 4)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(
    ("alignment", "dtype"),
    [(16, torch.bfloat16), (64, torch.float32), (96, torch.float16), (96, torch.float32), (256, torch.bfloat16)],
)
@pytest.mark.parametrize("nn", [False, True], ids=["nt", "nn"])
def test_every_alignment(device, nn, alignment, dtype) -> None:
    with alignment_of(alignment):
        case = contiguous([5, 0, 130, 64], N, K, device, alignment, extra_rows=37)
        out = case.output(dtype)
        d = run(case, case.indices, out, nn)
    out.check()
    case.check(d)
    assert_zero_padding(d, case.indices, 4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("alignment", "n", "row_stride", "offset"),
    [(128, N, 200, 64), (128, N, 137, 65), (16, N, 200, 64), (128, 3, 5, 64), (64, 1000, 1001, 66)],
)
def test_gaps_between_rows_of_d_are_left_alone(device, alignment, n, row_stride, offset, dtype) -> None:
    with alignment_of(alignment):
        case = contiguous([5, 0, 130], n, K, device, alignment, extra_rows=130)
        out = case.output(dtype, row_stride=row_stride, offset=offset)
        d = run(case, case.indices, out)
    out.check()
    case.check(d)
    assert_zero_padding(d, case.indices, 3)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "alignment"), [(1, 128), (256, 128), (777, 128), (300, 16)])
def test_nothing_but_padding(device, rows, alignment, dtype) -> None:
    with alignment_of(alignment):
        case = contiguous([0, 0], N, K, device, alignment, extra_rows=rows)
        out = case.output(dtype)
        d = run(case, case.indices, out)
    out.check()
    assert (d == 0).all()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@LAYOUTS
def test_no_experts_at_all(device, psum) -> None:
    """Every row is padding, by its index; in the psum layout it is nobody's."""
    fp8 = torch.float8_e4m3fn
    a = Operand(torch.empty((130, 128), dtype=fp8, device=device), torch.empty((130, 1), device=device))
    b = Operand(torch.empty((0, 64, 128), dtype=fp8, device=device), torch.empty((0, 1, 1), device=device))
    layout = torch.full((0 if psum else 130,), -1, dtype=torch.int32, device=device)
    for zero_padding in (False, True):
        out = GuardedOutput((130, 64), torch.bfloat16, device)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
            a, b, out.tensor, layout, use_psum_layout=psum, ensure_zero_padding=zero_padding
        )
        if not psum:
            out.check()
            assert (out.tensor == 0).all()
        else:
            out.assert_untouched()


# Which rows of an expert's are dropped, by their number.
DROPPED = {
    "here and there": lambda row: row % 16 == 3,
    "first rows of tiles": lambda row: row % 16 == 0,
    "the first 64 of each 128": lambda row: row % 128 < 64,
    "all but the last of each 64": lambda row: row % 64 != 63,
    "all but one": lambda row: row != 197,
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(
    ("alignment", "dropped", "nn"),
    [(alignment, dropped, alignment in (96, 192)) for alignment in (16, 96, 128, 192) for dropped in DROPPED],
)
def test_padding_among_the_rows_of_an_expert(device, alignment, dropped, nn) -> None:
    """As of tokens that were dropped in place. Their neighbours are what they are without."""
    with alignment_of(alignment):
        case = contiguous([200, 70], N, K, device, alignment)
        layout = case.indices
        whole = run(case, layout, case.output(), nn)
        layout[DROPPED[dropped](torch.arange(case.m, device=device))] = -1
        poison_rows(case.a, layout < 0)
        out = case.output()
        d = run(case, layout, out, nn)
    out.check()
    assert_zero_padding(d, layout, 2)
    assert torch.equal(d[layout >= 0], whole[layout >= 0])


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_dropped_first_rows_of_blocks_in_a_long_layout(device) -> None:
    """More blocks than a warp looks at together, at its borders too."""
    case = contiguous([64 * 70, 1, 64 * 5], 16, 128, device, 128)
    layout = case.indices
    whole = run(case, layout, case.output())
    layout[::64] = -1
    out = case.output()
    d = run(case, layout, out)
    out.check()
    assert_zero_padding(d, layout, 3)
    assert torch.equal(d[layout >= 0], whole[layout >= 0])


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_what_is_no_expert_is_padding(device) -> None:
    case = contiguous([5, 130], N, K, device)
    layout = case.indices
    layout[:128][layout[:128] < 0] = -(2**31)
    layout[128:][layout[128:] < 0] = 2
    out = case.output()
    d = run(case, layout, out)
    out.check()
    case.check(d)
    assert_zero_padding(d, layout, 2)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("nn", [False, True], ids=["nt", "nn"])
@LAYOUTS
def test_operands_of_16_bits(device, psum, nn) -> None:
    of_operands, dtype = KINDS[2 * psum + nn]
    for alignment in (16, 128):
        with alignment_of(alignment):
            case = Experts([5, 0, 130, 1], N, 200, device, alignment, of_operands)
            out = GuardedOutput((case.a.shape[0], N), dtype, device, row_stride=N + 24)
            gemm = deep_gemm.m_grouped_bf16_gemm_nn_contiguous if nn else deep_gemm.m_grouped_bf16_gemm_nt_contiguous
            gemm(case.a, lying(case.b, nn), out.tensor, case.ends if psum else case.indices, use_psum_layout=psum)
        out.check()
        case.check(out.tensor)
        assert_zero_padding(out.tensor, case.indices, 4)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_indices_give_zeros_whatever_is_asked_for(device) -> None:
    """Public programs pass ensure_zero_padding=False with indices and compare all of D."""
    case = contiguous([5, 130], N, K, device, extra_rows=256)
    out = case.output()
    d = run(case, case.indices, out, ensure_zero_padding=False)
    out.check()
    assert_zero_padding(d, case.indices, 2)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_the_layout_is_read_at_each_launch(device) -> None:
    """A call that is known already fills what is padding now."""
    case = contiguous([5, 130, 70], N, K, device)
    layout, out = case.indices, case.output()
    for missing in (None, 1, 0):
        now = case.indices
        if missing is not None:
            now[now == missing] = -1
        layout.copy_(now)
        d = run(case, layout, out)
        assert_zero_padding(d, layout, 3)
        assert not d[layout >= 0].isnan().any()
