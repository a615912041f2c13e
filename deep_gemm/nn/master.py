"""`MasterWeights`: a parameter in FP32 or BF16, and what products multiply in its place, made once a step."""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

from .numbers import PRECISIONS, operands_of

FEATURES_STEP = 16  # of K, in both directions
_steps = 0


def _count_step(*_: object) -> None:
    global _steps
    _steps += 1


# Of every optimiser: some write parameters past their version counters.
register_optimizer_step_post_hook(_count_step)


class Kept:
    """Operands of a parameter, as long as it has not been written."""

    def __init__(self) -> None:
        self.key: tuple[object, ...] | None = None
        self.operands: tuple[Any, ...] = ()

    def __deepcopy__(self, _memo: object) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()

    def of(self, weight: torch.Tensor, precision: str, both_ways: bool) -> tuple[Any, ...]:
        key = (_steps, weight._version, weight.data_ptr(), weight.device, weight.dtype, precision)
        if key != self.key or (both_ways and self.operands[2] is None):
            with torch.no_grad():
                self.operands, self.key = operands_of(weight.detach(), precision, both_ways), key
        return self.operands


class MasterWeights(torch.nn.Module):
    """A parameter `weight`, `[N, K]` or `[G, N, K]`, multiplied in FP8 or BF16.

    It is quantised again when it was written: by an optimiser's step, by loading a state, by any function of torch that
    counts what it writes. After writing `weight.data` by hand call `requantize()`. Compiled programs quantise it in
    each call.
    """

    weight: torch.nn.Parameter

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        precision: str = "fp8",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be {' or '.join(map(repr, PRECISIONS))}, got {precision!r}")
        if dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"dtype must be float32, bfloat16 or float16, got {dtype}")
        if any(extent % FEATURES_STEP for extent in shape[-2:]):
            raise ValueError(f"features must be multiples of {FEATURES_STEP}, got {[*shape]}")
        self.precision = precision
        self.weight = torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
        self._kept = Kept()
        self.reset_parameters()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.weight.shape)

    def reset_parameters(self) -> None:
        """As `torch.nn.Linear`."""
        bound = self.weight.shape[-1] ** -0.5 if self.weight.shape[-1] else 0.0
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def requantize(self) -> None:
        self._kept = Kept()

    def operands(self, both_ways: bool) -> tuple[Any, ...]:
        """Data and scales, and those of the transpose where a gradient will want them."""
        weight = to_local(self.weight)
        if is_dynamo_compiling():
            with torch.no_grad():
                return operands_of(weight.detach(), self.precision, both_ways)
        return self._kept.of(weight, self.precision, both_ways)


def to_local(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor's part that is here, with its gradient."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor
    local = getattr(tensor, "to_local", None)
    return tensor if local is None else local()
