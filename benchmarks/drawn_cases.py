"""Cases at random, for a comparison with another library on shapes that nobody has looked at.

Sizes are drawn evenly over octaves, from what language models have: hidden sizes and widths are multiples of 64 (K: of
128, which DeepGEMM asks for), rows any number between 1 and 16,384. Equal seeds give equal cases; the longest
beginnings of a draw are the same whatever the count.
"""

from __future__ import annotations

import random

KINDS = ("dense", "masked", "dense", "contiguous", "dense", "bf16", "dense", "masked", "wgrad", "dense")  # in turn
MAX_FLOPS = 4e12  # some three milliseconds
MAX_BYTES = 8e9  # of any operand


def _size(generator: random.Random, least: int, most: int, multiple: int = 1) -> int:
    """Between `least` and `most`, every octave as likely as another."""
    return round(least * (most / least) ** generator.random() / multiple) * multiple


def _case(generator: random.Random, kind: str) -> list:
    if kind in ("dense", "bf16"):
        k = _size(generator, 512, 28672, 128)
        return [kind, _size(generator, 1, 16384), _size(generator, 512, 57344, 64), k]
    if kind == "wgrad":
        m, n = (_size(generator, 512, 16384, 64) for _ in range(2))
        return ["wgrad", m, _size(generator, 512, 16384, 128), n]
    hidden, width = _size(generator, 2048, 8192, 128), _size(generator, 768, 4096, 128)
    n, k = (2 * width, hidden) if generator.random() < 0.5 else (hidden, width)
    most = 2048 if kind == "contiguous" else 512
    return [kind, _size(generator, 4, 256), _size(generator, 1 if kind == "masked" else 16, most), n, k]


def _fits(case: list) -> bool:
    kind, *sizes = case
    groups, rows, n, k = sizes if kind in ("contiguous", "masked") else (1, sizes[0], *sizes[1:])
    room = 4096 if kind == "masked" else rows  # rows of an expert in memory
    return 2 * groups * rows * n * k <= MAX_FLOPS and groups * max(n * k, room * k, 2 * room * n) <= MAX_BYTES


def drawn_cases(count: int, seed: int) -> list[list]:
    """Cases as cases.json writes them."""
    generator = random.Random(seed)
    cases: list[list] = []
    while len(cases) < count:
        case = _case(generator, KINDS[len(cases) % len(KINDS)])
        if _fits(case):
            cases.append(case)
    return cases
