"""What selection thinks of a benchmark case: the configs it has, and their times by the cost model. Needs the built
library, but no GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import paths  # noqa: F401
from shapes import ALIGNMENT, Sizes, sizes_of

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


def totals() -> dict[str, int]:
    """Tokens (K-grouped: of K) that were drawn for each public case."""
    rows = json.loads((Path(__file__).resolve().parent / "cases.json").read_text())["rows"]
    return {json.dumps(row["case"]): row["total"] for row in rows if "total" in row}


def selected(case: Sequence, num_sms: int = HOPPER_SMS) -> tuple[str, float] | None:
    """The config that selection picks for a case, and its estimate in microseconds; None for kinds it does not know.

    Rows of a contiguous layout and the K of K groups are rounded up first, so the estimate is of more than there is.
    """
    sizes = sizes_of(case, totals().get(json.dumps(list(case))))
    if sizes is None:
        return None
    best = candidates(sizes, num_sms)[0]
    return best.name, best.estimate_us
