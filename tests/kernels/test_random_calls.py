"""Calls of every kind with random sizes, settings, schedules and tiles, against FP64: what no list of cases has.

A few of them run as tests. For longer, on the simulator or a GPU, with the seed of each failure printed:

    PYTHONPATH=.:tests/support python3 tests/kernels/test_random_calls.py SEED SECONDS [cuda]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial

import bf16_grouped_inputs as bf16_grouped
import bf16_inputs
import k_grouped_inputs as k_grouped
import pytest
import torch
from candidates import forced_tile, parse, target_of
from devices import ON_GPU, on_simulator
from grouped_inputs import Contiguous, Masked, alignment_of, contiguous, masked, run_experts
from inputs import (
    FP8,
    GuardedOutput,
    Operand,
    is_blackwell,
    mn_major,
    random_blocks,
    random_rows,
    random_values,
    with_awkward_strides,
    with_row_padding,
)
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS

DTYPES = [torch.bfloat16, torch.float32, torch.float16]
EXTENTS = [1, 7, 8, 16, 33, 63, 64, 65, 127, 128, 129, 191, 193, 255, 256, 300]
TILES = [(rows, cols) for rows in (64, 128, 192, 256) for cols in (16, 32, 64, 96, 112, 128, 192, 256)]


def extent(r: random.Random, most: int = 600) -> int:
    return r.choice([*EXTENTS, r.randint(1, most)])


def with_some_tile(
    r: random.Random, device: torch.device, sizes: tuple[int, int, int], call: Callable[[], None]
) -> None:
    """Often with a tile that selection would not pick; where that cannot serve, with its own."""
    if r.random() < 0.5:
        try:
            with forced_tile(device, sizes, r.random() < 0.3, *r.choice(TILES)):
                return call()
        except ValueError:
            pass
    return call()


def dense(r: random.Random, device: torch.device) -> None:
    m, n, k, bf16 = extent(r), extent(r), 16 * r.choice([1, 2, 7, 8, 9, 32, 64, r.randint(1, 90)]), r.random() < 0.4
    per_row, dtype, layout = not bf16 and r.random() < 0.4, r.choice(DTYPES), r.choice(["nt", "nt", "nn", "tn", "tt"])
    out = GuardedOutput((m, n), dtype, device, n + r.choice([0, 0, 1, 4, 8]), 64 + r.choice([0, 0, 1, 2, 8]))
    c, in_place = (random_values((m, n), device, 2) * 10).to(dtype) if r.random() < 0.5 else None, r.random() < 0.5
    fields = {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS, "bf16": int(bf16), "per_row_b": int(per_row)}
    legal = [x for x in parse(C.explain("dense", fields, target_of(device))) if x.rejection is None]
    if bf16:
        a, b = bf16_inputs.operands(m, n, k, device, dtype=operands_for(r, dtype))
        gemm = partial(bf16_inputs.call, layout, a, b, out.tensor, r.choice([0, 8]))
    else:
        a, b = random_rows((m, k), device, 0), (random_rows if per_row else random_blocks)((n, k), device, 1)
        operands, recipe = lying(r, a, b, layout), {"recipe": (1, 1, 128)} if per_row else {}
        gemm = partial(getattr(deep_gemm, f"fp8_gemm_{layout}"), *operands, out.tensor, **recipe)

    def call() -> None:
        if c is None:
            return gemm()
        if in_place:
            out.tensor.copy_(c)
        return gemm(c=out.tensor if in_place else c)

    tile = r.choice(legal)
    try:
        with forced_tile(device, (m, n, k), tile.swapped, tile.rows, tile.cols, tile.cluster_shape, tile.turns):
            call()
    except ValueError:  # D, C or a setting want another one
        call()
    out.check()
    (bf16_inputs.matches if bf16 else matches)(out.tensor, a, b, c)


def operands_for(r: random.Random, dtype: torch.dtype) -> torch.dtype:
    """Of 16 bits, for a D of this dtype."""
    return r.choice([of_operands for of_operands, of_d in bf16_inputs.KINDS if of_d == dtype])


def matches(d: torch.Tensor, a: Operand, b: Operand, c: torch.Tensor | None) -> None:
    assert_matches(d, product_nt(a, b, c))


def lying(r: random.Random, a: Operand, b: Operand, layout: str) -> list[Operand]:
    """FP8 operands as a call of this layout takes them: its second letter says how B lies where it is [K, N]."""
    if layout == "nt":
        move = r.choice([torch.Tensor.contiguous, mn_major, with_awkward_strides])
        return [Operand(with_row_padding(a.data, r.choice([0, 16, 64])), move(a.scales)), b]
    turned = [Operand(x.data.view(torch.uint8).T.contiguous().view(FP8), x.scales.T.contiguous()) for x in (a, b)]
    return [turned[0] if layout[0] == "t" else a, turned[1] if layout[1] == "n" else b]


def experts(r: random.Random, device: torch.device) -> None:
    counts = [r.choice([0, 1, 7, 64, 65, 128, 129, r.randint(0, 400)]) for _ in range(r.randint(1, 7))]
    n, k, psum, nn = extent(r, 400), 16 * r.randint(1, 50), r.random() < 0.5, r.random() < 0.5
    most, hint, dtype = max(1, *counts) + r.choice([0, 5]), r.choice([1, 8, 30, 200]), r.choice(DTYPES)
    bf16, is_masked, of_operands = r.random() < 0.4, r.random() < 0.5, operands_for(r, dtype)
    with alignment_of(alignment := r.choice([16 if is_blackwell(device) else 8, 64, 128, 256] if bf16 else [64, 128])):
        if bf16 and is_masked:
            sizes, run = most, partial(bf16_grouped.run_masked, counts, most, n, k, device, hint, dtype, of_operands)
        elif bf16:
            case = bf16_grouped.Experts([1, *counts], n, k, device, alignment, of_operands)
            sizes, run = case.a.shape[0], partial(bf16_grouped.run_contiguous, case, psum, nn, dtype)
        else:
            made = (
                masked(counts, most, n, k, device) if is_masked else contiguous([1, *counts], n, k, device, alignment)
            )
            sizes, run = most if is_masked else made.m, partial(run_fp8, made, dtype, hint, psum)
        with_some_tile(r, device, (sizes, n, k), run)


def run_fp8(case: Contiguous | Masked, dtype: torch.dtype, hint: int, psum: bool) -> None:
    out = case.output(dtype)
    run_experts(case, out.tensor, hint, psum)
    out.check(complete=False)
    case.check(out.tensor)


def k_groups(r: random.Random, device: torch.device) -> None:
    m, n, ks = extent(r, 300), extent(r, 300), [16 * r.choice([0, 1, 8, 9, r.randint(0, 40)]) for _ in range(4)]
    add, layout = r.choice(["nothing", "c_is_d", "c_separate"]), r.choice(k_grouped.LAYOUTS)
    dtype = r.choice([torch.float32, *DTYPES])
    case = k_grouped.groups(m, n, ks, device)
    with_some_tile(r, device, (m, n, 256), lambda: k_grouped.run(case, layout, add, dtype))


def random_call(seed: str, device: torch.device) -> None:
    r = random.Random(seed)
    settings = {"batch_invariant": r.randint(0, 1), "ignore_compile_dims": int(r.random() < 0.3)}
    settings |= r.choice([{}, {"block_n_multiple_of": 32}])
    where = (device.type == "cpu", device.index or 0)
    before = {name: C.get_call_setting(*where, name) for name in settings}
    try:
        for name, value in settings.items():
            C.set_call_setting(*where, name, value)
        with simulator.options(num_sms=r.choice([HOPPER_SMS, 78, 7, 1])):
            r.choice([dense, experts, k_groups])(r, device)
    finally:
        for name, value in before.items():
            C.set_call_setting(*where, name, value)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    "device",
    [*on_simulator("random"), *on_simulator("random", arch="sm80"), *on_simulator("random", arch="sm100"), *ON_GPU],
    indirect=True,
)
@pytest.mark.parametrize("seed", range(60))
def test_random_call(device, seed) -> None:
    random_call(f"call {seed}", device)


def main(seed: str, seconds: float, where: str = "cpu") -> int:
    failed, calls, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        name = f"{seed} {calls}"
        try:
            with simulator.options(schedule="random", seed=calls, hazards="error"):
                random_call(name, torch.device(where))
        except Exception as error:
            failed += 1
            print(f"{name!r}: {type(error).__name__}: {error}", flush=True)
        calls += 1
    print(f"{calls} calls, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]))
