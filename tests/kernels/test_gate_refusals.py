"""Gated activations that cannot be made, and products that have none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_gates import operands

import deep_gemm
from deep_gemm.epilogue import Alpha, Chain, GeGLU, SwiGLU


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: SwiGLU(layout="half"), "layout must be 'halves', 'interleaved' or 'eights', got 'half'"),
        (lambda: SwiGLU(limit=-1.0), "limit must be None or a number above 0, got -1.0"),
        (lambda: SwiGLU(alpha="1"), "alpha must be a number, got '1'"),
        (lambda: GeGLU(approximate="erf"), "approximate must be 'tanh' or 'none', got 'erf'"),
        (lambda: Chain(SwiGLU(), GeGLU()), "SwiGLU or GeGLU, RowScale, .*each at most once"),
        (lambda: Chain(SwiGLU(), Alpha(1)), "in this order, got SwiGLU, Alpha"),
    ],
)
def test_what_cannot_be_said(made, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        made()


def test_eights_are_refused_where_scales_or_packed_rows_have_another_order() -> None:
    a, b, call = operands("fp8", 4, 256, 512, torch.device("cpu"))
    a, b = (a[0], torch.ones_like(a[1])), (b[0], torch.ones_like(b[1]))
    d = torch.empty(4, 128)
    with (
        deep_gemm.simulator.options(target="sm_100a"),
        pytest.raises(ValueError, match="scales of groups of K on sm100"),
    ):
        call(a, b, d, epilogue=SwiGLU(layout="eights"))
    with pytest.raises(ValueError, match="N a multiple of 16 where its rows are 8 gates and 8 ups in turn"):
        deep_gemm.bf16_gemm_nt(bf16(4, 64), bf16(24, 64), torch.empty(4, 12), epilogue=SwiGLU(layout="eights"))
    codes = torch.zeros(256, 512, dtype=torch.int8)
    w = deep_gemm.pack_weights(
        codes, torch.ones(256, 4), element="int4", activations="fp8", group_size=128, gate_up="halves"
    )
    with pytest.raises(ValueError, match="as gate_up of the packed weights, 'halves' or 'interleaved', got 'eights'"):
        deep_gemm.fp8_int4_gemm_nt(a, w, d, epilogue=SwiGLU(layout="eights"))


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def fp8(*shape: int) -> torch.Tensor:
    return torch.zeros(shape).to(torch.float8_e4m3fn)


def dense(m: int, n: int, major: str = "t", c: torch.Tensor | None = None) -> Callable[..., None]:
    b = bf16(n, 64) if major == "t" else bf16(64, n)
    return lambda d, **more: getattr(deep_gemm, f"bf16_gemm_n{major}")(bf16(m, 64), b, d, c, **more)


def scaled(m: int, n: int, rows: int) -> Callable[..., None]:
    """With scales of so many rows of B each."""
    a, b = (fp8(m, 128), torch.ones(m, 1)), (fp8(n, 128), torch.ones(-(-n // rows), 1))
    return lambda d, **more: deep_gemm.fp8_gemm_nt(a, b, d, recipe=(1, rows, 128), **more)


def batched(expr: str, a: torch.Tensor, b: torch.Tensor) -> Callable[..., None]:
    return lambda d, **more: deep_gemm.einsum(expr, a, b, d, **more)


@pytest.mark.parametrize(
    ("call", "shape", "message"),
    [
        (dense(8, 32), (8, 32), r"d must be \[M, N / 2\] = \[8, 16\]"),
        (dense(8, 25), (8, 12), "b must have N even for a gated activation: .* got N=25"),
        (dense(8, 32, "n"), (8, 16), "b must have K contiguous"),
        (dense(8, 32, c=torch.zeros(8, 16)), (8, 16), r"c must be \[M, N\] with N=32"),
        (scaled(8, 64, 128), (8, 32), "N/2 a multiple of 128 where gates and ups are halves"),
        (batched("bhr,hdr->bhd", bf16(5, 3, 64), bf16(3, 32, 64)), (5, 3, 32), "d must have d=16, half of b's"),
        (batched("bhd,hdr->bhr", bf16(5, 3, 64), bf16(3, 64, 32)), (5, 3, 16), "b must have K contiguous"),
        (batched("bmk,bnk->mn", bf16(3, 5, 64), bf16(3, 32, 64)), (5, 16), "where a batch is added up"),
    ],
)
def test_what_no_kernel_does_is_refused_before_anything_is_written(call, shape, message) -> None:
    d = torch.full(shape, float("nan"))
    with pytest.raises(ValueError, match=message):
        call(d, epilogue=SwiGLU())
    assert d.isnan().all()
