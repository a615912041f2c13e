"""GEMM calls of int4 activations with int4 weights.

The tensor cores of sm_80 to sm_89 multiply integers of four bits, and do so where channels and tokens have one scale
and weights no zero points: a kernel of its own brings activations into the order of packed weights in each call, in a
workspace. Others (Hopper's, and those of sm_120, which emulate it), and other scales, have activations unpacked to INT8
instead, and they are multiplied as `int8_int4_gemm_nt` does. Results are the same to the bit.

`w` is what `deep_gemm.pack_weights` has made for 'int4' activations. `a` is a pair (data, scales), or a triple with
zero points, in the forms that `deep_gemm.int8_int4` names, or a tensor without scales where d is int32; data are two
integers of -8 to 7 a byte, the first in the low nibble (`deep_gemm.utils.pack_int4`). See `deep_gemm.fp8` for what the
functions have in common with those of FP8.
"""

from __future__ import annotations

import torch

from ._output import Output
from ._packed import AcceptedWeights, Tokens, run, run_contiguous, run_masked, with_epilogue
from ._product import product
from .epilogue import Epilogue
from .weights import PackedWeights

__all__ = ["int4_gemm_nt", "m_grouped_int4_gemm_nt_contiguous", "m_grouped_int4_gemm_nt_masked"]

_TAKES = AcceptedWeights("int4", ("int4", "uint4"))


@product()
def int4_gemm_nt(
    a: Tokens,
    w: PackedWeights,
    d: Output,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """int4 activations, int4 weights: `d[m, n] = c[m, n] + float(sum_k a[m, k] q[n, k]) sfa[m] sfw[n] + bias[n]`.

    The sum is an exact integer, of the weights' codes q less their zero points, for K up to 131,071; longer K is
    refused. Where a or w has scales for groups of K, exact sums of groups (of 128 of K at most) are scaled and added up
    in FP32, for any K.

    Args:
        a: int8 `[M, K / 2]`, K contiguous, rows in any stride, with scales as the module says.
        w: int4 `[N, K]`, packed for 'int4' activations, groups of any size, or one scale a channel (group_size None).
        d, c, compiled_dims, bias, epilogue: as for `fp8_int4_gemm_nt`. Or d (and c) int32, where a is a tensor without
            scales and w has one scale a channel: the sums of codes themselves, which no scale multiplies. bias and
            epilogue are None then.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    run(a, w, d, c, bias, compiled_dims, _TAKES, with_epilogue(epilogue))


@product()
def m_grouped_int4_gemm_nt_contiguous(
    a: Tokens,
    w: PackedWeights,
    d: Output,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`int4_gemm_nt` of experts whose rows follow each other: `d[rows of g] = a[rows of g] @ w[g].T`.

    Args:
        a: int8 `[M, K / 2]` with scales as the module says; rows of padding may hold anything.
        w: int4 `[G, N, K]`, packed for 'int4' activations.
        d, grouped_layout, compiled_dims, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout, bias,
            epilogue: as for `m_grouped_fp8_int4_gemm_nt_contiguous`.

    Raises:
        as `int4_gemm_nt`.
    """
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    run_contiguous(a, w, d, grouped_layout, compiled_dims, rows, _TAKES, bias, with_epilogue(epilogue))


@product()
def m_grouped_int4_gemm_nt_masked(
    a: Tokens,
    w: PackedWeights,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`int4_gemm_nt` of experts with matrices of their own: `d[g] = a[g] @ w[g].T` for its first masked_m[g] rows.

    Args:
        a: int8 `[G, max_m, K / 2]` with scales as the module says; other rows may hold anything.
        w: int4 `[G, N, K]`, packed for 'int4' activations.
        d, masked_m, expected_m, compiled_dims, bias, epilogue: as for `m_grouped_fp8_int4_gemm_nt_masked`.

    Raises:
        as `int4_gemm_nt`.
    """
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES, bias, with_epilogue(epilogue))
