"""Grouped GEMM kernels of CUTLASS for foreign_kernels.py: each group has a product of its own, and its kernel changes
the tensor maps it copies by (foreign_cutlass_grouped.cuh)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from foreign_cutlass import (
    E2M1,
    GEFORCE,
    NORM,
    NVFP4_GROUP,
    UE4M3,
    Gemm,
    dequantised,
    described,
    padded,
    quantised,
    random_operand,
    with_maps,
)
from foreign_launch import Compiled, Kernel, Launch, difference

BETA = 0.5
Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class GroupedGemm:
    gemm: Gemm  # of each group, but its problem
    problems: tuple[Sizes, ...]

    def kernel(self) -> Kernel:
        more = f"    static constexpr float kBeta = {BETA}f;\n"
        source = self.gemm.source("foreign_cutlass_grouped.cuh", "describe_grouped", more)
        return Kernel(self.gemm.name, "cutlass", self.gemm.target, source, partial(launch, self))


class Group:
    """One product: its tensors, and what D should be."""

    def __init__(self, gemm: Gemm, generator: torch.Generator) -> None:
        self.gemm = gemm
        m, n, _ = gemm.problem
        self.a, self.scales_a, a_values = random_operand(gemm, gemm.element, m, generator)
        self.b, self.scales_b, b_values = random_operand(gemm, gemm.element, n, generator)
        self.c = torch.randn(m, n, generator=generator).half()
        self.d = torch.empty(m, n // 2, dtype=torch.uint8)
        self.d_scales = torch.empty(math.prod(padded(m, n // NVFP4_GROUP)), dtype=torch.uint8)
        self.alpha = torch.rand(1, generator=generator) + 0.5
        sums = self.alpha.double() * (a_values @ b_values.T) + BETA * self.c.double()
        self.wanted = quantised(gemm, sums)

    def addresses(self) -> list[int]:
        tensors = [self.a, self.b, self.scales_a, self.scales_b, self.c, self.d, self.d_scales, self.alpha]
        return [tensor.data_ptr() for tensor in tensors]

    def apart(self) -> float:
        return difference(dequantised(self.gemm, self.d, self.d_scales), self.wanted)


def launch(grouped: GroupedGemm, compiled: Compiled) -> Launch:
    generator = torch.Generator().manual_seed(3)
    groups = [Group(replace(grouped.gemm, problem=problem), generator) for problem in grouped.problems]
    workspace = torch.zeros(1 << 20, dtype=torch.uint8)
    tables = torch.zeros(1 << 14, dtype=torch.uint8)
    norm = torch.tensor([NORM])
    arguments = [grouped.gemm.num_sms, *(t.data_ptr() for t in (workspace, tables, norm))]
    for group in groups:
        arguments += [*group.gemm.problem, *group.addresses()]
    facts, maps = described(compiled, arguments)
    assert int(facts["workspace"]) <= workspace.numel(), facts["workspace"]
    rows = torch.frombuffer(bytearray.fromhex(facts["tables"]), dtype=torch.uint8)
    tables[: rows.numel()] = rows
    return Launch(
        params=with_maps(bytes.fromhex(facts["params"]), maps),
        outputs=[*(g.d for g in groups), *(g.d_scales for g in groups), workspace],
        zeros=[workspace],
        inputs=[tables, norm, *(x for g in groups for x in (g.a, g.b, g.scales_a, g.scales_b, g.c, g.alpha))],
        difference=lambda: max(group.apart() for group in groups),
        limit=grouped.gemm.limit,
        grid=tuple(map(int, facts["grid"].split())),
        block=(math.prod(map(int, facts["block"].split())),),
        smem_bytes=int(facts["smem"]),
    )


TO_FP4 = {"element": E2M1, "nvfp4": True, "c": "cutlass::half_t", "d": E2M1, "d_scale": UE4M3, "num_sms": 2}
PROBLEMS = ((200, 288, 320), (64, 160, 128), (136, 96, 256))
GROUPED = [
    GroupedGemm(Gemm("grouped NVFP4 to FP4, mma.sync", *GEFORCE, **TO_FP4), PROBLEMS),
    GroupedGemm(
        Gemm(
            "grouped NVFP4 to FP4, ping-pong, mma.sync", *GEFORCE, "KernelPtrArrayTmaWarpSpecializedPingpong", **TO_FP4
        ),
        PROBLEMS,
    ),
]
KERNELS = [grouped.kernel() for grouped in GROUPED]
