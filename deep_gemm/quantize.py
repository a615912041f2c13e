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

import functools

import torch
from torch.compiler import is_dynamo_compiling

from . import utils  # noqa: F401  first, since what it and the operators import of each other wants that
from ._gates import Gate, Gated, SwiGLU
from ._numbers import fp32_bits
from ._quantize import BLOCK, FP8, FP8_BLOCKS, INT8, MXFP4, NVFP4, Grouping, Out, plan_of, quantized

__all__ = ["fp8", "fp8_blocks", "gated_fp8", "gated_int8", "int8", "mxfp4", "nvfp4", "swiglu_fp8", "swiglu_int8"]

Scaled = tuple[torch.Tensor, torch.Tensor]
Results = tuple[torch.Tensor, ...]


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
        group: 128, 32, or None, a scale for each row: `[.., M]`.
        scales: 'fp32'; 'ue8m0', FP32 rounded up to powers of two; or 'packed', these as int32, four exponents along K a
            word, `[.., M, ceil(ceil(K / group) / 4)]`. All MN-major, with M padded to 16 bytes.
        out, grouping: see above.
    """
    q, s = quantized(x, plan_of(FP8, group, scales), out, grouping)
    return q, s


def fp8_blocks(w: torch.Tensor, *, scales: str = "fp32", out: Out = None) -> Scaled:
    """Weights w `[.., N, K]` -> E4M3 and a scale for each 128 x 128, `[.., ceil(N / 128), ceil(K / 128)]`, contiguous.

    As `per_block_cast_to_fp8`. `scales`: 'fp32', or 'ue8m0', FP32 rounded up to powers of two. `out`: see above.
    """
    q, s = quantized(w, plan_of(FP8_BLOCKS, BLOCK, scales), out)
    return q, s


def int8(
    x: torch.Tensor,
    *,
    group: int | None = None,
    symmetric: bool = True,
    sums: bool = False,
    out: Out = None,
    grouping: Grouping = None,
) -> Results:
    """`[.., M, K]` -> INT8 `[.., M, K]`, FP32 scales, with `symmetric=False` zero points, and with `sums` their sums.

    As `per_token_cast_to_int8`: scales `[.., M]`, zero points int32 `[.., M]`. Rows must be finite.

    Args:
        x: bfloat16, float16 or float32.
        group: None, a scale for each row; or 128, for each row and 128 of K, `[.., M, ceil(K / 128)]` MN-major: the
            largest magnitude over 127.
        symmetric: whether values are `scale * q`, q within -127 .. 127; else `scale * (q - zero)`, within -128 .. 127.
        sums: also return the sums of each row's codes, int32 `[.., M]`, as `int8_row_sums` makes them of weights.
        out: results in this order.
        grouping: see above.
    """
    return quantized(x, plan_of(INT8, group, zeros=not symmetric, sums=sums), out, grouping)


def mxfp4(x: torch.Tensor, *, scales: str = "packed", out: Out = None, grouping: Grouping = None) -> Scaled:
    """`[.., M, K]`, K even -> two E2M1 codes a byte, int8 `[.., M, K / 2]`, and a power of two for each 32 of K.

    As `per_token_cast_to_fp4(x, True, 32)`: the scale is the largest magnitude over 6, rounded up; of two equally near
    numbers the code is the even one, and -0 is no result. `scales`: 'packed' or 'ue8m0', laid out as those of `fp8`.
    `out, grouping`: see above.
    """
    q, s = quantized(x, plan_of(MXFP4, 32, scales), out, grouping)
    return q, s


def nvfp4(
    x: torch.Tensor,
    *,
    global_scale: torch.Tensor | float | None = None,
    out: Out = None,
    grouping: Grouping = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`[.., M, K]`, K even -> E2M1 codes, E4M3 scales `[.., M, ceil(K / 16)]`, contiguous, and the scale of all, FP32.

    As `per_token_cast_to_nvfp4`. `global_scale` is the scale of all: a float32 tensor of one number, which the kernel
    reads, or a number. None: the largest magnitude of all of x over 2688, in another pass, of rows that do not exist
    too. `out, grouping`: see above.
    """
    whole = _global_scale(x, global_scale)
    q, s = quantized(x, plan_of(NVFP4, 16, "e4m3"), out, grouping, whole=whole)
    return q, s, whole


def _global_scale(x: torch.Tensor, given: torch.Tensor | float | None) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return given
    if given is not None:
        fp32_bits("global_scale", given)
        return torch.full((), given, dtype=torch.float32, device=x.device)
    amax = x.abs().amax().float() if x.numel() else torch.zeros((), device=x.device)
    # A tensor divisor: on a GPU torch multiplies by the reciprocal of a number.
    return amax.clamp(min=1e-4) / torch.full((), 2688.0, device=x.device)


def gated_fp8(
    gate_up: torch.Tensor,
    gate: Gated,
    *,
    row_scale: torch.Tensor | None = None,
    group: int | None = 128,
    scales: str = "fp32",
    out: Out = None,
    grouping: Grouping = None,
) -> Scaled:
    """`fp8` of what a gated activation makes, computed in FP32: `[.., M, 2 K]` -> `[.., M, K]`.

    Args:
        gate_up: bfloat16, float16 or float32.
        gate: a gated activation of `deep_gemm.epilogue`, as `SwiGLU()`. Its layout, 'halves' or 'interleaved', is that
            of gate_up's columns.
        row_scale: None, or float32 `[.., M]`: each row of the result times its number, before it is quantised.
        group, scales, out, grouping: see `fp8`.
    """
    plan = plan_of(FP8, group, scales, _record_of(gate))
    q, s = quantized(gate_up, plan, out, grouping, row_scale)
    return q, s


def gated_int8(
    gate_up: torch.Tensor,
    gate: Gated,
    *,
    row_scale: torch.Tensor | None = None,
    group: int | None = None,
    symmetric: bool = True,
    sums: bool = False,
    out: Out = None,
    grouping: Grouping = None,
) -> Results:
    """`int8` of what `gated_fp8` quantises: their arguments are those of the two."""
    plan = plan_of(INT8, group, gate=_record_of(gate), zeros=not symmetric, sums=sums)
    return quantized(gate_up, plan, out, grouping, row_scale)


def _record_of(gate: Gated) -> Gate:
    if not isinstance(gate, Gated):
        raise TypeError(f"gate must be a gated activation of deep_gemm.epilogue, got {gate!r}")
    return gate.record


_known_swiglu = functools.lru_cache(maxsize=64, typed=True)(SwiGLU)


def _swiglu(limit: float | None, alpha: float, up_shift: float, layout: str) -> SwiGLU:
    make = SwiGLU if is_dynamo_compiling() else _known_swiglu  # dynamo warns of caches
    return make(limit, alpha, up_shift, layout)


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
    """`gated_fp8(gate_up, SwiGLU(limit, alpha, up_shift, layout), row_scale=, group=, scales=, out=, grouping=)`."""
    gate = _swiglu(limit, alpha, up_shift, layout)
    return gated_fp8(gate_up, gate, row_scale=row_scale, group=group, scales=scales, out=out, grouping=grouping)


def swiglu_int8(
    gate_up: torch.Tensor,
    *,
    limit: float | None = None,
    alpha: float = 1.0,
    up_shift: float = 0.0,
    layout: str = "halves",
    row_scale: torch.Tensor | None = None,
    group: int | None = None,
    symmetric: bool = True,
    sums: bool = False,
    out: Out = None,
    grouping: Grouping = None,
) -> Results:
    """`gated_int8(gate_up, SwiGLU(limit, alpha, up_shift, layout), row_scale=, group=, symmetric=, sums=, ...)`.

    `out` and `grouping` are as there, too.
    """
    gate = _swiglu(limit, alpha, up_shift, layout)
    return gated_int8(
        gate_up,
        gate,
        row_scale=row_scale,
        group=group,
        symmetric=symmetric,
        sums=sums,
        out=out,
        grouping=grouping,
    )
