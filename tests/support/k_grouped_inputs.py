"""K groups: FP8 operands of each, how the calls take them, and the check of a call against FP64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from inputs import FP8, GuardedOutput, Operand, ceil_div, random_rows, random_values
from reference import assert_matches, product_nt

import deep_gemm

LAYOUTS = ["tn", "nt"]


@dataclass
class Groups:
    a: list[Operand]  # [M, k_g] each
    b: list[Operand]
    ks: list[int]

    @property
    def device(self) -> torch.device:
        return self.a[0].data.device

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.ks), self.a[0].data.shape[0], self.b[0].data.shape[0]

    def sizes(self) -> torch.Tensor:
        return torch.tensor(self.ks, dtype=torch.int32, device=self.device)

    def check(self, d: torch.Tensor, c: torch.Tensor | None = None) -> None:
        for g, (a, b) in enumerate(zip(self.a, self.b, strict=True)):
            assert_matches(d[g], product_nt(a, b, None if c is None else c[g]), f"group {g} of {self.ks}")


def groups(m: int, n: int, ks: Sequence[int], device: torch.device, seed: int = 0) -> Groups:
    count = len(ks)
    return Groups(
        [random_rows((m, k), device, seed + g) for g, k in enumerate(ks)],
        [random_rows((n, k), device, seed + count + g) for g, k in enumerate(ks)],
        list(ks),
    )


def bytes_of(data: torch.Tensor) -> torch.Tensor:
    return data.view(torch.uint8)


def stacked(parts: list[Operand], layout: str) -> Operand:
    """All groups as the calls take them: [sum_k, rows] or one dimension; scales [blocks, rows]."""
    if layout == "tn":
        data = torch.cat([bytes_of(part.data).T for part in parts]).contiguous()
    else:
        data = torch.cat([bytes_of(part.data).flatten() for part in parts])
    return Operand(data.view(FP8), torch.cat([part.scales.T for part in parts]).contiguous())


def call(layout: str):
    return getattr(deep_gemm, f"k_grouped_fp8_gemm_{layout}_contiguous")


def run(x: Groups, layout: str, add: str = "nothing", dtype: torch.dtype = torch.float32, **more) -> None:
    out = GuardedOutput(x.shape, dtype, x.device)
    c = None if add == "nothing" else (random_values(x.shape, x.device, 7) * 10).to(dtype)
    if add == "c_is_d":
        out.tensor.copy_(c)
    given_c = out.tensor if add == "c_is_d" else c
    call(layout)(stacked(x.a, layout), stacked(x.b, layout), out.tensor, x.ks, x.sizes(), c=given_c, **more)
    out.check()
    x.check(out.tensor, c)


def in_psum_layout(x: Groups, alignment: int) -> tuple[Operand, Operand, torch.Tensor]:
    """Groups that start at multiples of the alignment, with NaN between them."""
    ends, end = [], 0
    for k in x.ks:
        end = ceil_div(end, alignment) * alignment + k
        ends.append(end)
    total = ceil_div(end, alignment) * alignment
    operands = []
    for parts in (x.a, x.b):
        data = torch.full((total, parts[0].data.shape[0]), 0x7F, dtype=torch.uint8, device=x.device)
        for part, last, k in zip(parts, ends, x.ks, strict=True):
            data[last - k : last] = bytes_of(part.data).T
        operands.append(Operand(data.view(FP8), torch.cat([part.scales.T for part in parts])))
    return *operands, torch.tensor(ends, dtype=torch.int32, device=x.device)
