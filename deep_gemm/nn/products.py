"""Products of tokens and weights with their gradients: dense, and of experts whose rows follow each other."""

from __future__ import annotations

from typing import Any

import torch

from .._compiled import alignment_now
from .._gemm import Contiguous, gemm
from ..bf16 import bf16_gemm_nt, k_grouped_bf16_gemm_tn_contiguous
from ..fp8 import fp8_gemm_nt
from ..k_grouped import k_grouped_fp8_gemm_tn_contiguous
from ..utils import align
from .numbers import fp8_columns, fp8_rows, in_halves, joined, transposed

TOKENS_STEP = 16
_ALONG_K = (1, 1, 128)  # of both operands: where K is tokens, blocks of 128 x 128 would mix them
_OF_WEIGHTS = "mn"  # compiled in: K is the number of tokens, and each would have a kernel of its own


def _rows(x: torch.Tensor, scales: torch.Tensor | None, grouping: Contiguous | None) -> Any:
    """Tokens as the weights with these scales want them."""
    return in_halves(x).contiguous() if scales is None else fp8_rows(x.contiguous(), grouping)


def _columns(x: torch.Tensor) -> torch.Tensor:
    """Transposed, with tokens of zeros up to a multiple that products take as K."""
    missing = -x.shape[0] % TOKENS_STEP
    return transposed(torch.nn.functional.pad(x, (0, 0, 0, missing)) if missing else x)


class DenseProduct(torch.autograd.Function):
    """`x @ weight.T`, `[M, K]` by `[N, K]`; `q` and `s` are the weight, `q_t` and `s_t` its transpose."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        q: torch.Tensor,
        s: torch.Tensor | None,
        q_t: torch.Tensor | None,
        s_t: torch.Tensor | None,
    ) -> torch.Tensor:
        y = x.new_empty((x.shape[0], q.shape[0]))
        gemm(_rows(x, s, None), joined(q, s), y)
        ctx.save_for_backward(x, weight, q_t, s_t)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, q_t, s_t = ctx.saved_tensors
        dy, dx, dw = gradients[0].contiguous(), None, None
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x, memory_format=torch.contiguous_format)
            gemm(_rows(dy, s_t, None), joined(q_t, s_t), dx)
        if ctx.needs_input_grad[1]:
            dw = torch.empty_like(weight, dtype=torch.float32)
            if s_t is None:
                bf16_gemm_nt(_columns(in_halves(dy)), _columns(in_halves(x)), dw, compiled_dims=_OF_WEIGHTS)
            else:
                of_dy, of_x = fp8_rows(_columns(dy)), fp8_rows(_columns(x))
                fp8_gemm_nt(of_dy, of_x, dw, recipe=_ALONG_K, compiled_dims=_OF_WEIGHTS)
            dw = dw.to(weight.dtype)
        return dx, dw, None, None, None, None


class ExpertsProduct(torch.autograd.Function):
    """The same of rows of experts, `[M, K]` by `[G, N, K]`. Rows of padding must be zero, in the gradient too."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        q: torch.Tensor,
        s: torch.Tensor | None,
        q_t: torch.Tensor | None,
        s_t: torch.Tensor | None,
        indices: torch.Tensor,
        ends: torch.Tensor,
    ) -> torch.Tensor:
        y = x.new_empty((x.shape[0], q.shape[1]))
        grouping = Contiguous(indices)
        gemm(_rows(x, s, grouping), joined(q, s), y, grouping=grouping)
        ctx.save_for_backward(x, weight, q_t, s_t, indices, ends)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, q_t, s_t, indices, ends = ctx.saved_tensors
        dy, dx, dw = gradients[0].contiguous(), None, None
        grouping = Contiguous(indices)
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x, memory_format=torch.contiguous_format)
            gemm(_rows(dy, s_t, grouping), joined(q_t, s_t), dx, grouping=grouping)
        if ctx.needs_input_grad[1]:
            dw = torch.empty_like(weight, dtype=torch.float32)
            if s_t is None:
                sizes = _sizes(ends.tolist())  # these products want them on the host
                a, b = in_halves(dy), in_halves(x)
                k_grouped_bf16_gemm_tn_contiguous(a, b, dw, sizes, ends, use_psum_layout=True)
            else:
                of_dy, of_x = fp8_columns(dy), fp8_columns(x)
                k_grouped_fp8_gemm_tn_contiguous(of_dy, of_x, dw, None, ends, use_psum_layout=True)
            dw = dw.to(weight.dtype)
        return dx, dw, None, None, None, None, None, None


def _sizes(ends: list[int]) -> list[int]:
    """Rows of experts that end there, and begin at multiples of the alignment."""
    begins = [0, *(align(end, alignment_now()) for end in ends[:-1])]
    return [end - begin for begin, end in zip(begins, ends, strict=True)]


dense_product: Any = DenseProduct.apply
experts_product: Any = ExpertsProduct.apply
