"""Packed weights of which a kernel makes E4M3 ahead of a product of FP8 with many tokens (Hopper)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from candidates import forced_tile, parse
from devices import FEW
from inputs import GuardedOutput
from packed_products import KINDS, Tokens, check, weights

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

NAMES = [
    "fp8",
    "fp8-with-minus-eight",
    "fp8-channels",
    "fp8-zeros",
    "fp8-signed-zeros",
    "fp8-zeros-channels",
    "mxfp4-near-exponents",
]
UNPACKED = {name: replace(KINDS[name], scales="k_groups") for name in NAMES}
DEVICES = pytest.mark.parametrize("device", FEW, indirect=True)
# The frame, rows and columns of a tile: those that promote in each way that FP8's kernels have.
TILES = [(False, 64, 64), (False, 128, 128), (False, 128, 144), (True, 128, 32)]


@pytest.mark.sampled(10)
@DEVICES
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(70, 136, 272), (130, 72, 1168)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", UNPACKED.values(), ids=UNPACKED)
def test_products_are_those_of_the_weights(device, kind, biased, m, n, k, tile) -> None:
    generator = torch.Generator().manual_seed(m)
    a = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    bias = torch.randn(n, generator=generator) if biased else None
    d = GuardedOutput((m, n), torch.float32, device)
    with forced_tile(device, (m, n, k), *tile, ahead="b"):
        on_device = None if bias is None else bias.to(device)
        kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, bias=on_device)
    d.check()
    check(d.tensor, a.exact, exact, kind.activations, 0 if bias is None else bias.double())


@DEVICES
def test_weights_are_unpacked_anew_in_each_call(device) -> None:
    kind, generator = KINDS["fp8"], torch.Generator().manual_seed(0)
    a = Tokens(kind, (64, 256), generator)
    w, _ = weights(kind, (1, 64, 256), generator)
    d = torch.empty((64, 64), device=device)
    w = w.to(device)
    with forced_tile(device, (64, 64, 256), False, 64, 64, ahead="b"):
        for _ in range(3):
            other, exact = weights(kind, (64, 256), generator)
            w[0] = other.to(device)
            deep_gemm.fp8_int4_gemm_nt(a.to(device), w[0], d)
            check(d, a.exact, exact, kind.activations)


FIELDS = {
    "int4": {"s4m": 1},
    "int4 with -8": {"s4": 1},
    "zero points": {"u4": 1},
    "mxfp4": {"e2m1x": 1, "gran_k_b": 128},
}


def unpacks(m: int, grouping: str = "dense", target: str = HOPPER_TARGET, **fields: int) -> bool:
    problem = {"m": m, "n": 4096, "k": 7168, "num_sms": HOPPER_SMS, **fields}
    return parse(C.explain(grouping, problem, target))[0].ahead == "b"


@pytest.mark.parametrize("weights", FIELDS)
def test_of_many_tokens_with_scales_of_groups_of_k(weights) -> None:
    assert unpacks(4096, **FIELDS[weights])
    assert not unpacks(64, **FIELDS[weights])


def test_not_where_fp8_kernels_do_not_multiply_such_scales_nor_of_experts() -> None:
    assert not unpacks(4096, s4m=1, gran_k_b=32)
    assert not unpacks(4096, s4m=1, token_scales=1)
    assert not unpacks(4096, "masked", s4m=1, groups=4, expected_m=2048)
    assert not unpacks(4096, s8=1, s4=1)
    assert not unpacks(4096, target="sm_80", s4m=1)


def test_not_where_a_rows_bits_must_not_depend_on_the_number_of_rows() -> None:
    assert not unpacks(4096, s4m=1, batch_invariant=1)


def test_its_product_is_an_fp8_kernel() -> None:
    """The same as of FP8 weights with scales for each row and 128 of K."""
    tile = {"m": 4096, "n": 256, "k": 256, "num_sms": HOPPER_SMS, "tile_rows": 128, "tile_cols": 128}
    of_packed, of_fp8 = (
        C.problem_kernel("dense", tile | more, HOPPER_TARGET) for more in ({"s4m": 1, "ahead": 2}, {"per_row_b": 1})
    )
    assert str(of_packed["text"]) == str(of_fp8["text"])


def test_the_simulator_picks_it_by_itself() -> None:
    kind, generator = KINDS["fp8"], torch.Generator().manual_seed(1)
    a = Tokens(kind, (512, 1024), generator)
    w, exact = weights(kind, (256, 1024), generator)
    d = torch.empty((512, 256))
    assert unpacks(512, n=256, k=1024, num_sms=1, s4m=1)
    with simulator.options(num_sms=1, hazards="error"):
        deep_gemm.fp8_int4_gemm_nt(a.to("cpu"), w, d)
    check(d, a.exact, exact, kind.activations)
