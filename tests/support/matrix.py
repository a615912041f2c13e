"""Everything that the pair table says is multiplied: one case for each pair, grouping, scaling and output.

The table is the library's own (csrc/config/pairs.hpp), so that a new row is tested the day it is there. What a case is
compared with is not: inputs, calls and the FP64 reference are made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from inputs import ceil_div

import deep_gemm
from deep_gemm._extension import C

DTYPES = {
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "s32": torch.int32,
    "s8": torch.int8,
}
# What the functions that take such an A are called.
FAMILIES = {"bf16": "bf16", "e4m3": "fp8", "fp16": "bf16", "s8": "int8"}
# The simulator as each architecture.
TARGETS = {"sm90": "sm_90a"}
ALIGNMENT = 128  # of experts' rows
ADDED_TO = ("dense", "batched", "batch_sum", "k_contiguous")  # groupings that take C


@dataclass(frozen=True)
class Scaling:
    """Rows and K that share a scale of an operand; -1: all of them."""

    rows: int
    k: int

    def shape(self, rows: int, k: int) -> tuple[int, int]:
        return (
            1 if self.rows < 0 else ceil_div(rows, self.rows),
            1 if self.k < 0 else ceil_div(k, self.k),
        )


@dataclass(frozen=True)
class Pair:
    arch: str
    a: str
    b: str
    sum: str
    mn_major: str
    scalings_a: tuple[Scaling, ...]
    scalings_b: tuple[Scaling, ...]
    outputs: tuple[str, ...]
    groupings: tuple[str, ...]


def _scalings(text: str) -> tuple[Scaling, ...]:
    sizes = [part.split(":")[1].split("x") for part in text.split(",") if part]
    return tuple(Scaling(int(rows), int(k)) for rows, k in sizes)


def pairs() -> list[Pair]:
    found = []
    for line in C.pairs().splitlines():
        row = dict(part.split("=") for part in line.split())
        lists = {name: tuple(row.pop(name).split(",")) for name in ("outputs", "groupings")}
        scalings = {name: _scalings(row.pop(name)) for name in ("scalings_a", "scalings_b")}
        found.append(Pair(**row, **lists, **scalings))
    return found


@dataclass(frozen=True)
class Case:
    pair: Pair
    grouping: str
    scaling_a: Scaling | None
    scaling_b: Scaling | None
    output: str
    added: str  # C: "nothing", "c", "d" (C is D)

    def __str__(self) -> str:
        scales = "unscaled" if self.scaling_b is None else f"{self.scaling_b.rows}x{self.scaling_b.k}"
        return f"{self.pair.arch}-{self.pair.a}-{self.pair.b}-{self.grouping}-{scales}-{self.output}-{self.added}"


def cases() -> Iterator[Case]:
    for pair in pairs():
        scalings = product(pair.scalings_a or (None,), pair.scalings_b or (None,))
        for grouping, (a, b), output in product(pair.groupings, list(scalings), pair.outputs):
            if output == "s32":
                a = b = None  # the sum itself
            for added in ("nothing", "c", "d") if grouping in ADDED_TO else ("nothing",):
                if grouping == "k_contiguous" and b is not None and b.rows != 1:
                    continue  # both operands of K groups have a scale for each row
                yield Case(pair, grouping, a, b, output, added)


def values(element: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if element == "s8":
        return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)
    return torch.randn(shape, generator=generator).to(DTYPES[element])


@dataclass
class Quantised:
    """Data [rows, K] with scales of their own, and both in FP64."""

    data: torch.Tensor
    scales: torch.Tensor | None
    exact: torch.Tensor

    def to(self, device: torch.device) -> Any:
        """What a public function takes."""
        data = self.data.to(device)
        return data if self.scales is None else (data, self.scales.to(device))


def quantised(element: str, scaling: Scaling | None, rows: int, k: int, generator: torch.Generator) -> Quantised:
    data = values(element, (rows, k), generator)
    if scaling is None:
        return Quantised(data, None, data.double())
    shrink = 16 if element == "s8" else 1  # products of integers are large, and FP16 is to hold their sums
    scales = (torch.rand(scaling.shape(rows, k), generator=generator) + 0.5) / shrink
    every = scales.double()
    if scaling.rows != -1:
        every = every.repeat_interleave(scaling.rows, 0)[:rows]
    if scaling.k != -1:
        every = every.repeat_interleave(scaling.k, 1)[:, :k]
    return Quantised(data, scales, data.double() * every)


@dataclass
class Problem:
    """The matrices of one case: of each group, and how they are handed over."""

    a: list[Quantised] = field(default_factory=list)
    b: list[Quantised] = field(default_factory=list)

    def expected(self, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """D without C, and sum |a||b|."""
        a, b = self.a[group].exact, self.b[group].exact
        return a @ b.T, a.abs() @ b.abs().T


def function(case: Case, name: str) -> Any:
    return getattr(deep_gemm, name.format(FAMILIES[case.pair.a]))


def stacked(operands: list[Quantised], device: torch.device) -> Any:
    """[groups, rows, K]."""
    data = torch.stack([x.data for x in operands]).to(device)
    if operands[0].scales is None:
        return data
    return data, torch.stack([x.scales for x in operands if x.scales is not None]).to(device)
