"""sm_120a: CTAs of a cluster split K of few tokens and few weights, and add up in a fixed order."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from candidates import Candidate, can_serve, forced, parse
from devices import SCHEDULES, on_simulator
from field_calls import explain
from test_sm120_products import KINDS, check, pick

import deep_gemm
from deep_gemm import simulator

M, N, K = 3, 24, 2064  # K ends inside a stage; parts have other numbers of stages


def splits(m: int, n: int, k: int, **fields: int) -> list[Candidate]:
    found = parse(explain("dense", {"m": m, "n": n, "k": k, "num_sms": 170, **fields}, "sm_120a"))
    return [tile for tile in found if tile.cluster > 1 and can_serve(tile)]


def tiles() -> list:
    sets = []
    for name, kind in KINDS.items():
        for number, tile in enumerate(splits(M, N, K, **kind.fields)):
            (device,) = on_simulator(SCHEDULES[number % len(SCHEDULES)], arch="sm120")
            frame = "swapped" if tile.swapped else "straight"
            where = f"{name}-{frame}-{tile.rows}x{tile.cols}x{tile.k_warpgroups}-{tile.cluster}"
            sets.append(pytest.param(device.values[0], tile, kind, id=where))
    return sets


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("device", "tile", "kind"), tiles(), indirect=["device"])
def test_every_split_is_right(device, tile: Candidate, kind) -> None:
    with simulator.options(num_sms=170), forced(device, M, N, K, tile):
        check(device, kind, M, N, K)


def bf16_product(schedule: str, tile: Candidate) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randn(rows, K, generator=generator).bfloat16() for rows in (M, N))
    d, device = torch.empty(M, N), torch.device("cpu")
    with simulator.options(target="sm_120a", num_sms=170, schedule=schedule), forced(device, M, N, K, tile):
        deep_gemm.bf16_gemm_nt(a, b, d)
    exact, size = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    assert (d - exact).abs().le(1e-6 * size).all()
    return d


def test_sums_have_the_same_bits_in_any_order_of_arrival() -> None:
    tile = next(tile for tile in splits(M, N, K, bf16=1) if tile.cluster == 4)
    first, *others = (bf16_product(schedule, tile) for schedule in SCHEDULES)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("sms", [48, 170, 188])
def test_few_weights_have_all_sms_read_them(sms) -> None:
    problems = product(("fp8-32", "fp8-mxfp4", "mxfp4", "nvfp4"), (1, 16), (256, 576, 1536))
    for kind, m, n in problems:
        tile = pick(kind, sms, m, n, 7168)
        assert tile.ctas >= 2 / 3 * sms, (kind, m, n, tile)


def test_nothing_is_split_where_rows_must_not_depend_on_m() -> None:
    assert not splits(1, 576, 7168, **KINDS["nvfp4"].fields, batch_invariant=1)
    assert splits(1, 576, 7168, **KINDS["nvfp4"].fields)
