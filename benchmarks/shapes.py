"""Sizes of benchmark cases: how many rows each expert gets, and what selection is told of a case. Needs no library."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("dense", "wgrad", "contiguous", "masked", "kgrouped", "bf16")
MASKED_MAX_M = 4096
ALIGNMENT = 128  # to which experts of a contiguous layout, and K groups, are drawn


def draw(count: int, mean: int, total: int | None, seed: int, multiple: int = 1) -> list[int]:
    """`count` sizes between 0.7 and 1.3 of the mean; with `total`, scaled to add up to about that."""
    generator = random.Random(seed)
    sizes = [mean * generator.uniform(0.7, 1.3) for _ in range(count)]
    scale = 1.0 if total is None else total / sum(sizes)
    return [max(multiple, round(size * scale / multiple) * multiple) for size in sizes]


def round_up_coarsely(value: int) -> int:
    """As in csrc/config/problem.hpp: selection sees counts that vary from call to call in four steps an octave."""
    step = max(1, (1 << (max(value, 1).bit_length() - 1)) // 4)
    return -(-value // step) * step


@dataclass(frozen=True)
class Sizes:
    """A problem as selection sees it. K is the sum over the groups of a K-grouped one, M the room of a masked one."""

    kind: str
    m: int
    n: int
    k: int
    groups: int = 1
    expected_m: int = 0


def sizes_of(case: Sequence, total: int | None = None, seed: int = 0, coarse: bool = True) -> Sizes | None:
    """Of a case as cases.json and problems.py have them, with the same draw; None for kinds selection does not know.

    A call hands selection the sum of K rounded up coarsely; `coarse=False` gives the true one.
    """
    kind, *sizes = case
    if kind in ("dense", "bf16"):
        return Sizes(kind, *sizes)
    if kind == "wgrad":
        m, k, n = sizes
        return Sizes(kind, m, n, k)
    if kind == "contiguous":
        groups, tokens, n, k = sizes
        m = sum(-(-count // ALIGNMENT) * ALIGNMENT for count in draw(groups, tokens, total, seed))
        return Sizes(kind, m, n, k, groups)
    if kind == "masked":
        groups, tokens, n, k = sizes
        return Sizes(kind, MASKED_MAX_M, n, k, groups, round_up_coarsely(min(tokens, MASKED_MAX_M)))
    if kind == "kgrouped":
        groups, m, n, mean_k = sizes
        k = sum(draw(groups, mean_k, total, seed, multiple=ALIGNMENT))
        return Sizes(kind, m, n, round_up_coarsely(k) if coarse else k, groups)
    return None
