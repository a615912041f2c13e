"""Kernels of the families of tiles that would spill (csrc/config/ARCH/spills.hpp): of problems with pairs and packed
weights in all groupings with all steps, and of those that are drawn elsewhere."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from candidates import AHEAD, Candidate, parse
from devices import arch_of
from drawn_problems import Problem, drawn_problems
from every_problem import every_problem, packed_problems
from field_calls import WOULD_SPILL, explain, spilling_kernel_of
from packed_orders import PACKED

from deep_gemm._gates import ROWS
from deep_gemm._targets import GPUS

CONFIG = Path(__file__).resolve().parents[2] / "csrc" / "config"
TARGETS = {"sm90": ["sm_90a"], "sm100": ["sm_100a"], "sm80": ["sm_80", "sm_120a", "sm_86"]}  # whose lists these are
SIZES = [(4096, 4096, 7168), (2048, 2304, 4096), (300, 4096, 7168), (64, 7168, 16384)]
OPERANDS = [
    {},
    {"per_row_b": 1},
    {"gran_k_a": 32, "gran_k_b": 32, "per_row_b": 1},
    {"bf16": 1},
    {"s8": 1},
    {"s8": 1, "gran_k_a": 128, "gran_k_b": 128},
    {"s8": 1, "gran_k_a": 128, "gran_k_b": 128, "per_row_b": 1},
    {"s8": 1, "s4": 1},
    {"s8": 1, "s4": 1, "gran_k_a": 128, "gran_k_b": 128},
    {"s8": 1, "u4": 1, "zeros_k": 32, "gran_k_b": 32},
    {"s4m": 1, "gran_k_b": 128},
    {"e2m1": 1},
    {"bf16": 1, "s4b": 1, "gran_k_b": 32},
    {"bf16": 1, "u8": 1, "gran_k_b": 32},
    {"bf16": 1, "u8": 1, "zeros_k": 32, "gran_k_b": 32},
    {"bf16": 1, "e4m3p": 1},
    {"bf16": 1, "s8b": 1},
]
STEPS = [
    {"quantised": 128},
    {"quantised_words": 32},
    {"random_rounding": 1},
    {"alpha": 1, "row_scale": 1},
    {"add_c": 1},
    {"bias": 1},
    *(
        {"gate": gate, "gate_rows": rows, **more}
        for gate, rows, more in product((1, 3), (0, 1), ({}, {"quantised": 128}, {"add_c": 1}))
    ),
]


def step_problems() -> Iterator[Problem]:
    for (m, n, k), operands, steps in product(SIZES, OPERANDS, STEPS):
        fields = {"m": m, "n": n, "k": k, **operands, **steps}
        if fields.get("gate") and operands.keys() & PACKED.keys():
            fields["gate_rows"] += len(ROWS)  # packed in this order
        yield "dense", fields
        for grouping in ("m_contiguous", "m_psum", "masked"):
            yield grouping, {**fields, "groups": 8, "alignment": 128, "expected_m": m // 2}


def families() -> list[tuple[str, str]]:
    """Of each architecture's list, and of what is shared by all."""
    shared = re.search(rf'"{WOULD_SPILL}([^"]*)"', (CONFIG / "quantised.hpp").read_text())
    found = []
    for arch in TARGETS:
        text = (CONFIG / arch / "spills.hpp").read_text()
        found += [(arch, name) for name in re.findall(rf'"{WOULD_SPILL}([^"]*)"', text)]
        if shared and "kManySwappedScales" in text:
            found.append((arch, shared[1]))
    return found


def config_of(candidate: Candidate) -> dict[str, int]:
    rows, cols, k = candidate.cluster_shape
    return {
        "swap_ab": int(candidate.swapped),
        "tile_rows": candidate.rows,
        "tile_cols": candidate.cols,
        "cluster_rows": rows,
        "cluster_cols": cols,
        "cluster_k": k,
        "k_warpgroups": candidate.k_warpgroups,
        "preconvert": AHEAD.index(candidate.preconvert),
    }


def kernels_of_family(arch: str, family: str, seed: int, problems: int = 60) -> Iterator[tuple[str, Problem, str]]:
    """Target, problem with its config, and text: one of each problem that has any, those with the most sums first."""
    for target in TARGETS[arch]:
        for grouping, fields in problems_of(target, problems, seed):
            try:
                refused = [c for c in parse(explain(grouping, fields, target)) if c.rejection == WOULD_SPILL + family]
            except (ValueError, TypeError):  # no call has these fields together
                continue
            for candidate in sorted(refused, key=lambda c: -c.rows * c.cols)[:1]:
                forced = {**fields, **config_of(candidate)}
                try:
                    yield target, (grouping, forced), spilling_kernel_of(grouping, forced, target)[1]
                except ValueError:  # shared memory has no room for it
                    continue


def problems_of(target: str, count: int, seed: int) -> Iterator[Problem]:
    """So many of each kind, drawn; not all have a call."""
    r, num_sms = random.Random(seed), GPUS[target].sms
    others = every_problem() if arch_of(target) == "sm90" else packed_problems()
    for kind in (list(step_problems()), list(others)):
        for grouping, fields in r.sample(kind, min(count, len(kind))):
            yield grouping, {"num_sms": num_sms, **fields}
    yield from drawn_problems(arch_of(target), count, seed, num_sms, target)
