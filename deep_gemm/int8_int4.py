"""GEMM calls of INT8 activations with int4 weights, which are converted in registers on their way to the tensor cores.

`w` is what `deep_gemm.pack_weights` has made for 'int8' activations. `a` is a tensor without scales where d is int32,
which then holds the sums of codes themselves, for K up to 131,071; else a pair (data, scales); scales are float32:
one for all of it (a Python number or a tensor `[]` or `[1]`), one for each token (`[M]`, `[M, 1]`; masked `[G,
max_m]`), or one for each token and 128 of K (`[M, ceil(K / 128)]`). Zero points may be a third entry, one for all (a
number, or an int32 tensor `[]` or `[1]`) or one for each token, not beside scales for 128 of K: a's values are then
`scale (q - zero)`. They are subtracted through sums of the weights' rows, which packing has stored; sums stay exact up
to K = 65,793 for zero points from -128 to 127. See `deep_gemm.fp8` for what the functions have in common with those of
FP8.
"""

from __future__ import annotations

from ._packed import AcceptedWeights, Tokens
from ._packed_family import Family
from .weights import PackedWeights

__all__ = ["int8_int4_gemm_nt", "m_grouped_int8_int4_gemm_nt_contiguous", "m_grouped_int8_int4_gemm_nt_masked"]

_FAMILY = Family[Tokens, PackedWeights](
    __name__,
    "int8_int4",
    AcceptedWeights("int8", ("int4", "uint4")),
    ("Tokens", "PackedWeights"),
    summary="INT8 activations, int4 weights: "
    "`d[m, n] = c[m, n] + float(sum_k a[m, k] q[n, k]) sfa[m] sfw[n] + bias[n]`.",
    sums="""The sum is an exact integer, of the weights' codes q less their zero points, times integer scales of groups
    where they have two levels of scales, for K up to 131,071; longer K is refused. Where a or w has FP32 scales for
    groups of K, exact sums of groups (of 128 of K at most) are scaled and added up in FP32, for any K.""",
    a="int8 `[M, K]`, K contiguous and a multiple of 16, with scales as the module says.",
    weights="int4",
    w_more=""": groups of any size, one scale a channel
            (group_size None), or two levels of scales""",
    d_more=""" Or d (and c) int32, where
            a is a tensor without scales and w has one scale a channel: the sums of codes themselves, which no scale
            multiplies. bias and epilogue are None then.""",
)
int8_int4_gemm_nt = _FAMILY.dense()
m_grouped_int8_int4_gemm_nt_contiguous = _FAMILY.contiguous()
m_grouped_int8_int4_gemm_nt_masked = _FAMILY.masked()
