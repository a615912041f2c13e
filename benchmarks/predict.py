"""What the cost model says that a benchmark case takes. Needs the built library, but no GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import paths  # noqa: F401

MASKED_MAX_M = 4096  # as in problems.py, which needs more than this file does


def totals() -> dict[str, int]:
    """Tokens (K-grouped: of K) that were drawn for each case."""
    rows = json.loads((Path(__file__).resolve().parent / "cases.json").read_text())["rows"]
    return {json.dumps(row["case"]): row["total"] for row in rows if "total" in row}


def selected(case: Sequence, num_sms: int = 132) -> tuple[str, float] | None:
    """The config that selection picks for a case, and its estimate in microseconds; None for kinds it does not know."""
    from deep_gemm._extension import C

    kind, *sizes = case
    total = totals().get(json.dumps(list(case)))
    if kind == "dense":
        text = C.explain(*sizes, num_sms)
    elif kind == "wgrad":
        m, k, n = sizes
        text = C.explain_per_row(0, m, n, k, False, True, num_sms)
    elif kind == "kgrouped":
        groups, m, n, mean_k = sizes
        text = C.explain_per_row(groups, m, n, total or groups * mean_k, True, True, num_sms)
    elif kind == "masked":
        experts, tokens, n, k = sizes
        text = C.explain_grouped("masked", experts, MASKED_MAX_M, tokens, n, k, 128, num_sms)
    elif kind == "contiguous":
        experts, tokens, n, k = sizes
        padded = (total or experts * tokens) + experts * 64  # half a block of 128 each, on average
        text = C.explain_grouped("m_contiguous", experts, padded // 128 * 128, 0, n, k, 128, num_sms)
    else:
        return None
    first = text.splitlines()[0]
    match = re.match(r"(\w+ \S+ cluster \S+).*: ([\d.e+-]+) us$", first)
    return (match[1].replace("straight ", "").replace(" cluster 1x1x1", ""), float(match[2])) if match else None
