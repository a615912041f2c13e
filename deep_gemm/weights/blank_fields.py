"""What packed weights without values are made of."""

from __future__ import annotations

from typing import Any

import torch

from .packed_tensors import PLAIN, TENSORS, PackedTensors
from .packings import packing_of


def blank_fields(
    shape: tuple[int, ...],
    element: str,
    activations: str,
    group_size: int | None,
    order: str,
    *,
    second_scales: bool = False,
    gate_up: str | None = None,
    near_scales: bool = False,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Arguments of `PackedWeights`, its tensors in memory that nobody has written."""
    plain: dict[str, Any] = dict(zip(PLAIN, (shape, element, group_size, activations, order), strict=True))
    form: Any = object.__new__(PackedTensors)
    for name, value in {**dict.fromkeys(TENSORS), **plain, "second_scales": second_scales or None}.items():
        object.__setattr__(form, name, value)
    object.__setattr__(form, "gate_up", gate_up)
    wanted = {"codes", "scales"}
    wanted |= {"zeros"} if form.needs_zeros else set()
    wanted |= {"second_scales"} if second_scales else set()
    wanted |= {"sums"} if packing_of(element, activations).integer_activations else set()
    tensors: dict[str, Any] = {
        name: torch.empty(extents, dtype=dtype, device=device) if name in wanted else None
        for name, (dtype, extents) in form.forms().items()
    }
    return {**tensors, **plain, "gate_up": gate_up, "near_scales": near_scales}
