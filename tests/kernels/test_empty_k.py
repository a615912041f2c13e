"""K = 0: no product is computed, and D becomes what the rest of the formula says. (Of dense calls and K groups:
test_gemm.py, test_bf16.py, test_k_grouped.py.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from devices import EACH_ARCH
from grouped_inputs import contiguous, masked
from inputs import GuardedOutput, Operand

import deep_gemm

N = 136
KINDS = pytest.mark.parametrize("bf16", [False, True], ids=["fp8", "bf16"])


def operands(bf16: bool, a: Operand, b: Operand) -> tuple:
    return tuple(x.data.to(torch.bfloat16) for x in (a, b)) if bf16 else (a, b)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("zero_padding", [False, True])
@KINDS
def test_contiguous_becomes_zero(device, bf16, zero_padding) -> None:
    case = contiguous([5, 0, 130], N, 0, device, extra_rows=64)
    out = case.output(row_stride=N + 5)
    gemm = deep_gemm.m_grouped_bf16_gemm_nt_contiguous if bf16 else deep_gemm.m_grouped_fp8_gemm_nt_contiguous
    gemm(*operands(bf16, case.a, case.b), out.tensor, case.indices, ensure_zero_padding=zero_padding)
    out.check()
    assert (out.tensor == 0).all()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@KINDS
def test_psum_becomes_zero_up_to_the_last_experts_padding(device, bf16) -> None:
    case = contiguous([5, 0, 130], N, 0, device, extra_rows=64)
    out = case.output()
    gemm = deep_gemm.m_grouped_bf16_gemm_nt_contiguous if bf16 else deep_gemm.m_grouped_fp8_gemm_nt_contiguous
    gemm(*operands(bf16, case.a, case.b), out.tensor, case.ends, use_psum_layout=True)
    out.check(complete=False)
    assert (out.tensor[: case.m - 64] == 0).all()
    assert out.tensor[case.m - 64 :].isnan().all()


def masked_call(bf16: bool, device: torch.device) -> tuple[Callable[[], None], GuardedOutput, torch.Tensor]:
    case = masked([5, 0, 40, 7], 40, N, 0, device)
    out = case.output()
    gemm = deep_gemm.m_grouped_bf16_gemm_nt_masked if bf16 else deep_gemm.m_grouped_fp8_gemm_nt_masked
    a, b = operands(bf16, case.a, case.b)
    return lambda: gemm(a, b, out.tensor, case.counts, 8), out, case.counts


def assert_zero_where_rows_count(d: torch.Tensor, counts: list[int]) -> None:
    for expert, count in enumerate(counts):
        assert (d[expert, :count] == 0).all()
        assert d[expert, count:].isnan().all()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@KINDS
def test_masked_becomes_zero_where_rows_count(device, bf16) -> None:
    call, out, counts = masked_call(bf16, device)
    call()
    out.check(complete=False)
    assert_zero_where_rows_count(out.tensor, counts.tolist())
    counts[2] = 1000  # more than there are
    call()
    out.check(complete=False)
    assert_zero_where_rows_count(out.tensor, [5, 0, 40, 7])


@pytest.mark.gpu
@KINDS
def test_a_captured_call_follows_the_counts(cuda, bf16) -> None:
    call, out, counts = masked_call(bf16, cuda)
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    out.tensor.fill_(float("nan"))
    counts.copy_(torch.tensor([0, 9, 1, 40], dtype=torch.int32))
    graph.replay()
    torch.cuda.synchronize()
    assert_zero_where_rows_count(out.tensor, [0, 9, 1, 40])
