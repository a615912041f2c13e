"""Groups of K that share a scale or a zero point: as they are given, and as they are stored."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .._numbers import integer
from ..utils.math import ceil_div
from . import codes as code
from .matrix import Matrix
from .packings import SMALLEST_GROUP, Packing


@dataclass(frozen=True)
class Groups:
    """How what is given for groups of K, `[N, groups]`, is stored: `[stored groups, padded N]`."""

    n: int
    k: int
    given: int | None  # K of a group; None: all of it
    kept: int | None  # the same of a stored one

    def checked(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """`[N, groups]`, given as that or, of one group, as `[N]`."""
        wanted = (self.n, 1 if self.given is None else ceil_div(self.k, self.given))
        if self.given is None and tensor.dim() == 1:
            tensor = tensor.unsqueeze(1)
        if tuple(tensor.shape) != wanted:
            what = (
                "one for each row, because group_size is None" if self.given is None else f"one for {self.given} of K"
            )
            raise ValueError(f"{name} must have the shape {[*wanted]} ({what}), got {[*tensor.shape]}")
        return tensor

    def extreme_codes(self, matrix: Matrix, packing: Packing) -> tuple[torch.Tensor, torch.Tensor]:
        """The smallest and the largest unsigned code of each row and group."""
        parts = []
        for first, last in code.row_chunks(self.n, self.k):
            codes = self.in_groups(matrix.read(first, last).to(torch.int16) - packing.smallest)
            parts.append(torch.stack(torch.aminmax(codes, dim=2)))
        smallest, largest = torch.cat(parts, 1)
        return smallest, largest

    def in_groups(self, values: torch.Tensor) -> torch.Tensor:
        """`[rows, K]` -> `[rows, groups, K of a group]`; a last group that K does not fill repeats its last value."""
        size = self.k if self.given is None else self.given
        missing = -self.k % size
        if missing:
            values = torch.cat((values, values[:, -1:].expand(-1, missing)), 1)
        return values.reshape(values.shape[0], -1, size)

    def along_k(self, tensor: torch.Tensor) -> torch.Tensor:
        """What is given for groups, `[rows, groups]`, for each K: `[rows, K]`."""
        return tensor.repeat_interleave(self.k if self.given is None else self.given, 1)[:, : self.k]

    def stored(self, tensor: torch.Tensor) -> torch.Tensor:
        rows, columns = code.padded_shape(self.n, self.k)
        kept = columns if self.kept is None else self.kept
        given = columns if self.given is None else self.given
        spread = tensor.repeat_interleave(given // kept, 1)
        padding = (0, columns // kept - spread.shape[1], 0, rows - self.n)
        return torch.nn.functional.pad(spread, padding).T.contiguous()


def checked_group(group_size: int | None, packing: Packing) -> int | None:
    if group_size is None:
        return None
    group_size = integer("group_size", group_size)
    least = packing.smallest_group
    if group_size != least and (group_size < SMALLEST_GROUP or group_size % SMALLEST_GROUP != 0):
        wanted = f"{least}, " if least != SMALLEST_GROUP else ""
        raise ValueError(f"group_size must be {wanted}a multiple of {SMALLEST_GROUP} or None, got {group_size}")
    return group_size
