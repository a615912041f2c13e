"""Classes of cases, and what became of each class. Needs neither torch nor the library."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

KNOWN_GPU = "NVIDIA H200"  # whose limits the floors are (problems.py)

# Classes of the public cases (cases.json) that results are averaged over.
PUBLIC_CLASSES: list[tuple[str, Callable[[Sequence], bool]]] = [
    ("dense M <= 32", lambda c: c[0] == "dense" and c[1] <= 32),
    ("dense M = 64..128", lambda c: c[0] == "dense" and 32 < c[1] <= 128),
    ("dense M = 256..512", lambda c: c[0] == "dense" and 128 < c[1] <= 512),
    ("dense M = 4096", lambda c: c[0] == "dense" and c[1] > 512),
    ("wgrad", lambda c: c[0] == "wgrad"),
    ("contiguous, 4-8 experts", lambda c: c[0] == "contiguous" and c[1] <= 8),
    ("contiguous, 32-64 experts", lambda c: c[0] == "contiguous" and c[1] > 8),
    ("masked, >= 192 tokens", lambda c: c[0] == "masked" and c[2] > 20),
    ("masked, <= 20 tokens", lambda c: c[0] == "masked" and c[2] <= 20),
    ("k-grouped", lambda c: c[0] == "kgrouped"),
    ("BF16 M <= 128", lambda c: c[0] == "bf16" and c[1] <= 128),
    ("BF16 M = 4096", lambda c: c[0] == "bf16" and c[1] >= 4096),
]


# Classes of other models' shapes (models.json).
MODEL_CLASSES: list[tuple[str, Callable[[Sequence], bool]]] = [
    ("models, dense M <= 16", lambda c: c[0] == "dense" and c[1] <= 16),
    ("models, dense M = 64..128", lambda c: c[0] == "dense" and 16 < c[1] <= 128),
    ("models, dense M = 384..1000", lambda c: c[0] == "dense" and 128 < c[1] <= 1000),
    ("models, dense M >= 2048", lambda c: c[0] == "dense" and c[1] > 1000),
    ("models, contiguous, >= 256 tokens", lambda c: c[0] == "contiguous" and c[2] >= 256),
    ("models, contiguous, < 256 tokens", lambda c: c[0] == "contiguous" and c[2] < 256),
    ("models, masked, >= 64 tokens", lambda c: c[0] == "masked" and c[2] >= 64),
    ("models, masked, < 64 tokens", lambda c: c[0] == "masked" and c[2] < 64),
    ("models, k-grouped", lambda c: c[0] == "kgrouped"),
    ("models, weight gradient", lambda c: c[0] == "wgrad"),
    ("models, BF16 experts", lambda c: c[0] in ("bf16_contiguous", "bf16_masked")),
    ("models, BF16 k-grouped", lambda c: c[0] == "bf16_kgrouped"),
]

# Classes of cases at random (drawn_cases.py).
DRAWN_CLASSES: list[tuple[str, Callable[[Sequence], bool]]] = [
    ("drawn, dense M <= 32", lambda c: c[0] == "dense" and c[1] <= 32),
    ("drawn, dense M = 33..256", lambda c: c[0] == "dense" and 32 < c[1] <= 256),
    ("drawn, dense M = 257..2048", lambda c: c[0] == "dense" and 256 < c[1] <= 2048),
    ("drawn, dense M > 2048", lambda c: c[0] == "dense" and c[1] > 2048),
    ("drawn, contiguous", lambda c: c[0] == "contiguous"),
    ("drawn, masked", lambda c: c[0] == "masked"),
    ("drawn, weight gradient", lambda c: c[0] == "wgrad"),
    ("drawn, BF16", lambda c: c[0] == "bf16"),
]

CLASSES_OF = {
    "public": PUBLIC_CLASSES,
    "models": MODEL_CLASSES,
    "drawn": DRAWN_CLASSES,
}


def class_of(case: Sequence, source: str = "public") -> str:
    return next((name for name, belongs in CLASSES_OF[source] if belongs(case)), "other")


def is_public(result: dict) -> bool:
    return all(result["class"] != name for name, _ in MODEL_CLASSES + DRAWN_CLASSES)


def geometric_mean(values: list[float]) -> float | None:
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


def summarise(results: list[dict]) -> list[dict]:
    rows = []
    for name in [*(name for named in CLASSES_OF.values() for name, _ in named), "other"]:
        own = [result for result in results if result["class"] == name]
        if not own:
            continue
        timed = [result for result in own if "us" in result]
        efficiencies = [result["efficiency"] for result in timed if result["efficiency"]]
        over_cublas, over_deepgemm = (
            [result[other] / result["us"] for result in timed if result.get(other)]
            for other in ("cublas_us", "deepgemm_us")
        )
        rows.append(
            {
                "class": name,
                "cases": len(own),
                "timed": len(timed),
                "wrong": sum(result["status"].startswith("WRONG") for result in own),
                "efficiency": geometric_mean(efficiencies),
                "least_efficient": min(efficiencies, default=None),
                "against_cublas": len(over_cublas),
                "over_cublas": geometric_mean(over_cublas),
                "slowest_over_cublas": min(over_cublas, default=None),
                "against_deepgemm": len(over_deepgemm),
                "over_deepgemm": geometric_mean(over_deepgemm),
                "slowest_over_deepgemm": min(over_deepgemm, default=None),
            }
        )
    return rows
