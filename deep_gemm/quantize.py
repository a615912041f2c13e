"""Quantise kernels: from BF16, FP16 or FP32 to codes and scales as products take them, in one pass.

    q, s = deep_gemm.quantize.fp8(x)
    deep_gemm.fp8_gemm_nt((q, s), (w, w_scales), d)

`x` is `[.., M, K]`, K contiguous, rows anywhere: fastest where they begin at multiples of 16 bytes, and K is a multiple
of 8. A last group that K does not fill is short. Results are those of `deep_gemm.utils`, bit for bit: each step is
FP32's, rounded once. Where a value is not finite, its group's codes are zeros and NaN (or with scales that are powers
of two the largest code for infinities), as there.

Common arguments:

- `out`: None, or `(q, s)` to write into, of the shapes and dtypes that come without; q with K contiguous, both with any
  strides beside, and in memory of their own.
- `grouping`: None, or which rows exist: `Contiguous(layout)` (an expert for each row, below 0 none),
  `Contiguous(layout, psum=True)` (where experts' rows end), both of x `[M, K]`, or `Masked(counts, expected_m)` of x
  `[G, max_m, K]`. Others are neither read nor written, and of the tensors only the device knows, so a call can be
  captured in a CUDA graph.

Raises ValueError or TypeError where an argument cannot be right.
"""

from __future__ import annotations

import torch

from . import utils  # noqa: F401  first, since what it and the operators import of each other wants that
from ._quantize import FP8, NO_GATE, Gate, Grouping, Out, plan_of, quantized

__all__ = ["fp8", "geglu_fp8", "swiglu_fp8"]

Scaled = tuple[torch.Tensor, torch.Tensor]


def fp8(
    x: torch.Tensor,
    *,
    group: int | None = 128,
    scales: str = "fp32",
    out: Out = None,
    grouping: Grouping = None,
) -> Scaled:
    """`[.., M, K]` -> E4M3 `[.., M, K]` and scales of each row and `group` of K, `[.., M, ceil(K / group)]`.

    A scale is the group's largest magnitude over 448, magnitudes below 1e-4 taken as 1e-4, and a code the nearest to
    `x / scale`, of two equally near ones the even: `per_token_cast_to_fp8`.

    Args:
        x: bfloat16, float16 or float32.
        group: 128 or 32.
        scales: 'fp32'; 'ue8m0', FP32 rounded up to powers of two; or 'packed', these as int32, four exponents along K a
            word, `[.., M, ceil(ceil(K / group) / 4)]`. All MN-major, with M padded to 16 bytes.
        out, grouping: see above.
    """
    return quantized(x, FP8, plan_of(FP8, group, scales, NO_GATE), out, grouping)


def swiglu_fp8(
    gate_up: torch.Tensor,
    *,
    limit: float | None = None,
    alpha: float = 1.0,
    up_shift: float = 0.0,
    layout: str = "halves",
    row_scale: torch.Tensor | None = None,
    group: int | None = 128,
    scales: str = "fp32",
    out: Out = None,
    grouping: Grouping = None,
) -> Scaled:
    """`fp8` of `gate * sigmoid(alpha * gate) * (up + up_shift)`, computed in FP32: `[.., M, 2 K]` -> `[.., M, K]`.

    Args:
        gate_up: bfloat16, float16 or float32.
        limit: gates above it become it, and ups become at most this far from zero, before all else.
        layout: 'halves', gates in columns 0 .. K - 1 and ups behind them; or 'interleaved', gate, up, gate, up.
        row_scale: None, or float32 `[.., M]`: each row of the result times its number, before it is quantised.
        group, scales, out, grouping: see `fp8`.
    """
    gate = Gate("swiglu", layout, limit, alpha, up_shift)
    return quantized(gate_up, FP8, plan_of(FP8, group, scales, gate), out, grouping, row_scale)


def geglu_fp8(
    gate_up: torch.Tensor,
    *,
    layout: str = "halves",
    row_scale: torch.Tensor | None = None,
    group: int | None = 128,
    scales: str = "fp32",
    out: Out = None,
    grouping: Grouping = None,
) -> Scaled:
    """`fp8` of `gelu(gate) * up`, GELU by the tanh approximation. Otherwise as `swiglu_fp8`."""
    gate = Gate("geglu", layout)
    return quantized(gate_up, FP8, plan_of(FP8, group, scales, gate), out, grouping, row_scale)
