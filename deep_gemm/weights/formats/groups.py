"""Groups of K that share a scale: how large they are, and in which order K takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...utils.math import ceil_div
from .config import ALL_OF_K
from .layer import INTEGERS, Layer

Rows = Callable[[int, int], torch.Tensor]


@dataclass(frozen=True)
class Grouping:
    size: int | None  # None: one group is all of K
    permutation: torch.Tensor | None = None  # the place of each K before it is put in the order of its groups

    def in_order(self, read: Rows) -> Rows:
        permutation = self.permutation
        if permutation is None:
            return read
        return lambda first, last: read(first, last)[:, permutation]


def group_index(layer: Layer, name: str, k: int) -> torch.Tensor | None:
    """The group of each K; None where there is no such tensor, or it is empty or -1 throughout."""
    if not layer.has(name):
        return None
    index = layer.tensor(name, INTEGERS)
    if index.numel() == 0 or bool((index == -1).all()):
        return None
    return layer.tensor(name, INTEGERS, (k,), f"the group of each of K={k}").long()


def grouping(
    layer: Layer,
    k: int,
    groups: int,
    given: int | None,
    scales: str,
    index: tuple[str, torch.Tensor | None] = ("", None),
    act_order: tuple[str, bool | None] = ("", None),
) -> Grouping:
    """Held against each other: the number of groups that have scales, the config's group size, and the group of each K.

    Args:
        given: what the config says; None: nothing.
        scales: the name of their tensor.
        index: the name of the group index, and the index.
        act_order: the name of the config's key that says whether K is out of order, and its value.
    """
    name, g_idx = index
    if g_idx is not None:
        found = _by_index(layer, k, groups, given, scales, name, g_idx)
        if act_order[1] is False and found.permutation is not None:
            raise ValueError(
                f"{layer.prefix}{name} must be in order, as config's {act_order[0]} says that K is, but is not"
            )
        return found
    if act_order[1] and groups > 1:
        raise ValueError(
            f"a checkpoint in act order (config's {act_order[0]}) has {layer.prefix}{name}, the group of each K, but "
            "no tensor has that name, or it names no group"
        )
    return Grouping(_size(layer, k, groups, given, scales))


def _size(layer: Layer, k: int, groups: int, given: int | None, scales: str) -> int | None:
    if given is not None:
        wanted = 1 if given == ALL_OF_K else ceil_div(k, given)
        if groups != wanted:
            what = "all of K" if given == ALL_OF_K else f"{given} of K"
            raise ValueError(
                f"{layer.prefix}{scales} must have {wanted} groups, one for {what}={k} as config's group_size says, "
                f"got {groups}"
            )
        return None if given == ALL_OF_K else given
    if groups == 1:
        return None
    size = k // max(groups, 1)
    if groups == 0 or k % groups != 0 or size & (size - 1) != 0:
        raise ValueError(
            f"K={k} and the {groups} groups of {layer.prefix}{scales} do not tell how large a group is: config's "
            "group_size must be there"
        )
    return size


def _by_index(
    layer: Layer, k: int, groups: int, given: int | None, scales: str, name: str, index: torch.Tensor
) -> Grouping:
    name = f"{layer.prefix}{name}"
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= groups:
        raise ValueError(f"{name} must name groups 0 to {groups - 1}, which have scales, got {low} to {high}")
    counts = torch.bincount(index, minlength=groups)
    size = k if given == ALL_OF_K else given or int(counts.max())
    in_groups = torch.arange(k, device=index.device) // size
    permutation = torch.argsort(index, stable=True)
    if ceil_div(k, size) != groups or not torch.equal(index[permutation], in_groups):
        source = "" if given is None else ", as config's group_size says"
        shard = "" if bool((index.diff() >= 0).all()) else "; a row shard of weights in act order cannot be packed"
        raise ValueError(
            f"{name} must give each of the {groups} groups of {layer.prefix}{scales} {size} of K={k}{source}, and the "
            f"last one what is left, but gives them {int(counts.min())} to {int(counts.max())}{shard}"
        )
    kept = None if given in (None, ALL_OF_K) and groups == 1 else size
    return Grouping(kept, None if torch.equal(index, in_groups) else permutation)
