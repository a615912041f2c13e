"""Weights of 4 bits: quantising them, and packing them two to a byte.

All steps are in FP32, each of them rounded once; `round` is to the nearest integer, halves to the even one. Weights
must be finite, or a ValueError is raised, as where another argument cannot be right. A scale is that of a group along
K, and magnitudes below 1e-4 count as 1e-4 in it, so that groups of zeros give zeros.
"""

from __future__ import annotations

import torch

from .._numbers import integer
from .math import _E2M1_MAX, _FP32_MANTISSA_BITS, _SMALLEST_AMAX, _e2m1_codes, _require_float, _scales

INT4_MIN, INT4_MAX = -8, 7
_UINT4_MAX = 15
_MXFP4_GROUP = 32


def quantize_to_int4(w: torch.Tensor, group_size: int | None, symmetric: bool = True) -> tuple[torch.Tensor, ...]:
    """Weights `[..., N, K]` -> int8 values of that shape and FP32 scales `[..., N, K / group_size]`.

    With `symmetric`, for 'int4' of `pack_weights`: `scale = max(|w|) / 7` and `q = round(w / scale)`, within -7..7:
    never -8, which kernels for FP8 activations convert more slowly. `scale * q` is close to w.

    Else, for 'uint4', with a third tensor, int32 zeros shaped as the scales: the range of a group, which always has 0
    in it, is spread over 0..15. `low = min(w, 0)`, `high = max(w, 0)`, `scale = (high - low) / 15`,
    `zero = -round(low / scale)` and `q = round(w / scale) + zero` within 0..15: `scale * (q - zero)` is close to w.

    With `group_size` None all of K shares a scale, and the scales are `[..., N]`.
    """
    groups = _groups(w, group_size)
    if symmetric:
        scales = _scales(groups, (-1,), INT4_MAX, use_ue8m0=False)
        values = torch.round(groups / scales).to(torch.int8)
        return values.view(w.shape), _of_groups(scales, group_size)
    low, high = groups.amin(-1, keepdim=True).clamp(max=0), groups.amax(-1, keepdim=True).clamp(min=0)
    # A tensor divisor: see _scales.
    scales = (high - low).clamp(min=_SMALLEST_AMAX) / torch.full((), float(_UINT4_MAX), device=w.device)
    zeros = -torch.round(low / scales)
    values = (torch.round(groups / scales) + zeros).clamp(0, _UINT4_MAX)
    zeros = _of_groups(zeros, group_size).to(torch.int32)
    return values.to(torch.int8).view(w.shape), _of_groups(scales, group_size), zeros


def quantize_to_mxfp4(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights `[..., N, K]` -> E2M1 codes 0..15, uint8 of that shape, and UE8M0 exponents, uint8 `[..., N, K / 32]`.

    The scale of 32 weights is `max(|w|) / 6`, rounded up to a power of two `2^(exponent - 127)`: no weight is cut off.
    The code is that of the E2M1 value nearest to `w / scale`, of two equally near ones the even code; -0 is no result.
    (`per_token_cast_to_fp4` with UE8M0 scales for 32 of K gives the same.)
    """
    groups = _groups(w, _MXFP4_GROUP)
    scales = _scales(groups, (-1,), _E2M1_MAX, use_ue8m0=True)
    codes = _e2m1_codes(groups / scales).view(w.shape)
    return codes, (scales.squeeze(-1).view(torch.int32) >> _FP32_MANTISSA_BITS).to(torch.uint8)


def pack_int4(values: torch.Tensor) -> torch.Tensor:
    """values, int8 `[..., K]` of -8..7, K even -> int8 `[..., K / 2]`: two a byte, the first one in the low nibble."""
    if values.dtype != torch.int8:
        raise TypeError(f"values must be torch.int8, got {values.dtype}")
    if values.dim() == 0 or values.shape[-1] % 2 != 0:
        raise ValueError(
            f"values must have an even last dimension, two to a byte, but their shape is {[*values.shape]}"
        )
    if values.numel() and bool(((values < INT4_MIN) | (values > INT4_MAX)).any()):
        raise ValueError(f"values must lie within {INT4_MIN}..{INT4_MAX}")
    return (values[..., 0::2] & 15 | values[..., 1::2] << 4).contiguous()


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """The inverse of `pack_int4`: packed, int8 (or uint8) `[..., K / 2]` -> int8 `[..., K]` of -8..7."""
    if packed.dtype not in (torch.int8, torch.uint8):
        raise TypeError(f"packed must be torch.int8 or torch.uint8, got {packed.dtype}")
    if packed.dim() == 0:
        raise ValueError("packed must have a dimension along which values are packed, got a scalar")
    pairs = packed.contiguous().view(torch.int8)
    return torch.stack((pairs << 4, pairs), dim=-1).flatten(-2) >> 4


def _groups(w: torch.Tensor, group_size: int | None) -> torch.Tensor:
    """FP32 `[..., N, groups, group_size]`."""
    _require_float(w)
    if w.dim() < 2 or w.numel() == 0:
        raise ValueError(f"w must be [..., N, K], none of them 0, got shape {[*w.shape]}")
    k = w.shape[-1]
    size = k if group_size is None else integer("group_size", group_size, smallest=1)
    if k % size != 0:
        raise ValueError(f"K must be a multiple of the group of {size}, got {k}")
    values = w.float()
    if not bool(values.isfinite().all()):
        raise ValueError("w must be finite, but holds infinities or NaN")
    return values.reshape(*w.shape[:-1], k // size, size)


def _of_groups(tensor: torch.Tensor, group_size: int | None) -> torch.Tensor:
    """`[..., N, groups, 1]` as it is returned."""
    tensor = tensor.squeeze(-1)
    return tensor.squeeze(-1) if group_size is None else tensor
