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

from ._packed import AcceptedWeights, Tokens
from ._packed_family import Family
from .weights import PackedWeights

__all__ = ["int4_gemm_nt", "m_grouped_int4_gemm_nt_contiguous", "m_grouped_int4_gemm_nt_masked"]

_FAMILY = Family[Tokens, PackedWeights](
    __name__,
    "int4",
    AcceptedWeights("int4", ("int4", "uint4")),
    ("Tokens", "PackedWeights"),
    summary="int4 activations, int4 weights: "
    "`d[m, n] = c[m, n] + float(sum_k a[m, k] q[n, k]) sfa[m] sfw[n] + bias[n]`.",
    sums="""The sum is an exact integer, of the weights' codes q less their zero points, for K up to 131,071; longer K
    is refused. Where a or w has scales for groups of K, exact sums of groups (of 128 of K at most) are scaled and added
    up in FP32, for any K.""",
    a="int8 `[M, K / 2]`, K contiguous, rows in any stride, with scales as the module says.",
    weights="int4",
    w_more=""", groups of any size, or one scale a channel
            (group_size None)""",
    d_more=""" Or d (and c) int32, where
            a is a tensor without scales and w has one scale a channel: the sums of codes themselves, which no scale
            multiplies. bias and epilogue are None then.""",
)
int4_gemm_nt = _FAMILY.dense()
m_grouped_int4_gemm_nt_contiguous = _FAMILY.contiguous()
m_grouped_int4_gemm_nt_masked = _FAMILY.masked()
