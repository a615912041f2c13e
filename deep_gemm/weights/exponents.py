"""E2M1 of which the exponents of each 32 of K are multiplied in when it is converted (csrc: Element::e2m1x).

E4M3 has 15 exponents and E2M1 four, so that scales which are powers of two, and within a factor of 2048 of each other
among 128 of K, can go into the converted weights, exactly. What is left is one scale for 128 of K, of which the tensor
cores' sums are multiplied as those of int4 weights are; where scales are as near in all of each row, the same one for
all of K. It is a power of two as well, and the lower half of its mantissa has room for four fields of four bits: for
each 32 of K, where the exponent of E4M3 begins.
"""

from __future__ import annotations

import torch

from ..utils.math import _FP32_MANTISSA_BITS
from .packings import K_BLOCK, SMALLEST_GROUP

FIELD_BITS = 4
FIELDS = K_BLOCK // SMALLEST_GROUP

_MIN_FIELD, _MAX_FIELD = 1, 12  # 0.5 is then 2^-6 or more in E4M3, and 6 at most 384
# Codes become 2^(field - 6) times their value.
_CONVERTED = 6
_MIN_EXPONENT, _ONE, _MAX_EXPONENT = 1, 127, 254  # of normal numbers, as FP32 stores them


def fold(scales: torch.Tensor, is_used: torch.Tensor) -> torch.Tensor | None:
    """Scales with fields, FP32 `[K / 128, rows]`; None where exponents cannot be told so.

    Args:
        scales: FP32 `[K / 32, rows]`.
        is_used: bool, of the same shape: whether the group has a code that is not zero. Scales of others say nothing.
    """
    bits = scales.contiguous().view(torch.int32)
    exponents = bits >> _FP32_MANTISSA_BITS
    is_power = (bits == exponents << _FP32_MANTISSA_BITS) & (exponents >= _MIN_EXPONENT)
    exponents, used = (tensor.unflatten(0, (-1, FIELDS)) for tensor in (exponents, is_used))
    if not bool((is_power | ~is_used).all()):
        return None
    found = _from_least(exponents, used, (0, 1))
    return _from_least(exponents, used, (1,)) if found is None else found


def _from_least(exponents: torch.Tensor, used: torch.Tensor, along: tuple[int, ...]) -> torch.Tensor | None:
    """Of exponents `[K / 128, 4, rows]`, with the least along these as the common one."""
    least = exponents.masked_fill(~used, _MAX_EXPONENT).amin(along, keepdim=True)
    fields = torch.where(used, exponents - least + _MIN_FIELD, _MIN_FIELD)
    common = torch.where(used.any(1, keepdim=True).any(along, keepdim=True), least - _MIN_FIELD + _CONVERTED, _ONE)
    if not bool((fields <= _MAX_FIELD).all() & (common >= _MIN_EXPONENT).all() & (common <= _MAX_EXPONENT).all()):
        return None
    shifts = torch.arange(FIELDS, dtype=torch.int32, device=exponents.device) * FIELD_BITS
    packed = (fields << shifts[:, None]).sum(1, dtype=torch.int32)
    return (common.squeeze(1) << _FP32_MANTISSA_BITS | packed).view(torch.float32)


def unfold(scales: torch.Tensor) -> torch.Tensor:
    """FP32 `[K / 128, rows]` with fields -> FP32 `[K / 32, rows]`, of each group of 32."""
    bits = scales.contiguous().view(torch.int32)
    common = (bits >> _FP32_MANTISSA_BITS << _FP32_MANTISSA_BITS).view(torch.float32)
    shifts = torch.arange(FIELDS, dtype=torch.int32, device=scales.device) * FIELD_BITS
    fields = bits[:, None] >> shifts[:, None] & ((1 << FIELD_BITS) - 1)
    factors = (fields - _CONVERTED + _ONE << _FP32_MANTISSA_BITS).view(torch.float32)
    return (common[:, None] * factors).flatten(0, 1)
