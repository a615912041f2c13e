"""Layers that have a part of K: results of all processes are added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ..weights import PackedWeights
from .numbers import Scaled
from .quant_linear import QuantLinear

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class ReducedLinear(QuantLinear):
    """`QuantLinear` of this process's part of K, of x with that part: y is the sum over the group, and bias once."""

    def __init__(
        self, weights: PackedWeights | Scaled, bias: torch.Tensor | None, rank: int, group: ProcessGroup | None
    ) -> None:
        super().__init__(weights, bias if rank == 0 else None)
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return added_up(self.multiply(x, self.bias), self.group)


def added_up(y: torch.Tensor, group: ProcessGroup | None) -> torch.Tensor:
    """Without a group y stays a part of the sum."""
    if group is not None:
        dist.all_reduce(y, group=group)
    return y
