"""Counts, in the machine code of a few SM100 kernels, what stands in each role's loop, and prints it as Markdown: the
tables of docs/blackwell-choices.md, "Counted in the machine code". Needs no GPU and no disassembler.

    python benchmarks/count_sm100.py
"""

from __future__ import annotations

import paths  # noqa: F401
import sass_sm100 as sass
from field_calls import kernel_of
from tables import table

from deep_gemm._targets import GPUS

LARGE, SMALL = {"m": 4096, "n": 7168, "k": 2048}, {"m": 64, "n": 7168, "k": 2048}
PACKED_BY_US = {"packs_scales_a": 1, "packs_scales_b": 1}
PER_32 = {"gran_k_a": 32, "gran_k_b": 32}
MN_MAJOR = {"mn_major_a": 1, "mn_major_b": 1}
CASES = {
    "BF16": {**LARGE, "bf16": 1},
    "BF16, MN-major": {**LARGE, "bf16": 1, **MN_MAJOR},
    "BF16, D in FP32": {**LARGE, "bf16": 1, "fp32_output": 1},
    "BF16, 64 tokens": {**SMALL, "bf16": 1},
    "FP8, scales packed by us": {**LARGE, **PACKED_BY_US},
    "the same, per 32 of K": {**LARGE, **PACKED_BY_US, **PER_32},
    "the same, tiles of 128 columns": {**LARGE, **PACKED_BY_US, "tile_rows": 128, "tile_cols": 128, "cluster_rows": 2},
    "FP8, scales packed by the caller": LARGE,
    "the same, 64 tokens": SMALL,
    "FP8 by FP4, the public pair": {**LARGE, **PACKED_BY_US, "e2m1r": 1},
    "FP8 by FP4, PackedWeights, 64 tokens": {**SMALL, "packs_scales_a": 1, "e2m1r": 1},
    "FP4 by FP4, MXFP4": {**LARGE, **PACKED_BY_US, **PER_32, "fp4": 1},
    "FP4 by FP4, NVFP4": {**LARGE, **PACKED_BY_US, "gran_k_a": 16, "gran_k_b": 16, "fp4": 1},
}
COLUMNS = [
    "kernel",
    "tile",
    "products",
    "copies of exponents",
    "commits",
    "waits",
    "all",
    "boxes",
    "all by who copies",
    "all by who transposes",
    "fences beyond the CTA",
    "store, an element",
]


FP32 = {"fp32_scales": 1}
FP32_CASES = {
    "blocks": {**LARGE, **FP32},
    "rows": {**LARGE, **FP32, "per_row_b": 1},
    "blocks, 64 tokens": {**SMALL, **FP32},
}
FP32_COLUMNS = [
    "scales of B",
    "tile",
    "products",
    "commits",
    "waits",
    "all",
    "boxes",
    "all by who copies",
    "columns of a warp",
    "FMAs of two",
    "products of two scales",
    "loads of scales",
    "waits of a warp",
    "all by a promoting warp",
]


def tile_of(fields: dict[str, int]) -> str:
    kernel = kernel_of("dense", {"num_sms": GPUS[sass.TARGET].sms, **fields}, sass.TARGET)
    return str(kernel["name"]).split("_dense_")[1].replace("_", " ")


def fp32_row(name: str, fields: dict[str, int]) -> list[object]:
    code = sass.of_problem("dense", fields)
    block, copies, promotion = sass.multiplying(code), sass.copying(code), sass.promoting(code)
    numbers = [block.multiplies, block.commits, block.waits, block.instructions, copies.boxes, copies.instructions]
    return [name, tile_of(fields), *numbers, *promotion]


def row(name: str, fields: dict[str, int]) -> list[object]:
    code = sass.of_problem("dense", fields)
    kernel = kernel_of("dense", {"num_sms": GPUS[sass.TARGET].sms, **fields}, sass.TARGET)
    block, copies = sass.multiplying(code), sass.copying(code)
    transposes = block.scale_copies > 0 and ".row_blocks = true, .col_blocks = true" not in str(kernel["text"])
    words = sass.transposing(code) if transposes else None
    numbers = [block.multiplies, block.scale_copies, block.commits, block.waits, block.instructions]
    numbers += [copies.boxes, copies.instructions, words.instructions if words else 0]
    fences = block.beyond_cta + copies.beyond_cta + (words.beyond_cta if words else 0)
    return [name, tile_of(fields), *numbers, fences, f"{sass.store_instructions(code):.1f}"]


if __name__ == "__main__":
    print(table(COLUMNS, [list(map(str, row(*case))) for case in CASES.items()]))
    print(table(FP32_COLUMNS, [list(map(str, fp32_row(*case))) for case in FP32_CASES.items()]))
