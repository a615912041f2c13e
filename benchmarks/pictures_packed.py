"""Draws the pictures of docs/low_precision.md and docs/packed-layout.md into docs/images/: bits of codes, and times.

    python benchmarks/pictures_packed.py

Bits are where the library's own packing puts them; times are those of results/h200_humming.json.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import paths  # noqa: F401
import torch
from machine import read_result
from svg import BLUE, GREEN, GREY, IMAGES, ORANGE, RED, Picture

from deep_gemm.weights import codes as code
from deep_gemm.weights.packings import packing_of

RESULT = Path(__file__).resolve().parent / "results" / "h200_humming.json"
WEIGHT = [4096, 7168]
FORMATS = {
    "int8 x int4": BLUE,
    "fp8 x int4": GREEN,
    "fp8 x mxfp4": ORANGE,
    "bf16 x int4": RED,
    "bf16 x mxfp4": GREY,
}
SHADES = ("#cfe0f0", "#a9c7e2", "#83add4", "#5d94c6", "#f6e0c4", "#ecc794", "#e2ad64", "#d89434")
NAMES = "abcdefgh"

Bits = dict[int, tuple[int, int]]  # of a word: the code, and which of its bits


def placed(order: Callable[[torch.Tensor], torch.Tensor]) -> Bits:
    """Of codes that are a byte's first and second ones, whose low three bits are where a code of one such bit is."""
    found: Bits = {}
    for byte in range(4):
        for half in range(2):
            one = {bit: word_of(order, (1 << bit) << 4 * half, byte) for bit in range(3)}
            one[3] = word_of(order, 15 << 4 * half, byte) & ~word_of(order, 7 << 4 * half, byte)
            for bit, word in one.items():
                found |= {at: (4 * half + byte, bit) for at in range(32) if word >> at & 1}
    return found


def word_of(order: Callable[[torch.Tensor], torch.Tensor], value: int, byte: int) -> int:
    codes = torch.zeros(4, dtype=torch.uint8)
    codes[byte] = value
    return int(order(codes).view(torch.int32)) & 0xFFFFFFFF


def placed_16(element: str) -> Bits:
    """Of two codes for each register of a step: one in each half of the word."""
    places = packing_of(element, "bf16").places
    assert places is not None
    return {
        16 * e + place: (2 * register + e, bit)
        for register, row in enumerate(places)
        for bit, place in enumerate(row)
        for e in range(2)
    }


def layouts() -> Picture:
    """A word of eight codes, for each order."""
    orders = (
        ("int8: two's complement", placed(lambda codes: codes)),
        ("fp8: sign and magnitude", placed(code.to_sign_magnitude)),
        ("fp8: MXFP4, looked up", placed(code.to_lookup)),
        ("bf16: int4", placed_16("int4")),
        ("bf16: MXFP4, NVFP4", placed_16("e2m1")),
    )
    p = Picture(760, 60 + 40 * len(orders))
    p.text(170, 18, "bits of a word, 31 on the left", "s")
    for i, (name, bits) in enumerate(orders):
        y = 30 + 40 * i
        p.text(160, y + 18, name, "e")
        assert len(bits) == 32
        for at, (which, bit) in bits.items():
            p.box(170 + 18 * (31 - at), y, 18, 28, SHADES[which], f"{NAMES[which]}{bit}", kind="ms")
    y = 46 + 40 * len(orders)
    p.text(
        10,
        y,
        "a to d, e to h: codes of row r and of row r + 8 along K (bf16: a b, c d, e f, g h are pairs along K of",
        "s",
    )
    p.text(10, y + 12, "registers 0 to 3); 3 is the sign, or the highest bit; 0 the lowest.", "s")
    return p


def times() -> Picture:
    """Beside FP8 weights, and the peer's where it has them."""
    rows = [row for row in read_result(RESULT)["results"] if row["case"][2:] == WEIGHT]
    p, unit, bottom = Picture(760, 330), 105, 280
    p.text(
        10, 16, f"time beside FP8 weights of ours, {WEIGHT[0]}x{WEIGHT[1]} (H200); a line: humming-kernels 0.1.19", "b"
    )
    for level in (0.5, 1, 1.5, 2):
        y = bottom - unit * level
        p.box(40, y, 710, 0.1, "#888")
        p.text(36, y + 4, level, "es")
    for i, row in enumerate(rows):
        us = row["us"]
        for j, (name, colour) in enumerate(FORMATS.items()):
            x, height = 50 + 142 * i + 25 * j, unit * us[name] / us["fp8 x fp8"]
            p.box(x, bottom - height, 22, height, colour)
            peer = unit * us[f"humming {name}"] / us["fp8 x fp8"]
            p.box(x - 1, bottom - peer - 1, 24, 2, "#222")
        p.text(50 + 142 * i + 60, bottom + 16, f"M = {row['case'][1]}", "m")
    for j, (name, colour) in enumerate(FORMATS.items()):
        p.box(50 + 142 * j, bottom + 28, 14, 14, colour)
        p.text(70 + 142 * j, bottom + 40, name)
    return p


PICTURES = {"packed_layouts": layouts, "packed_times": times}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(str(draw()))
