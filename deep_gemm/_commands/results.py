"""Rows of `bench` as a table, as CSV and as a picture."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
_COLUMNS = {
    "weight": "weight",
    "function": "function",
    "shape": "shape",
    "right": "right",
    "difference": "from FP64",
    "us": "us",
    "tflops": "TFLOPS",
    "gb_per_s": "GB/s",
    "torch_us": "torch us",
    "times_as_fast": "torch / ours",
    "torch_is": "torch's",
    "error": "",
}
_DIGITS = {"us": 2, "tflops": 1, "gb_per_s": 0, "torch_us": 2, "times_as_fast": 2}


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "right":
        return "right" if value else "NO"
    if name == "difference":
        return f"{value:.1e}"
    return f"{value:.{_DIGITS[name]}f}" if name in _DIGITS else str(value)


def _columns(rows: Sequence[Row]) -> list[str]:
    return [name for name in _COLUMNS if any(name in row for row in rows)]


def table(rows: Sequence[Row]) -> str:
    """Columns that some row has."""
    names = _columns(rows)
    lines = [[_COLUMNS[name] for name in names], *([_text(name, row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if name in _DIGITS or name == "difference" else text.ljust(width)
            for text, width, name in zip(line, widths, names, strict=True)
        ).rstrip()
        for line in lines
    )


def write_csv(path: str, rows: Sequence[Row]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, _columns(rows))
        writer.writeheader()
        writer.writerows(rows)


def require_matplotlib() -> Any:
    try:
        return importlib.import_module("matplotlib")
    except ImportError:
        raise RuntimeError(
            f"--png needs matplotlib, which is not installed. Run: {sys.executable} -m pip install matplotlib"
        ) from None


def write_png(path: str, rows: Sequence[Row]) -> None:
    """Times of each call, ours and torch's."""
    timed = [row for row in rows if "us" in row]
    if not timed:
        raise RuntimeError("--png draws times, and none was measured")
    matplotlib = require_matplotlib()
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.35 * len(timed)), layout="constrained")
    places = range(len(timed))
    axes.barh([place - 0.2 for place in places], [row["us"] for row in timed], 0.4, label="deep_gemm")
    with_torch = [(place, row["torch_us"]) for place, row in zip(places, timed, strict=True) if "torch_us" in row]
    if with_torch:
        axes.barh([place + 0.2 for place, _ in with_torch], [us for _, us in with_torch], 0.4, label="torch")
    axes.set_yticks(places, [f"{row.get('weight', row['function'])} {row['shape']}" for row in timed], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds on the GPU, from a cold L2")
    axes.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
