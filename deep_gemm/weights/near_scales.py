"""Whether the scales of each row are near each other: sums may then count in units of one after the other
(`PackedWeights.near_scales`)."""

from __future__ import annotations

import torch

# What sums of products may lose of FP32's range, and what approximate reciprocals need of it.
_FARTHEST, _SMALLEST = 2.0**24, 2.0**-100


def are_near(scales: torch.Tensor) -> bool:
    """FP32 `[rows, groups]`: those of a row within 2^24 of each other, and of 2^-100 to 2^100; or all 0."""
    sizes = scales.abs()
    smallest, largest = sizes.amin(1), sizes.amax(1)
    near = (smallest >= _SMALLEST) & (largest <= 1 / _SMALLEST) & (largest <= smallest * _FARTHEST)
    return bool((near | (largest == 0)).all())
