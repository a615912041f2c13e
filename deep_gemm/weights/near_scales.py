"""Whether the scales of each row are near each other (`PackedWeights.near_scales`): beside 16 bits, so that sums may
count in units of one after the other; beside FP8 equal, so that sums may be scaled when they are complete."""

from __future__ import annotations

import torch

from ..utils.math import _FP32_MANTISSA_BITS

# What sums of products may lose of FP32's range, and what approximate reciprocals need of it.
_FARTHEST, _SMALLEST = 2.0**24, 2.0**-100


def are_even(scales: torch.Tensor, folded: bool) -> bool:
    """FP32 `[..., groups, rows]` as they are stored: one for all of a row. Of folded ones the exponents that are left
    (exponents.py)."""
    if folded:
        scales = scales.contiguous().view(torch.int32) >> _FP32_MANTISSA_BITS
    return torch.equal(scales, scales[..., :1, :].expand_as(scales))


def are_near(scales: torch.Tensor) -> bool:
    """FP32 `[rows, groups]`: those of a row within 2^24 of each other, and of 2^-100 to 2^100; or all 0."""
    sizes = scales.abs()
    smallest, largest = sizes.amin(1), sizes.amax(1)
    near = (smallest >= _SMALLEST) & (largest <= 1 / _SMALLEST) & (largest <= smallest * _FARTHEST)
    return bool((near | (largest == 0)).all())
