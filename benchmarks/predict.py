"""What selection thinks of a benchmark case: the configs it has, and their times by the cost model. Needs the built
library, but no GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

import paths  # noqa: F401
from shapes import ALIGNMENT, Sizes

from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

_LINE = re.compile(
    r"(straight|swapped) (\d+)x(\d+) cluster (\d+)x(\d+)x(\d+) k_warpgroups (\d+) threads (\d+) stages (\d+) .*strip "
    r"(\d+): ([\d.e+-]+) us$"
)


@dataclass(frozen=True)
class Candidate:
    config: tuple[
        int, ...
    ]  # swap_ab, rows, cols, cluster rows, cluster cols, cluster k, k_warpgroups: as C.force_config takes them
    threads: int
    stages: int
    strip: int
    estimate_us: float

    @property
    def name(self) -> str:
        swap_ab, rows, cols, *cluster, k_warpgroups = self.config
        text = f"{'swapped ' if swap_ab else ''}{rows}x{cols}"
        text += "" if cluster == [1, 1, 1] else f" cluster {'x'.join(map(str, cluster))}"
        return text if k_warpgroups == 1 else f"{text} k_warpgroups {k_warpgroups}"


def fields_of(sizes: Sizes, num_sms: int = HOPPER_SMS) -> tuple[str, dict[str, int]]:
    """A problem as tests/support/field_calls.py takes it."""
    fields = {"m": sizes.m, "n": sizes.n, "k": sizes.k, "num_sms": num_sms}
    groups = {**fields, "groups": sizes.groups}
    added = {"fp32_output": 1, "per_row_b": 1, "add_c": 1, "in_place": 1}
    return {
        "dense": ("dense", fields),
        "bf16": ("dense", fields | {"bf16": 1}),
        "wgrad": ("dense", fields | added),
        "kgrouped": ("k_contiguous", groups | added | {"group_maps": 1}),
        "contiguous": ("m_contiguous", groups | {"alignment": ALIGNMENT}),
        "masked": ("masked", groups | {"expected_m": sizes.expected_m}),
    }[sizes.kind]


def explain(sizes: Sizes, num_sms: int = HOPPER_SMS, target: str = HOPPER_TARGET) -> str:
    import field_calls

    return field_calls.explain(*fields_of(sizes, num_sms), target)


def candidates(sizes: Sizes, num_sms: int = HOPPER_SMS, target: str = HOPPER_TARGET) -> list[Candidate]:
    """Legal configs, cheapest first."""
    found = []
    for line in explain(sizes, num_sms, target).splitlines():
        if match := _LINE.match(line):
            swapped, *numbers, estimate = match.groups()
            *config, k_warpgroups, threads, stages, strip = map(int, numbers)
            found.append(
                Candidate((int(swapped == "swapped"), *config, k_warpgroups), threads, stages, strip, float(estimate))
            )
    return found
