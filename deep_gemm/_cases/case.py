"""A call with its tensors, and what must be known to check and to time it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from .._precompile import DEFAULT
from .._targets import BLACKWELL_TARGETS

RIGHT = 1e-4  # calc_diff of a product in BF16 against FP64 is about 3e-6


@dataclass
class Case:
    """`call` writes results, which `check` then compares: how far from FP64 (`calc_diff`)."""

    function: str
    shape: tuple[int, ...]
    call: Callable[[], Any]
    check: Callable[[], float]
    flops: int
    bytes: int  # that must be read and written
    limit: float = RIGHT  # of `check`
    torch_call: Callable[[], Any] | None = None
    torch_is: str = ""  # what that call is

    @property
    def text(self) -> str:
        return "x".join(map(str, self.shape))


@dataclass
class Wanted:
    """Where tensors lie, for which GPU, and how they are quantised."""

    device: torch.device
    target: str
    seed: int = 0
    group_size: int | str | None = DEFAULT
    zero_points: bool = False
    expr: str = "bhr,hdr->bhd"
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator(device=self.device).manual_seed(self.seed)

    @property
    def blackwell(self) -> bool:
        return self.target in BLACKWELL_TARGETS

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self.device, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """From `low` up to `high` - 1."""
        return torch.randint(low, high, shape, device=self.device, generator=self.generator, dtype=dtype)


def byte_count(*tensors: Any) -> int:
    """Of tensors, in pairs and PackedWeights too."""
    from ..testing import count_bytes

    return count_bytes(*(each.tensors()[0] if hasattr(each, "tensors") else each for each in tensors))


def worst(differences: Iterable[float]) -> float:
    """NaN where one is."""
    found = [*differences]
    return float("nan") if any(each != each for each in found) else max(found)
