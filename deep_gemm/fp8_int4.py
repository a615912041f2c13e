"""GEMM calls of FP8 activations with int4 weights, which are converted in registers on their way to the tensor cores.

`w` is what `deep_gemm.pack_weights` has made for 'fp8' activations. `a` is a pair (data, scales); scales are float32:
one for all of it (a Python number or a tensor `[]` or `[1]`), one for each token (`[M]`, `[M, 1]`; masked `[G,
max_m]`), or one for each token and 128 of K (`[M, ceil(K / 128)]`). See `deep_gemm.fp8` for what the functions have
in common with those of FP8.
"""

from __future__ import annotations

from ._packed import AcceptedWeights, ScaledTokens
from ._packed_family import Family
from .weights import PackedWeights

__all__ = ["fp8_int4_gemm_nt", "m_grouped_fp8_int4_gemm_nt_contiguous", "m_grouped_fp8_int4_gemm_nt_masked"]

_FAMILY = Family[ScaledTokens, PackedWeights](
    __name__,
    "fp8_int4",
    AcceptedWeights("fp8", ("int4", "uint4")),
    ("ScaledTokens", "PackedWeights"),
    summary="FP8 activations, int4 weights: `d[m, n] = c[m, n] + sum_k a[m, k] sfa[m, k] w[n, k] + bias[n]`.",
    sums="""Sums over 128 of K each are scaled and added up in FP32.""",
    a="float8_e4m3fn `[M, K]`, K contiguous and a multiple of 16, with scales as the module says.",
    weights="int4",
    w_more=""", groups of any size, with or without zero points""",
)
fp8_int4_gemm_nt = _FAMILY.dense()
m_grouped_fp8_int4_gemm_nt_contiguous = _FAMILY.contiguous()
m_grouped_fp8_int4_gemm_nt_masked = _FAMILY.masked()
