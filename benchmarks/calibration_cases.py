"""The problems that calibrate.py measures, most informative first."""

from __future__ import annotations

import itertools
import math

from shapes import KINDS, round_up_coarsely, sizes_of

DENSE_NK = "2112x7168,576x7168,24576x1536,32768x512,7168x16384,4096x7168,7168x2048,4096x4096,2048x5120,6144x2048"
DENSE_M = (1, 16, 32, 64, 128, 256, 512, 1024, 4096)
WGRAD_MN = ((2112, 7168), (576, 7168), (24576, 1536), (7168, 16384), (4096, 4096), (7168, 2048), (1024, 4096))
WGRAD_K = (1024, 4096, 8192)
EXPERTS_NK = ((6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048), (1536, 4096))
# Experts, mean tokens of one.
CONTIGUOUS = ((4, 8192), (8, 4096), (8, 1024), (32, 512), (64, 128), (128, 64), (256, 32), (32, 64), (128, 256))
MASKED = ((128, 8), (32, 20), (6, 20), (16, 64), (6, 128), (32, 192), (6, 1024), (48, 320))
KGROUPED = ((4, 4096), (4, 8192), (8, 2048), (16, 1024), (32, 512))  # groups, mean K of one
KGROUPED_MN = ((4096, 7168), (7168, 2048), (2048, 4096), (1536, 1024))
# Problems of each kind in one round of taking turns: by how much depends on the model there.
TURNS = {"dense": 4, "wgrad": 1, "contiguous": 2, "masked": 2, "kgrouped": 1, "bf16": 4}


def cases_of(kind: str) -> list[list]:
    """As cases.json writes them."""
    if kind in ("dense", "bf16"):
        shapes = [tuple(map(int, text.split("x"))) for text in DENSE_NK.split(",")]
        return [[kind, m, n, k] for m, (n, k) in itertools.product(DENSE_M, shapes)]
    if kind == "wgrad":
        return [["wgrad", m, k, n] for (m, n), k in itertools.product(WGRAD_MN, WGRAD_K)]
    if kind == "contiguous":
        return [["contiguous", *experts, *nk] for experts, nk in itertools.product(CONTIGUOUS, EXPERTS_NK)]
    if kind == "masked":
        return [["masked", *experts, *nk] for experts, nk in itertools.product(MASKED, EXPERTS_NK)]
    return [["kgrouped", groups, *mn, k] for (groups, k), mn in itertools.product(KGROUPED, KGROUPED_MN)]


def total_of(case: list) -> int | None:
    """Rows (of K groups: K) to draw in all. What selection rounds up coarsely should lie just below such a step, or
    the model would be fitted to sizes that are a fifth larger than what was timed."""
    kind, groups, mean, *_ = case
    if kind == "masked":
        return groups * mean
    if kind not in ("contiguous", "kgrouped"):
        return None
    if kind == "kgrouped":
        mean = case[-1]

    def excess(total: int) -> float:
        sizes = sizes_of(case, total, coarse=False)
        size = sizes.m if kind == "contiguous" else sizes.k
        return round_up_coarsely(size) / size

    totals = [groups * mean * percent // 100 for percent in range(100, 79, -1)]
    return next((total for total in totals if excess(total) < 1.02), min(totals, key=excess))


def spread(cases: list[list]) -> list[list]:
    """The same cases, each as far as possible from all before it, in octaves of their sizes: any beginning of the list
    covers the whole range."""
    points = [[math.log2(size) for size in case[1:]] for case in cases]
    left = list(range(len(cases)))
    middle = [sum(column) / len(points) for column in zip(*points, strict=True)]
    order = [min(left, key=lambda index: math.dist(points[index], middle))]
    left.remove(order[0])
    nearest = {index: math.dist(points[index], points[order[0]]) for index in left}
    while left:
        chosen = max(left, key=nearest.__getitem__)
        order.append(chosen)
        left.remove(chosen)
        for index in left:
            nearest[index] = min(nearest[index], math.dist(points[index], points[chosen]))
    return [cases[index] for index in order]


def ordered(kinds: list[str]) -> list[list]:
    """All problems of these kinds, the kinds in turn."""
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise ValueError(f"unknown kinds {sorted(unknown)}: of {', '.join(KINDS)}")
    queues = {kind: spread(cases_of(kind)) for kind in kinds}
    order = []
    while any(queues.values()):
        for kind, queue in queues.items():
            order += queue[: TURNS[kind]]
            del queue[: TURNS[kind]]
    return order
