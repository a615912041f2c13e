"""Draws the pictures of docs/blackwell.md into docs/images/: SM100's roles, tensor memory, scales, pairs, operands.

    python benchmarks/pictures_sm100.py

Sizes are those of one kernel, FP8 in a pair with tiles of 128x224; how many stages it has is asked of the library.
"""

from __future__ import annotations

import re

import paths  # noqa: F401
from field_calls import kernel_of
from svg import BLUE, GREEN, GREY, IMAGES, ORANGE, RED, Picture

from deep_gemm._targets import GPUS

QUARTERS = (BLUE, GREEN, ORANGE, RED)

TARGET = "sm_100a"
ROWS, COLS, TENSOR_COLUMNS = 128, 224, 512
ROW_SET, COL_SET = 4, 8  # columns of tensor memory: four for each 128 rows


def stages() -> int:
    fields = {"m": 4096, "n": 7168, "k": 2048, "tile_rows": ROWS, "tile_cols": COLS, "cluster_rows": 2}
    kernel = kernel_of("dense", {**fields, "num_sms": GPUS[TARGET].sms}, TARGET)
    return int(re.findall(r"\.stages = (\d+)", str(kernel["text"]))[0])


def roles() -> Picture:
    """Of a pair: who arrives where."""
    p = Picture(760, 440)
    for y, name in ((10, "CTA 0, the leader"), (250, "CTA 1")):
        p.box(10, y, 740, 180 if y == 10 else 120, "#f7f7f7")
        p.text(20, y + 16, name, "b")
    for y in (40, 290):
        p.box(30, y, 120, 44, BLUE, "warp 4", "copies")
        p.box(210, y, 140, 44, GREEN, "warp 6", "transposes words")
        p.box(600, y, 130, 44, ORANGE, "warps 0 to 3", "store D")
    p.box(390, 130, 150, 44, RED, "warp 5: one lane", "multiplies for both")
    p.text(465, 340, "(warp 5 idles)", "ms")
    p.arrow((150, 62), (210, 62))
    p.arrow((150, 312), (210, 312))
    p.text(180, 56, "full", "m")
    p.text(180, 306, "full", "m")
    p.arrow((300, 84), (410, 130))
    p.arrow((300, 290), (410, 174))
    p.text(318, 118, "ready", "e")
    p.text(318, 250, "ready", "e")
    p.arrow((390, 146), (70, 146), (70, 84))
    p.arrow((390, 160), (70, 160), (70, 290))
    p.text(85, 140, "empty (commit, in both CTAs)")
    p.arrow((520, 130), (620, 84))
    p.arrow((520, 174), (620, 290))
    p.text(556, 106, "sums full", "e")
    p.text(556, 250, "sums full", "e")
    p.arrow((690, 84), (690, 140), (540, 140))
    p.arrow((690, 290), (690, 160), (540, 160))
    p.text(600, 155, "sums empty", "s")
    p.text(
        10, 392, "Arrivals: full 1, and the bytes that the CTA's copies bring · ready 1 of each CTA, at the leader's ·"
    )
    p.text(10, 409, "empty 1, by the commit behind the products that read the stage · sums full 1, by the commit")
    p.text(
        10, 426, "behind a tile's last products · sums empty 4 of each CTA, at the leader's. Warp 7: rows of padding."
    )
    return p


def tensor_memory() -> Picture:
    """Lanes by columns, and the sets of words enlarged."""
    count = stages()
    p = Picture(800, 310)
    left, scale, band = 62, 1.4, 30
    p.text(left, 14, "columns of 32 bits", "s")
    words_at = 2 * COLS
    for warp, colour in enumerate(QUARTERS):
        y = 40 + warp * band
        p.text(left - 6, y + 13, f"warp {warp}", "e")
        p.text(left - 6, y + 25, f"{32 * warp} to {32 * warp + 31}", "es")
        for accumulator in range(2):
            p.box(left + accumulator * COLS * scale, y, COLS * scale, band, colour)
        p.box(left + words_at * scale, y, count * (ROW_SET + COL_SET) * scale, band, GREY)
    p.text(left + COLS * scale / 2, 89, "sums of a tile, FP32: a lane is a row", "m")
    p.text(left + 1.5 * COLS * scale, 89, "of the next tile", "m")
    p.text(left + (words_at + count * (ROW_SET + COL_SET) / 2) * scale, 89, "words", "m")
    end = words_at + count * (ROW_SET + COL_SET)
    for column in (0, COLS, words_at, end):
        p.text(left + column * scale, 34, column, "ms")
    p.text(6, 34, "lanes", "s")

    zoom, y, x = 11, 220, 40
    p.text(x, y - 30, f"the words enlarged: a set for each of {count} stages, the same in each 32 lanes", "s")
    column = words_at
    for name, width, colour in (("rows", ROW_SET, BLUE), ("columns", COL_SET, GREEN)):
        first = x + (column - words_at) * zoom
        p.text(first, y + 52, f"sets 0 to {count - 1} of the tile's {name}")
        for one in range(count):
            at = x + (column - words_at) * zoom
            p.text(at, y - 6, column, "ms")
            p.box(at, y, width * zoom, 34, colour, one)
            column += width
    p.text(x + (column - words_at) * zoom, y - 6, column, "ms")
    p.text(
        x,
        y + 76,
        f"{column} of {TENSOR_COLUMNS} columns; a set has 4 columns for each 128 rows or columns of the tile",
        "s",
    )
    return p


def scales() -> Picture:
    """From a word to tensor memory, and which byte which step takes."""
    p = Picture(800, 480)
    p.text(10, 18, "One word: four exponents of a row", "b")
    for i in range(4):
        p.box(10 + i * 62, 28, 62, 26, QUARTERS[3 - i], f"byte {3 - i}")
    p.text(10, 70, "byte 0, the lowest, is for the lowest K", "s")

    p.text(300, 18, "128 words as callers pack them (MN-major): by row", "b")
    for i, colour in enumerate(QUARTERS):
        p.box(300 + i * 120, 28, 120, 26, colour, f"rows {32 * i} to {32 * i + 31}")

    p.text(10, 112, "in blocks: 32 lines of four", "b")
    for i, line in enumerate((0, 1, 2, None, 31)):
        y = 124 + i * 28
        if line is None:
            p.text(122, y + 14, "...", "m")
            continue
        p.text(6, y + 17, f"line {line}", "s")
        for part, colour in enumerate(QUARTERS):
            p.box(46 + part * 46, y, 46, 26, colour, line + 32 * part)
    p.text(10, 282, "row r: line r % 32, place r / 32", "s")
    p.arrow((420, 58), (420, 84), (140, 84), (140, 96))
    p.text(430, 80, "a warp transposes, or the kernel that packs has written them so", "s")

    p.text(330, 112, "in tensor memory: four columns", "b")
    for quarter in range(4):
        y = 124 + quarter * 38
        p.text(420, y + 15, f"lanes {32 * quarter}", "e")
        p.text(420, y + 29, f"to {32 * quarter + 31}", "e")
        for part, colour in enumerate(QUARTERS):
            p.box(428 + part * 60, y, 60, 36, colour, f"rows {32 * part}", f"to {32 * part + 31}", kind="ms")
    p.arrow((240, 190), (350, 190))
    p.text(295, 183, "cp .warpx4", "ms")
    p.text(680, 160, "each quarter has", "s")
    p.text(680, 174, "all 128 words:", "s")
    p.text(680, 188, "row r in lanes r % 32,", "s")
    p.text(680, 202, "+ 32, + 64, + 96,", "s")
    p.text(680, 216, "column r / 32", "s")

    p.text(10, 318, "Which byte a step multiplies by: four steps of 32 bytes make a K block of 128", "b")
    for y, group in ((332, 128), (392, 32)):
        p.text(10, y + 17, f"{group} of K share a scale")
        for block in range(4):
            for step in range(4):
                number = block if group == 128 else step
                p.box(160 + (block * 4 + step) * 38, y, 38, 26, QUARTERS[number], number)
    for block in range(4):
        p.text(160 + (block * 4 + 2) * 38, 374, f"K block {block}", "ms")
        p.text(160 + (block * 4 + 2) * 38, 434, f"K block {block}, a word", "ms")
    p.text(160, 386, "one word for all four, copied with the first of them", "s")
    p.text(10, 464, "A and B each go by their own row of this picture.", "s")
    return p


def pair() -> Picture:
    """What each CTA of a pair holds."""
    p = Picture(800, 400)
    half = COLS // 2
    x, y, width, height = 210, 90, 224, 128
    p.text(10, 18, f"A pair multiplies {2 * ROWS} rows by {COLS} columns; each CTA keeps what it copied", "b")
    for cta, colour in enumerate((BLUE, GREEN)):
        p.box(x + cta * width / 2, 50, width / 2, 34, colour, f"{half} cols: CTA {cta}")
        p.box(100, y + cta * height, 104, height, colour, f"CTA {cta}:", f"{ROWS} rows x", "128 of K")
        p.box(
            x, y + cta * height, width, height, "#fff", f"sums: {ROWS} lanes x {COLS}", f"in CTA {cta}'s tensor memory"
        )
    p.text(x + width / 2, 44, f"columns' operand, {COLS} x 128 of K", "m")
    p.text(10, y + height, "rows' operand")
    right = 480
    p.text(right, 66, "A stage of each CTA", "b")
    lines = (
        (f"own rows, {ROWS} x 128", ROWS * 128),
        (f"half of the columns, {half} x 128", half * 128),
        ("words of its rows, 128 x 4", 512),
        ("words of all columns, 256 x 4", 1024),
    )
    for i, (name, size) in enumerate(lines):
        p.box(right, 76 + i * 26, 300, 26, GREY, f"{name}: {size:,} bytes")
    p.text(right, 200, f"together {sum(size for _, size in lines):,} bytes")
    p.text(right, 232, "Where no warp transposes words, copies of both")
    p.text(right, 249, "CTAs count on the leader's full barrier; else each")
    p.text(right, 266, "on its own, which its transposing warp waits for.")
    p.text(right, 296, "The instruction, issued by the leader alone,")
    p.text(right, 313, "reads both shared memories at the same offset")
    p.text(right, 330, "and writes both tensor memories at the same")
    p.text(right, 347, "columns. So does cp, each CTA from its own.")
    p.text(10, 376, f"CTA 1 begins {ROWS} rows further on; its copies of columns begin {half} further on.", "s")
    p.text(10, 390, "Both need all columns' words, as both have all columns of their rows' sums.", "s")
    return p


def mn_major() -> Picture:
    """A BF16 stage, K-major and MN-major."""
    p = Picture(800, 330)
    p.text(10, 18, "K-major: a line of 128 bytes for each row", "b")
    for i, row in enumerate((0, 1, "...", 7, 8)):
        y = 32 + i * 26
        p.text(52, y + 17, f"row {row}" if row != "..." else row, "e")
        if row == "...":
            continue
        for step, colour in enumerate(QUARTERS):
            p.box(60 + step * 70, y, 70, 24, colour, f"K {16 * step} to {16 * step + 15}", kind="ms")
    p.text(60, 178, "eight lines, 1,024 bytes: the swizzle's period, and the")
    p.text(60, 194, "descriptor's stride. A step of 16 of K: 32 bytes on.")
    x = 420
    p.text(x, 18, "MN-major: a line of 128 bytes, 64 rows, for each of K", "b")
    for i, k in enumerate((0, 15, 16, 31, 63)):
        y = 32 + i * 26
        p.text(x + 38, y + 17, f"K {k}", "e")
        for block in range(2):
            rows = f"rows {64 * block} to {64 * block + 63}"
            p.box(x + 44 + block * 164, y, 160, 24, QUARTERS[k // 16], rows, kind="ms")
    p.text(x, 178, "A block of 64 rows has 64 lines, 8,192 bytes: the leading")
    p.text(x, 194, "offset. Eight lines, 1,024 bytes: the stride. A step of 16")
    p.text(x, 210, "of K: 16 lines, 2,048 bytes, on.")
    table = (
        ("", "rows of a block", "lines", "a block", "a step along K"),
        ("BF16, FP16", "64", "64", "8,192 bytes", "16 lines, 2,048 bytes"),
        ("FP8", "128", "128", "16,384 bytes", "32 lines, 4,096 bytes"),
    )
    for i, cells in enumerate(table):
        for at, cell in zip((10, 120, 260, 340, 460), cells, strict=True):
            p.text(at, 250 + 20 * i, cell, "b" if i == 0 else "")
    p.text(10, 318, "Colours: what one instruction reads, a step of 16 of K (FP8: 32).", "s")
    return p


def spread() -> Picture:
    """A row of FP4 codes in memory and in a stage, beside one of FP8."""
    p = Picture(800, 250)
    steps = range(4)
    p.text(10, 18, "Memory: 128 codes of a row of FP4, 64 bytes", "b")
    for step in steps:
        for half in range(2):
            first = 32 * step + 16 * half
            p.box(60 + (2 * step + half) * 44, 28, 44, 26, QUARTERS[step], f"K {first}", kind="ms")
    p.text(430, 46, "two codes a byte, along K: 16 codes in 8 bytes")
    p.text(10, 88, "The row of the stage, 128 bytes, before the swizzle", "b")
    for step in steps:
        for half in range(2):
            first, x = 32 * step + 16 * half, 60 + (2 * step + half) * 88
            p.box(x, 98, 44, 26, QUARTERS[step], f"K {first}", kind="ms")
            p.box(x + 44, 98, 44, 26, "#ffffff", "not read", kind="ms")
    p.text(10, 158, "The row of FP8 that it is multiplied by, 128 bytes", "b")
    for step in steps:
        p.box(60 + step * 176, 168, 176, 26, QUARTERS[step], f"K {32 * step} to {32 * step + 31}", kind="ms")
    p.text(60, 220, "A step of 32 of K is 32 bytes on in both. The copy engine counts the 64 bytes of memory.")
    p.text(60, 240, "Colours: what one instruction reads.", "s")
    return p


PICTURES = {
    "sm100_roles": roles,
    "sm100_tensor_memory": tensor_memory,
    "sm100_scales": scales,
    "sm100_pair": pair,
    "sm100_mn_major": mn_major,
    "sm100_spread": spread,
}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(str(draw()))
