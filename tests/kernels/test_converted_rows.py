"""Packed weights on SM100, converted into tensor memory: buffers that are used again, clusters that split K."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from devices import SCHEDULES, on_simulator
from field_calls import kernel_of
from guarded_products import guarded_product
from inputs import GuardedOutput
from packed_products import KINDS, Tokens, check, weights

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import GPUS
from deep_gemm.utils import pack_int4


def kind_of(activations: str):
    return next(kind for kind in KINDS.values() if kind.activations == activations)


@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)
@pytest.mark.parametrize("activations", ["int8", "fp8"])
@pytest.mark.parametrize(("m", "cols", "cluster"), [(20, 32, (1, 1, 1)), (100, 128, (1, 1, 1)), (20, 32, (1, 1, 2))])
def test_more_k_blocks_than_buffers(device, activations, m, cols, cluster) -> None:
    kind, generator, (n, k) = kind_of(activations), torch.Generator().manual_seed(m), (136, 1200)
    a = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    with simulator.options(num_sms=16):
        d = guarded_product(kind, a, w, device, tile=(True, 128, cols, cluster))
    check(d, a.exact, exact, kind.activations)


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
def test_int4_by_int4(device) -> None:
    generator = torch.Generator().manual_seed(1)
    a, w = (torch.randint(-8, 8, (rows, 256), dtype=torch.int8, generator=generator) for rows in (9, 72))
    packed = deep_gemm.pack_weights(w, torch.ones(72), element="int4", activations="int4")
    d = GuardedOutput((9, 72), torch.float32, device)
    deep_gemm.int4_gemm_nt((pack_int4(a), 0.5), packed, d.tensor)
    d.check()
    assert torch.equal(d.tensor.double(), 0.5 * (a.double() @ w.double().T))


BY_PAIRS = [
    ("int8", 100, 128),
    ("int8-groups-of-32", 20, 32),
    ("fp8-zeros", 100, 128),
    ("mxfp4-near-exponents", 20, 64),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)
@pytest.mark.parametrize(("name", "m", "cols"), BY_PAIRS)
def test_pairs_convert_each_its_own_rows(device, name, m, cols) -> None:
    """Of the second pair the other CTA has few rows, and both pairs are one's after the other."""
    kind, generator, (n, k) = KINDS[name], torch.Generator().manual_seed(m), (400, 896)
    a = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    with simulator.options(num_sms=2):
        d = guarded_product(kind, a, w, device, tile=(True, 128, cols, (2, 1, 1)))
    check(d, a.exact, exact, kind.activations)


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
def test_pairs_ask_the_l2_for_what_they_copy(device) -> None:
    kind, generator, (m, n, k) = KINDS["int8"], torch.Generator().manual_seed(3), (20, 512, 256)
    a, (w, _) = Tokens(kind, (m, k), generator), weights(kind, (n, k), generator)
    d = torch.zeros(m, n)
    with simulator.options(num_sms=4), forced_tile(device, (m, n, k), True, 128, 32, (2, 1, 1)):
        kind.function("{}_gemm_nt")(a.to(device), w.to(device), d)
    asked = simulator.last_report().statistics
    assert (asked["boxes_asked_for"], asked["boxes_asked_in_vain"]) == (8, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)
@pytest.mark.parametrize("group_size", [None, 128])
def test_pairs_beside_16_bits(device, group_size) -> None:
    """A stage has two spans of each token."""
    generator, (m, n, k) = torch.Generator().manual_seed(2), (90, 400, 896)
    a = torch.randn((m, k), generator=generator).bfloat16()
    codes = torch.randint(-8, 8, (n, k), generator=generator, dtype=torch.int8)
    scales = torch.rand((n, k // group_size) if group_size else (n,), generator=generator) + 0.5
    w = deep_gemm.pack_weights(codes, scales, element="int4", activations="bf16", group_size=group_size)
    exact = codes.double() * (scales.double().repeat_interleave(group_size, 1) if group_size else scales[:, None])
    d = GuardedOutput((m, n), torch.float32, device)
    with simulator.options(num_sms=2), forced_tile(device, (m, n, k), True, 128, 96, (2, 1, 1)):
        deep_gemm.bf16_int4_gemm_nt(a, w, d.tensor)
    d.check()
    check(d.tensor, a.double(), exact, "int4")


@pytest.mark.parametrize("target", ["sm_100a", "sm_100f"])
def test_many_tokens_are_multiplied_by_pairs(target) -> None:
    """Tokens are copied once for 256 rows of weights."""
    problem = {"m": 4096, "n": 7168, "k": 2048, "s4": 1, "num_sms": GPUS[target].sms}
    assert "cluster2x1x1" in str(kernel_of("dense", problem, target)["name"])
