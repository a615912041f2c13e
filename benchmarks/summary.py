"""Classes of cases, and what became of each class. Needs neither torch nor the library."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

# Classes that results are averaged over, with the speed-up over the anchors that each must reach.
CLASSES: list[tuple[str, float, Callable[[Sequence], bool]]] = [
    ("dense M <= 32", 1.20, lambda c: c[0] == "dense" and c[1] <= 32),
    ("dense M = 64..128", 1.15, lambda c: c[0] == "dense" and 32 < c[1] <= 128),
    ("dense M = 256..512", 1.20, lambda c: c[0] == "dense" and 128 < c[1] <= 512),
    ("dense M = 4096", 1.05, lambda c: c[0] == "dense" and c[1] > 512),
    ("wgrad", 1.20, lambda c: c[0] == "wgrad"),
    ("contiguous, 4-8 experts", 1.04, lambda c: c[0] == "contiguous" and c[1] <= 8),
    ("contiguous, 32-64 experts", 1.12, lambda c: c[0] == "contiguous" and c[1] > 8),
    ("masked, >= 192 tokens", 1.10, lambda c: c[0] == "masked" and c[2] > 20),
    ("masked, <= 20 tokens", 1.08, lambda c: c[0] == "masked" and c[2] <= 20),
    ("k-grouped", 1.20, lambda c: c[0] == "kgrouped"),
    ("BF16 M <= 128", 1.12, lambda c: c[0] == "bf16" and c[1] <= 128),
    ("BF16 M = 4096", 1.00, lambda c: c[0] == "bf16" and c[1] > 128),
]


def class_of(case: Sequence) -> str:
    return next((name for name, _, belongs in CLASSES if belongs(case)), "other")


def geometric_mean(values: list[float]) -> float | None:
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


def summarise(results: list[dict]) -> list[dict]:
    rows = []
    for name, target in [(name, target) for name, target, _ in CLASSES] + [("other", None)]:
        own = [result for result in results if result["class"] == name]
        if not own:
            continue
        timed = [result for result in own if "us" in result]
        speed_ups = [result["speed_up"] for result in timed if result["speed_up"]]
        rows.append(
            {
                "class": name,
                "cases": len(own),
                "timed": len(timed),
                "wrong": sum(result["status"].startswith("WRONG") for result in own),
                "efficiency": geometric_mean([result["efficiency"] for result in timed if result["efficiency"]]),
                "speed_up": geometric_mean(speed_ups),
                "slowest": min(speed_ups, default=None),
                "target": target,
            }
        )
    return rows
