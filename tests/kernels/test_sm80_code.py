"""Machine code of GPUs without wgmma, for targets that nothing here can run: no kernel spills, keeps anything in local
memory, or is warned of."""

from __future__ import annotations

from itertools import product

import pytest
from candidates import AHEAD, Candidate, can_serve, parse
from compiled import Compiled, compile_all
from devices import arch_of
from drawn_problems import Problem, drawn_problems
from field_calls import explain, kernel_of
from matrix import ONE_RECIPE, pairs
from sampling import SEED

from deep_gemm._targets import GPUS

# Of every tile: elements, scales, C.
KINDS = {
    "bf16": {"bf16": 1},
    "bf16-c": {"bf16": 1, "fp32_output": 1, "add_c": 1, "in_place": 1},
    "bf16-tt": {"bf16": 1, "mn_major_a": 1, "mn_major_b": 1},
    "fp8-blocks": {},
    "fp8-rows-c": {"per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1},
    "fp8-rows-of-32-c": {"per_row_b": 1, "gran_k_a": 32, "gran_k_b": 32, "fp32_output": 1, "add_c": 1},
    "fp8-32-beside-blocks": {"gran_k_a": 32},
    "int8": {"s8": 1, "bias": 1},
    "int8-groups": {"s8": 1, "gran_k_a": 128, "gran_k_b": 128},
}
# Of packed weights that are unpacked ahead, likewise.
UNPACKED = {
    "bf16-int4": {"bf16": 1, "s4b": 1},
    "fp16-int4-groups-of-32-c": {"fp16": 1, "s4b": 1, "gran_k_b": 32, "add_c": 1, "bias": 1},
    "bf16-nvfp4": {"bf16": 1, "e2m1": 1, "gran_k_b": 16, "conversion_scales": 1},
    "int8-int4-channels": {"s8": 1, "s4": 1, "channel_scales": 1, "asymmetric_a": 1},
    "int8-int4-groups-of-64": {"s8": 1, "s4": 1, "gran_k_a": 128, "gran_k_b": 64},
    "int8-int4-groups-of-32-c": {"s8": 1, "s4": 1, "gran_k_b": 32, "asymmetric_a": 1, "add_c": 1, "fp32_output": 1},
    "fp8-int4": {"s4m": 1},
    "fp8-int4-groups-of-32-c": {"s4m": 1, "gran_k_b": 32, "add_c": 1, "fp32_output": 1, "bias": 1},
}


def compiled(problems: list[Problem], target: str) -> list[Compiled]:
    return compile_all([str(kernel_of(*problem, target)["text"]) for problem in problems], target)


@pytest.mark.parametrize(("target", "count"), [("sm_80", 2), ("sm_86", 1), ("sm_89", 1), ("sm_120a", 2)])
def test_no_drawn_kernel_spills_or_is_warned_of(pytestconfig, target, count) -> None:
    seed = pytestconfig.stash[SEED]
    problems = list(drawn_problems(arch_of(target), count, seed, GPUS[target].sms))
    unclean = [pair for pair in zip(problems, compiled(problems, target), strict=True) if not pair[1].is_clean]
    assert not unclean, f"drawn with seed {seed}: {unclean}"


def tiles() -> list:
    """Every tile of each kind, on targets that convert E4M3, of which one has less shared memory, and on one that
    multiplies it."""
    sets = []
    for (name, fields), target in product((KINDS | UNPACKED).items(), ("sm_80", "sm_86", "sm_120a")):
        problem = {"m": 4096, "n": 4096, "k": 4096, "num_sms": GPUS[target].sms, **fields}
        for tile in filter(can_serve, parse(explain("dense", problem, target))):
            if name in UNPACKED and tile.preconvert != "b":
                continue
            frame = "swapped" if tile.swapped else "straight"
            where = f"{target}-{name}-{frame}-{tile.rows}x{tile.cols}x{tile.k_warpgroups}-{tile.preconvert}"
            sets.append(pytest.param(target, problem, tile, id=where))
    return sets


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("target", "problem", "tile"), tiles())
def test_no_tile_spills(target, problem, tile: Candidate) -> None:
    forced = {
        "swap_ab": int(tile.swapped),
        "tile_rows": tile.rows,
        "tile_cols": tile.cols,
        "k_warpgroups": tile.k_warpgroups,
    }
    forced |= {"preconvert": AHEAD.index(tile.preconvert)}
    (found,) = compiled([("dense", {**problem, **forced})], target)
    assert found.is_clean, found


def test_large_tiles_are_among_them() -> None:
    """Those that the speed of large products hangs on, whatever spills."""
    known = {each.id for each in tiles()}
    for target, tile in product(("sm_80", "sm_120a"), ("128x128x1", "128x256x1", "256x128x1")):
        for name in ("bf16", "fp8-blocks") if tile == "128x128x1" else ("bf16",):
            assert f"{target}-{name}-straight-{tile}-none" in known
    assert "sm_80-fp8-blocks-straight-128x128x1-a" in known
    assert {f"sm_80-{name}-straight-128x128x1-b" for name in ("bf16-int4", "bf16-nvfp4", "int8-int4-channels")} <= known
    assert "sm_120a-fp8-int4-straight-128x128x1-b" in known


def has_calls(grouping: str, gran_k_a: int | None, gran_k_b: int | None) -> bool:
    return grouping not in ONE_RECIPE or gran_k_a == gran_k_b != (32 if grouping == "k_contiguous" else 0)


def test_draws_meet_all_that_the_pair_table_has() -> None:
    met = set()
    for grouping, fields in drawn_problems("sm80", 4000, 1, 108):
        (output,) = (name.removesuffix("_output") for name in fields if name.endswith("_output"))
        element = next((name for name in ("bf16", "fp16", "s8") if name in fields), "e4m3")
        met.add((element, grouping, output, "per_row_b" in fields, fields.get("gran_k_a"), fields.get("gran_k_b")))
    wanted = set()
    for pair in (pair for pair in pairs() if pair.arch == "sm80"):
        for a, b in product(pair.scalings_a or (None,), pair.scalings_b or (None,)):
            grans = [None if x is None or x.k < 0 else x.k for x in (a, b)]
            rows = b is not None and b.rows == 1
            kinds = product(pair.groupings, pair.outputs)
            wanted |= {(pair.a, *kind, rows, *grans) for kind in kinds if has_calls(kind[0], *grans)}
    assert met == wanted
