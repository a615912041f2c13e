"""Whether the scales of each row are near each other: sums may then count in units of one after the other
(`PackedWeights.near_scales`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..utils.math import ceil_div

if TYPE_CHECKING:
    from .packed_tensors import PackedTensors

# What sums of products may lose of FP32's range, and what approximate reciprocals need of it.
_FARTHEST, _SMALLEST = 2.0**24, 2.0**-100


def are_near(scales: torch.Tensor) -> bool:
    """FP32 `[rows, groups]`: those of a row within 2^24 of each other, and of 2^-100 to 2^100; or all 0."""
    sizes = scales.abs()
    smallest, largest = sizes.amin(1), sizes.amax(1)
    near = (smallest >= _SMALLEST) & (largest <= 1 / _SMALLEST) & (largest <= smallest * _FARTHEST)
    return bool((near | (largest == 0)).all())


def require_near(w: PackedTensors) -> None:
    """Raises where weights that were read from somewhere say so of scales that are not."""
    if not w.near_scales or w.scales.is_meta:
        return
    groups = 0 if w.scale_group is None else ceil_div(w.shape[-1], w.scale_group)  # behind them is no K
    if (
        w.second_scales is not None
        or groups == 0
        or not all(are_near(of_expert[:groups].T / w.scale_factor) for of_expert in w.scales)
    ):
        raise ValueError(
            "the scales of each row must be within 2^24 of each other where metadata say near_scales: the tensors are "
            "of other weights than the metadata"
        )
