"""One layer of a checkpoint: its tensors by name, each held against what the layer must have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..._dtypes import E8M0
from ...utils.math import _UE8M0_NAN, _unpack_codes
from ..matrix import Matrix
from .config import Config

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
WORDS = (torch.int32,)
WORD_BITS = 32
PAIRS = (torch.int8, torch.uint8)
EXPONENTS = (torch.uint8, *E8M0)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)

Dtypes = tuple[torch.dtype, ...]


@dataclass(frozen=True)
class Read:
    """A matrix of a checkpoint."""

    matrix: Matrix
    element: str
    group_size: int | None


@dataclass(frozen=True)
class Format:
    """How a kind of checkpoint stores a matrix."""

    read: Callable[[Layer, Config], Read]
    weights: Mapping[str, int]  # names of the tensor of codes, and the dimensions that it has of one matrix
    others: tuple[str, ...]
    shared: tuple[str, ...] = ()  # those of which a stack of experts may have one for all

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.weights, *self.others)


@dataclass(frozen=True)
class Layer:
    """The tensors of one matrix. What is asked for is there, with the dtype and the shape asked for; else an error that
    names the tensor, what it must be and what it is."""

    format: str
    prefix: str
    tensors: Mapping[str, torch.Tensor]

    def has(self, name: str) -> bool:
        return name in self.tensors

    def name_of(self, *names: str) -> str:
        """The one of `names` that is there, of which there must be one."""
        found = [name for name in names if self.has(name)]
        if not found:
            wanted = " or ".join(f"{self.prefix}{name}" for name in names)
            raise ValueError(f"a {self.format!r} checkpoint has {wanted}, but no tensor has that name")
        if len(found) > 1:
            raise ValueError(
                f"{' and '.join(f'{self.prefix}{name}' for name in found)} must not both be there: "
                f"a {self.format!r} checkpoint has one of them"
            )
        return found[0]

    def weights(self, *names: str, dtypes: Dtypes, dimensions: int = 2) -> torch.Tensor:
        """The tensor of codes, whose shape tells that of the layer."""
        name = self.name_of(*names)
        tensor = self.tensor(name, dtypes)
        if tensor.dim() != dimensions or tensor.numel() == 0:
            raise ValueError(
                f"{self.prefix}{name} must have {dimensions} dimensions of a matrix, none of them 0, "
                f"got {[*tensor.shape]}"
            )
        return tensor

    def tensor(
        self, name: str, dtypes: Dtypes, shape: tuple[int, ...] | None = None, meaning: str = ""
    ) -> torch.Tensor:
        tensor = self.tensors[self.name_of(name)]
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{self.prefix}{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dtype not in dtypes:
            raise TypeError(f"{self.prefix}{name} must be {' or '.join(map(str, dtypes))}, got {tensor.dtype}")
        if shape is not None and tuple(tensor.shape) != shape:
            self.reject_shape(name, shape, meaning)
        return tensor

    def scales(
        self, name: str, shape: tuple[int, ...] | None, meaning: str = "", dtypes: Dtypes = FLOATS
    ) -> torch.Tensor:
        """Scales, none of them NaN or infinite."""
        scales = self.tensor(name, dtypes, shape, meaning)
        finite = scales.view(torch.uint8) != _UE8M0_NAN if scales.dtype in EXPONENTS else scales.float().isfinite()
        if not bool(finite.all()):
            raise ValueError(f"{self.prefix}{name} must be finite, but {int((~finite).sum())} of its values are not")
        return scales

    def integers(self, name: str, shape: tuple[int, ...], meaning: str, low: int, high: int) -> torch.Tensor:
        """int32, of integers in any type, between two of them."""
        tensor = self.tensor(name, INTEGERS + FLOATS, shape, meaning)
        values = tensor.double()
        if not torch.equal(values, values.round()):
            raise ValueError(f"{self.prefix}{name} must hold whole numbers, but holds others")
        if bool(((values < low) | (values > high)).any()):
            raise ValueError(
                f"{self.prefix}{name} must lie within {low}..{high}, got {values.min():g}..{values.max():g}"
            )
        return values.to(torch.int32)

    def reject_shape(self, name: str, wanted: tuple[int, ...], meaning: str) -> Any:
        raise ValueError(
            f"{self.prefix}{name} must have the shape {[*wanted]} ({meaning}), got {[*self.tensors[name].shape]}"
        )


def rows_of(values: torch.Tensor) -> Callable[[int, int], torch.Tensor]:
    return lambda first, last: values[first:last]


def unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 `[..., words]` -> uint8 codes of 4 or 8 bits, those in the low bits first."""
    return _unpack_codes(words) if bits == 4 else words.contiguous().view(torch.uint8)
