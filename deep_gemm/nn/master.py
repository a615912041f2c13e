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
        self.in_graphs = False  # which read them where they lie

    def __deepcopy__(self, _memo: object) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()

    def of(self, weight: torch.Tensor, precision: str, both_ways: bool) -> tuple[Any, ...]:
        key = (_steps, weight._version, weight.data_ptr(), weight.device, weight.dtype, precision)
        current = key == self.key and not (both_ways and self.operands[2] is None)
        if is_captured(weight):
            if both_ways or not current:  # the graph's own: memory of its pool, and of each replay's weight
                return made_of(weight, precision, both_ways)
            self.in_graphs = True
        elif not current:
            both_ways = both_ways or (self.in_graphs and self.operands[2] is not None)
            made = made_of(weight, precision, both_ways)
            self.operands, self.key = self._where_graphs_read(made) if self.in_graphs else made, key
        return self.operands

    def _where_graphs_read(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        pairs = zip(self.operands, made, strict=True)
        return tuple(new if old is None or new is None else _written(old, new) for old, new in pairs)


@torch.no_grad()
def made_of(weight: torch.Tensor, precision: str, both_ways: bool) -> tuple[Any, ...]:
    return operands_of(weight.detach(), precision, both_ways)


def is_captured(weight: torch.Tensor) -> bool:
    """Whether a CUDA graph is being made of what happens now."""
    return weight.is_cuda and torch.cuda.is_current_stream_capturing()


@torch.no_grad()
def _written(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """new, in the memory of old where that is like it; BF16 operands may be the parameter itself."""
    alike = (old.shape, old.stride(), old.dtype, old.device) == (new.shape, new.stride(), new.dtype, new.device)
    if not alike or old.data_ptr() == new.data_ptr():
        return new
    as_bytes = [each.view(torch.uint8) if each.element_size() == 1 else each for each in (old, new)]
    as_bytes[0].copy_(as_bytes[1])
    return old


class MasterWeights(torch.nn.Module):
    """A parameter `weight`, `[N, K]` or `[G, N, K]`, multiplied in FP8 or BF16.

    It is quantised again when it was written: by an optimiser's step, by loading a state, by any function of torch that
    counts what it writes. After writing `weight.data` by hand, or by replays of a CUDA graph, call `requantize()`.
    Compiled programs quantise it in each call, and so does a graph of calls with gradients. A graph of calls without
    them reads what was quantised before; where the weight is written afterwards, `requantize()`, or the next call
    outside of graphs, writes the new numbers there.
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
        self._kept.key = None
        if self._kept.in_graphs:
            self.operands(False)

    def operands(self, both_ways: bool) -> tuple[Any, ...]:
        """Data and scales, and those of the transpose where a gradient will want them."""
        weight = to_local(self.weight)
        if is_dynamo_compiling():
            return made_of(weight, self.precision, both_ways)
        return self._kept.of(weight, self.precision, both_ways)


def to_local(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor's part that is here, with its gradient."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor
    local = getattr(tensor, "to_local", None)
    return tensor if local is None else local()
