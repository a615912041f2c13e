"""GEMM calls of 8-bit integers.

`D = C + A @ B + bias`: products are added up exactly, in 32-bit integers, by the tensor cores, and scaled in FP32 when
the sum is complete. So a result does not depend on how the sum is cut up, and one scale for a row of A and one for a
row of B cost nothing on the way. See `deep_gemm.gemm` for what the functions have in common with those of FP8.
"""

from __future__ import annotations

import struct
from typing import Any

import torch

from ._extension import C
from ._product import product
from .gemm import _NT, Recipe, _write_empty_product

__all__ = ["int8_gemm_nt"]

Quantised = torch.Tensor | tuple[torch.Tensor, torch.Tensor | float]

_int8_gemm = C.int8_gemm

# Of any values the sum over so much of K is within s32; in whole K blocks of the kernels.
_EXACT_K = (2**31 - 1) // 128**2 // 128 * 128


@product()
def int8_gemm_nt(
    a: Quantised,
    b: Quantised,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """Dense INT8 GEMM: `d[m, n] = c[m, n] + float(sum_k a[m, k] b[n, k]) sfa[m] sfb[n] + bias[n]`.

    The sum is an exact integer. It is rounded to FP32, multiplied by a's scale, then by b's; bias and c are added, in
    this order. Each of these steps rounds to FP32, and d is the result, rounded once more where it has 16 bits. Where K
    is more than 131071, sums over 130944 of K each are exact; they are scaled, and added in FP32 in the order of K
    (through a workspace of D's shape, unless d is float32).

    Args:
        a: int8 `[M, K]` with float32 scales: one for all (a Python number, or a tensor `[]` or `[1]`), or one for each
            token, `[M]` or `[M, 1]` in any stride. K contiguous, rows at multiples of 16 bytes (fastest: of 128): read
            in place; other rows, of which K must be a multiple of 16, are copied into a workspace first. M contiguous,
            any alignment: transposed into a workspace, because Hopper's tensor cores read integers along K only.
        b: int8 `[N, K]`, likewise, with one scale for all or one for each channel, `[N]` or `[N, 1]`.
        d: bfloat16, float16 or float32 `[M, N]`, N contiguous, any row stride. Written. Or int32, if a and b are plain
            tensors without scales: then it is the sum itself, to which c is added. Such a sum wraps around where it
            leaves s32, which none does up to K = 131071.
        c: added; `d`'s shape and dtype, and may be `d` itself. (FP32 in place is added by the L2, which flushes
            subnormal numbers to zero.)
        recipe: None. Scales of groups along K and of blocks are not served yet.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[N]`, added in FP32. None where d is int32.

    Asymmetric activations, a triple with zero points, are not served yet either, and refused.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    if recipe is not None:
        raise ValueError(
            f"recipe must be None, but is {recipe}: int8_gemm_nt takes one scale for a tensor or one for each of its "
            "rows, none of groups along K or of blocks as yet"
        )
    a_data, a_scales, a_scale = _parts("a", a)
    b_data, b_scales, b_scale = _parts("b", b)
    if not _int8_gemm(a_data, a_scales, b_data, b_scales, d, c, bias, _NT[compiled_dims], a_scale, b_scale):
        _finish(a, b, d, c, compiled_dims, bias)


def _parts(name: str, operand: Any) -> tuple[torch.Tensor, torch.Tensor | None, int | None]:
    """An operand's data; its scales, if they are a tensor; or the bits of its scale, if it is a number."""
    if isinstance(operand, torch.Tensor):
        return operand, None, None
    if len(operand) == 3:
        raise ValueError(f"{name} has zeros as its third entry: int8_gemm_nt takes symmetric (tensor, scales) as yet")
    data, scales = operand
    if isinstance(scales, (float, int)):
        return data, None, _fp32_bits(name, scales)
    if scales.ndim == 0 and scales.device != data.device and scales.device.type == "cpu":
        return data, None, _fp32_bits(name, scales.item())  # as torch's own operators mix them
    return data, scales, None


def _fp32_bits(name: str, number: float) -> int:
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", number))[0]
    except OverflowError:
        raise ValueError(f"{name}'s scale must be a number that FP32 can hold, but is {number}") from None
    return bits


def _finish(a: Any, b: Any, d: torch.Tensor, c: torch.Tensor | None, compiled_dims: str, bias: Any) -> None:
    """What no kernel does: a K of nothing, or one that is too long for exact sums."""
    data_a, data_b = (x if isinstance(x, torch.Tensor) else x[0] for x in (a, b))
    k = data_a.shape[1]
    if k == 0 and bias is None:
        _write_empty_product(d, c)
    elif k == 0:
        d.copy_(bias.float() if c is None else bias.float() + c)
    else:
        total = d if d.dtype == torch.float32 else torch.empty(d.shape, dtype=torch.float32, device=d.device)
        added = c if c is None else c.float()
        for first in range(0, k, _EXACT_K):
            part = slice(first, first + _EXACT_K)
            part_a, part_b = (data_a[:, part], a[1]), (data_b[:, part], b[1])
            int8_gemm_nt(part_a, part_b, total, added, compiled_dims=compiled_dims, bias=bias)
            added, bias = total, None
        if total is not d:
            d.copy_(total)
