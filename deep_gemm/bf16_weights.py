"""GEMM calls of BF16 or FP16 activations with weights of few bits, converted in registers on their way to the tensor
cores.

`w` is what `deep_gemm.pack_weights` has made for 'bf16' activations, which serves both. `a` is a tensor without scales.
See `deep_gemm.fp8` for what the functions have in common with those of FP8.
"""

from __future__ import annotations

import torch

from ._packed import AcceptedWeights, UnpackedFp8
from ._packed_family import Family
from .fp8 import Scaled
from .weights import PackedWeights

__all__ = [
    "bf16_fp4_gemm_nt",
    "bf16_fp8_gemm_nt",
    "bf16_int4_gemm_nt",
    "bf16_int8_gemm_nt",
    "m_grouped_bf16_fp4_gemm_nt_contiguous",
    "m_grouped_bf16_fp4_gemm_nt_masked",
    "m_grouped_bf16_fp8_gemm_nt_contiguous",
    "m_grouped_bf16_fp8_gemm_nt_masked",
    "m_grouped_bf16_int4_gemm_nt_contiguous",
    "m_grouped_bf16_int4_gemm_nt_masked",
    "m_grouped_bf16_int8_gemm_nt_contiguous",
    "m_grouped_bf16_int8_gemm_nt_masked",
]

_A = "bfloat16 or float16 `[M, K]`, K contiguous. Rows that do not start at multiples of 16 bytes are copied first."
_GROUPS = """Values{} are exact in the tensor cores, which add up in FP32; the sums of each group of K, of up to
    128, are scaled in FP32."""
_FORMULA = "`d[m, n] = c[m, n] + sum_k a[m, k] w[n, k] + bias[n]`."
_ZERO_POINTS = ", groups of any size, with zero points or without"

_INT4 = Family[torch.Tensor, PackedWeights](
    __name__,
    "bf16_int4",
    AcceptedWeights("bf16", ("int4", "uint4")),
    ("torch.Tensor", "PackedWeights"),
    summary=f"BF16 or FP16 activations, int4 weights: {_FORMULA}",
    sums=_GROUPS.format(""),
    a=_A,
    weights="int4",
    w_more=_ZERO_POINTS,
)
bf16_int4_gemm_nt = _INT4.dense()
m_grouped_bf16_int4_gemm_nt_contiguous = _INT4.contiguous()
m_grouped_bf16_int4_gemm_nt_masked = _INT4.masked()

_INT8 = Family[torch.Tensor, PackedWeights](
    __name__,
    "bf16_int8",
    AcceptedWeights("bf16", ("int8", "uint8")),
    ("torch.Tensor", "PackedWeights"),
    summary=f"BF16 or FP16 activations, weights of 8 bits (W8A16): {_FORMULA}",
    sums=_GROUPS.format(", less their zero points,"),
    a=_A,
    weights="int8 or uint8",
    w_more=_ZERO_POINTS,
)
bf16_int8_gemm_nt = _INT8.dense()
m_grouped_bf16_int8_gemm_nt_contiguous = _INT8.contiguous()
m_grouped_bf16_int8_gemm_nt_masked = _INT8.masked()

_FP4 = Family[torch.Tensor, PackedWeights](
    __name__,
    "bf16_fp4",
    AcceptedWeights("bf16", ("e2m1",)),
    ("torch.Tensor", "PackedWeights"),
    summary=f"BF16 or FP16 activations, MXFP4 or NVFP4 weights: {_FORMULA}",
    sums="""Scales of groups of 16 or 32 are multiplied into the weights, exactly, on their way to the tensor cores, and
    NVFP4's global scale to complete sums. Other scales (packing says which) are applied to the sums of each group in
    FP32.""",
    a=_A,
    weights="e2m1",
)
bf16_fp4_gemm_nt = _FP4.dense()
m_grouped_bf16_fp4_gemm_nt_contiguous = _FP4.contiguous()
m_grouped_bf16_fp4_gemm_nt_masked = _FP4.masked()

_FP8 = Family[torch.Tensor, Scaled | PackedWeights](
    __name__,
    "bf16_fp8",
    AcceptedWeights("bf16", ("e4m3",)),
    ("torch.Tensor", "Scaled | PackedWeights"),
    summary=f"BF16 or FP16 activations, E4M3 weights: {_FORMULA}",
    sums=_GROUPS.format(""),
    a=_A,
    weights="e4m3",
    w_more=""", groups of any size; or a pair, (float8_e4m3fn `[N, K]`, K
            contiguous, with scales of 128x128 blocks, float32 or float8_e8m0fnu in any strides, or int32 words of four
            exponents each per row), which each call packs into a workspace: right, NaN included, but it takes longer
            than reading it""",
    pair="; or a pair",
    read=lambda w: w if isinstance(w, PackedWeights) else UnpackedFp8(*w),
)
bf16_fp8_gemm_nt = _FP8.dense()
m_grouped_bf16_fp8_gemm_nt_contiguous = _FP8.contiguous()
m_grouped_bf16_fp8_gemm_nt_masked = _FP8.masked()
