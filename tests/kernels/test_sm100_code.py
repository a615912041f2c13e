"""SM100's machine code, which nothing here can run: no kernel spills, no compiler warns of one, and the loops over K
have what their design needs (docs/blackwell-choices.md, "Counted in the machine code").

A few problems are drawn in each run; benchmarks/compile_drawn.py compiles 2,000.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
import sass
import sass_sm100
from compiled import compile_all
from drawn_problems import drawn_problems, kind_of
from every_problem import packed_problems
from field_calls import kernel_of
from matrix import pairs
from sampling import SEED

from deep_gemm._targets import GPUS

SCALED = {"packs_scales_a": 1, "packs_scales_b": 1}


@pytest.mark.parametrize(("target", "count"), [("sm_100a", 8), ("sm_100f", 2), ("sm_103a", 2)])
def test_no_drawn_kernel_spills_or_is_warned_of(pytestconfig, target, count) -> None:
    seed = pytestconfig.stash[SEED]
    problems = list(drawn_problems("sm100", count, seed, GPUS[target].sms, target))
    texts = [str(kernel_of(*problem, target)["text"]) for problem in problems]
    unclean = [pair for pair in zip(problems, compile_all(texts, target), strict=True) if not pair[1].is_clean]
    assert not unclean, f"drawn with seed {seed}: {unclean}"


@pytest.mark.parametrize("target", ["sm_100a", "sm_100f"])
def test_no_kernel_of_packed_weights_spills_or_is_warned_of(pytestconfig, target) -> None:
    """A few of what tests compile for Hopper."""
    seed = pytestconfig.stash[SEED]
    multiplied = [
        (grouping, fields) for grouping, fields in packed_problems() if target == "sm_100a" or "s8" not in fields
    ]
    problems = random.Random(seed).sample(multiplied, 3)
    texts = [str(kernel_of(g, {"num_sms": GPUS[target].sms, **fields}, target)["text"]) for g, fields in problems]
    unclean = [pair for pair in zip(problems, compile_all(texts, target), strict=True) if not pair[1].is_clean]
    assert not unclean, f"drawn with seed {seed}: {unclean}"


def test_an_image_for_the_family_is_that_for_b200() -> None:
    problem = {"m": 4096, "n": 7168, "k": 2048, "num_sms": GPUS["sm_100a"].sms}
    codes = [sass.code(sass.cubin_of("dense", problem, target)) for target in ("sm_100a", "sm_100f")]
    assert codes[0] == codes[1]


def test_draws_are_repeatable_and_meet_all_that_the_pair_table_has() -> None:
    first = list(drawn_problems("sm100", 2000, 1, 148))
    assert first[:10] == list(drawn_problems("sm100", 10, 1, 148)) != list(drawn_problems("sm100", 10, 2, 148))
    wanted = {
        (pair.a, pair.b, grouping, output)
        for pair in pairs()
        if pair.arch == "sm100"
        for grouping, output in product(pair.groupings, pair.outputs)
    }
    assert {kind_of(problem) for problem in first} == wanted
    scaled = [fields for _, fields in first if "packs_scales_a" in fields and "fp4" not in fields]
    names = ("gran_k_a", "gran_k_b", "packs_scales_a", "packs_scales_b")
    assert len({tuple(fields[name] for name in names) for fields in scaled}) == 16
    assert {"per_row_b" in fields for _, fields in first if "fp32_scales" in fields} == {True, False}
    gated = [fields for _, fields in first if fields.get("gate")]
    elements = {next((name for name in ("bf16", "fp16", "s8") if name in fields), "e4m3") for fields in gated}
    assert elements == {"bf16", "fp16", "s8", "e4m3"}
    assert {"quantised", "quantised_words"} <= {name for fields in gated for name in fields}


SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) planted(float* x) {
    float values[64];
    for (int i = 0; i < 64; ++i) values[i] = x[i * 32 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 64; ++i) x[i * 32 + threadIdx.x] = values[i] * values[63 - i];
}
"""
WARNED_OF = 'extern "C" __global__ void planted(int* x) { int unused; x[0] = 1 / 0; }'
CLEAN = 'extern "C" __global__ void planted(int* x) { x[0] = 1; }'


def test_spills_warnings_and_errors_are_found() -> None:
    spills, warned, broken, clean = compile_all([SPILLS, WARNED_OF, "int x = y;", CLEAN], "sm_100a")
    assert spills.spill_bytes > 0
    assert "division by zero" in warned.complaints
    assert '"y" is undefined' in broken.error
    assert [each.is_clean for each in (spills, warned, broken, clean)] == [False, False, False, True]
    assert 0 < clean.registers < 32


def test_a_tile_that_would_spill_is_refused() -> None:
    """Half of 256 columns a warp beside FP32 scales of blocks; 224, or scales of rows, leave room."""
    problem = {"m": 4096, "n": 2432, "k": 1536, "fp32_scales": 1, "num_sms": 148, "tile_rows": 128}
    with pytest.raises(ValueError, match="it would spill registers"):
        kernel_of("dense", problem | {"tile_cols": 256}, "sm_100a")
    fit = [problem | {"tile_cols": 224}, problem | {"tile_cols": 256, "per_row_b": 1}]
    texts = [str(kernel_of("dense", each, "sm_100a")["text"]) for each in fit]
    assert all(each.is_clean for each in compile_all(texts, "sm_100a"))


@pytest.mark.parametrize(
    ("tile", "per_row_b", "columns"), [((128, 224, 2), 0, 112), ((128, 192, 2), 1, 96), ((128, 48, 1), 1, 48)]
)
def test_two_sums_are_scaled_and_added_by_an_instruction(tile, per_row_b, columns) -> None:
    """With the scales' products where columns have some, and a load of each column, that is all: no sum is moved."""
    rows, cols, cluster_rows = tile
    forced = {"tile_rows": rows, "tile_cols": cols, "cluster_rows": cluster_rows}
    sizes = {"m": 4096, "n": 7168, "k": 2048}
    code = sass_sm100.of_problem("dense", {**sizes, **forced, "fp32_scales": 1, "per_row_b": per_row_b})
    block = sass_sm100.promoting(code)
    assert block[:3] == (columns, columns // 2, per_row_b * columns // 2)
    assert block.scale_loads == (1 + columns // 4 if per_row_b else 1 + columns // 16)
    assert block.waits == 2
    assert block.instructions <= columns + 80


@pytest.mark.parametrize(
    ("problem", "scale_copies", "boxes"),
    [
        ({"m": 4096, "n": 7168, "k": 2048, "bf16": 1}, 0, 2),
        ({"m": 64, "n": 7168, "k": 2048, "bf16": 1}, 0, 2),
        ({"m": 4096, "n": 7168, "k": 2048, **SCALED}, 3, 4),  # 128 rows, and 224 columns in blocks of 128
        ({"m": 4096, "n": 7168, "k": 2048, "gran_k_a": 32, "gran_k_b": 32, **SCALED}, 3, 4),
        ({"m": 4096, "n": 7168, "k": 2048, "e2m1r": 1, **SCALED}, 3, 4),
    ],
)
def test_a_k_block_is_a_wait_its_products_and_a_commit(problem, scale_copies, boxes) -> None:
    code = sass_sm100.of_problem("dense", problem)
    block, copies = sass_sm100.multiplying(code), sass_sm100.copying(code)
    assert (block.multiplies, block.scale_copies) == (4, scale_copies)
    assert (block.waits, block.commits, block.elections) == (1, 1, 1)
    assert (copies.boxes, copies.waits, copies.arrivals) == (boxes, 1, 1)


@pytest.mark.parametrize(("group", "words"), [(32, 2), (16, 4)])
def test_a_k_block_of_fp4_waits_for_its_words_too(group, words) -> None:
    """256 of K: each word of 128 rows, and of the 192 or 224 columns in two blocks, is a copy, but not a box."""
    problem = {"m": 4096, "n": 7168, "k": 2048, "fp4": 1, "gran_k_a": group, "gran_k_b": group, **SCALED}
    code = sass_sm100.of_problem("dense", problem)
    block, copies = sass_sm100.multiplying(code), sass_sm100.copying(code)
    assert (block.multiplies, block.scale_copies) == (4, 3 * words)
    assert (block.waits, block.commits, block.elections) == (2, 1, 1)
    assert (copies.boxes, copies.waits, copies.arrivals) == (4, 1, 1)
