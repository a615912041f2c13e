"""Packed weights without values: for calls that are recorded, and for weights that are read into place later."""

from __future__ import annotations

from typing import Any

from .blank_fields import blank_fields
from .packed import PackedWeights


def blank_weights(
    shape: tuple[int, ...], element: str, activations: str, group_size: int | None, order: str, **more: Any
) -> PackedWeights:
    """`PackedWeights` of memory that nobody has written; see there for what the arguments say."""
    return PackedWeights(**blank_fields(shape, element, activations, group_size, order, **more))
