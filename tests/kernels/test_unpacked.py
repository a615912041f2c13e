"""Packed weights of which a kernel makes rows of what tensor cores multiply, ahead of a product with many tokens: E4M3
on Hopper, and what activations are on GPUs without wgmma."""

from __future__ import annotations

from dataclasses import replace

import bf16_weight_inputs as wide
import pytest
import torch
from candidates import forced_tile
from devices import FEW, devices_of, on_simulator
from guarded_products import guarded_product
from kind_marks import ACTIVATIONS, EVERY_WIDE_KIND
from packed_products import KINDS, Kind, Tokens, check, weights

import deep_gemm

UNPACKED_B = (1, 1, 1), 1, "b"  # of tiles: cluster, warpgroups that share K, and what is unpacked
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


@pytest.mark.sampled(6)
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
    on_device = None if bias is None else bias.to(device)
    d = guarded_product(kind, a, w, device, tile=(*tile, *UNPACKED_B), bias=on_device)
    check(d, a.exact, exact, kind.activations, 0 if bias is None else bias.double())


# Of GPUs without wgmma. N and K end inside blocks.
SM80 = pytest.mark.parametrize("device", devices_of("sm80", "any"), indirect=True)
SM80_WITH_E4M3 = pytest.mark.parametrize("device", on_simulator("any", arch="sm_89"), indirect=True)
SM80_TILES = pytest.mark.parametrize("tile", [(64, 64), (64, 128), (128, 64), (128, 128)], ids=str)
SM80_SIZES = pytest.mark.parametrize("size", [(70, 136, 640), (130, 72, 1168), (65, 200, 144)], ids=str)
ADDED = pytest.mark.parametrize("added", ["nothing", "bias", "c"])


def of_activations(*activations: str):
    """Each kind of weights beside these that is ever unpacked on GPUs without wgmma: "int4" multiplies four bits."""
    kinds = {name: kind for name, kind in KINDS.items() if kind.activations in activations and name != "int4"}
    return pytest.mark.parametrize("kind", kinds.values(), ids=kinds)


def what_is_added(added: str, m: int, n: int, device: torch.device, generator: torch.Generator):
    """Arguments of a product, and what they add."""
    if added == "nothing":
        return {}, 0
    value = torch.randn((n,) if added == "bias" else (m, n), generator=generator)
    return {added: value.to(device)}, value.double()


def run(device: torch.device, kind: Kind, added: str, size: tuple[int, int, int], tile: tuple[int, int]) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(m)
    tokens = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    if w.scales.shape[-2] * 32 >= k:
        tile = (64, 64)  # others would spill beside scales for 32 of K
    arguments, more = what_is_added(added, m, n, device, torch.Generator().manual_seed(k))
    d = guarded_product(kind, tokens, w, device, tile=(False, *tile, *UNPACKED_B), **arguments)
    check(d, tokens.exact, exact, kind.activations, more)


@pytest.mark.sampled(5)
@SM80
@SM80_TILES
@SM80_SIZES
@ADDED
@of_activations("int8", "int4")
def test_beside_integers(device, kind, added, size, tile) -> None:
    run(device, kind, added, size, tile)


@pytest.mark.sampled(4)
@SM80_WITH_E4M3
@SM80_TILES
@SM80_SIZES
@ADDED
@of_activations("fp8")
def test_beside_e4m3_where_tensor_cores_without_wgmma_multiply_it(device, kind, added, size, tile) -> None:
    run(device, kind, added, size, tile)


def run_wide(
    device: torch.device, kind: wide.Kind, dtype: torch.dtype, added: str, size, tile: tuple[int, int]
) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(n)
    a = wide.activations((m, k), dtype, generator)
    w, exact = wide.weights(kind, (n, k), generator)
    arguments, more = what_is_added(added, m, n, device, generator)
    d = guarded_product(kind, a, w, device, tile=(False, *tile, *UNPACKED_B), **arguments)
    wide.check(d, a, exact, more)


@pytest.mark.sampled(6)
@SM80
@SM80_TILES
@SM80_SIZES
@ADDED
@ACTIVATIONS
@EVERY_WIDE_KIND
def test_beside_16_bits(device, kind, dtype, added, size, tile) -> None:
    run_wide(device, kind, dtype, added, size, tile)


@SM80
@pytest.mark.parametrize("name", ["int4-zeros-channels", "fp8-channels"])
def test_k_that_ends_inside_16_bytes(device, name) -> None:
    run_wide(device, wide.KINDS[name], torch.bfloat16, "nothing", (65, 72, 129), (64, 64))


def both_ways(device: torch.device, n: int, k: int, multiply) -> list[torch.Tensor]:
    """The product of a unit matrix [K, K] with weights, unpacked ahead of it and converted in it."""
    found = []
    for swapped, cols, preconvert in ((False, 64, "b"), (True, 32, "none")):
        found.append(torch.zeros((k, n), device=device))
        with forced_tile(device, (k, n, k), swapped, 64, cols, preconvert=preconvert):
            multiply(found[-1])
    return found


@pytest.mark.sampled(5)
@SM80
@ACTIVATIONS
@EVERY_WIDE_KIND
def test_each_weight_beside_16_bits_is_what_the_product_converts_it_to(device, kind, dtype) -> None:
    w = wide.weights(kind, (72, 256), torch.Generator().manual_seed(3))[0].to(device)
    unit = torch.eye(256, dtype=dtype, device=device)
    unpacked, converted = both_ways(device, 72, 256, lambda d: kind.function("{}_gemm_nt")(unit, w, d))
    assert torch.equal(unpacked, converted)
    assert unpacked.count_nonzero() > 0


@pytest.mark.sampled(4)
@SM80
@of_activations("int8")
def test_each_weight_beside_integers_is_what_the_product_converts_it_to(device, kind) -> None:
    w = weights(kind, (72, 256), torch.Generator().manual_seed(3))[0].to(device)
    unit = torch.eye(256, dtype=torch.int8, device=device), 0.5
    unpacked, converted = both_ways(device, 72, 256, lambda d: kind.function("{}_gemm_nt")(unit, w, d))
    assert torch.equal(unpacked, converted)
    assert unpacked.count_nonzero() > 0


@SM80
@pytest.mark.parametrize("group", [None, 32])
def test_beside_integers_with_zero_points(device, group) -> None:
    generator = torch.Generator().manual_seed(4)
    kind = replace(KINDS["int8"], scales="number", group=group)
    tokens = Tokens(kind, (70, 256), generator)
    w, exact = weights(kind, (72, 256), generator)
    zeros = torch.randint(-128, 128, (70,), generator=generator, dtype=torch.int32)
    d = torch.empty((70, 72), device=device)
    with forced_tile(device, (70, 72, 256), False, 64, 64, preconvert="b"):
        deep_gemm.int8_int4_gemm_nt((tokens.data.to(device), tokens.scales, zeros.to(device)), w.to(device), d)
    shifted = (tokens.data.int() - zeros[:, None]).double() * tokens.scales
    check(d, shifted, exact, "int8")


@DEVICES
def test_weights_are_unpacked_anew_in_each_call_on_hopper(device) -> None:
    kind, generator = KINDS["fp8"], torch.Generator().manual_seed(0)
    a = Tokens(kind, (64, 256), generator)
    w, _ = weights(kind, (1, 64, 256), generator)
    d = torch.empty((64, 64), device=device)
    w = w.to(device)
    with forced_tile(device, (64, 64, 256), False, 64, 64, preconvert="b"):
        for _ in range(3):
            other, exact = weights(kind, (64, 256), generator)
            w[0] = other.to(device)
            deep_gemm.fp8_int4_gemm_nt(a.to(device), w[0], d)
            check(d, a.exact, exact, kind.activations)


@SM80
def test_weights_are_unpacked_anew_in_each_call(device) -> None:
    """The same tensors: scales that are multiplied in and codes of each call."""
    kind, generator = wide.KINDS["nvfp4"], torch.Generator().manual_seed(0)
    a = wide.activations((64, 256), torch.bfloat16, generator)
    w = wide.weights(kind, (1, 64, 256), generator)[0].to(device)
    d = torch.empty((64, 64), device=device)
    with forced_tile(device, (64, 64, 256), False, 64, 64, preconvert="b"):
        for _ in range(3):
            other, exact = wide.weights(kind, (64, 256), generator)
            w[0] = other.to(device)
            deep_gemm.bf16_fp4_gemm_nt(a.to(device), w[0], d)
            wide.check(d, a, exact)
