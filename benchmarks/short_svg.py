"""Saves matplotlib's figures as short SVG: coordinates have two decimals, of which a screen shows one."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt


def save(figure: plt.Figure, path: Path, **options) -> None:
    figure.savefig(path, metadata={"Date": None}, **options)
    plt.close(figure)
    text = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), path.read_text())
    path.write_text(re.sub(r"\n\s+", "\n", text))
