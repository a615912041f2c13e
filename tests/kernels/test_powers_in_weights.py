"""One set of sums for groups of K on Hopper: scales' powers of two go into BF16 weights, sums are rescaled by what is
left of them."""

from __future__ import annotations

import bf16_weight_inputs as inputs
import pytest
import torch
from bf16_weight_inputs import KINDS, ROUNDING, TOLERANCE, activations
from call_checks import settings
from devices import devices_of
from field_calls import kernel_of
from guarded_products import guarded_product

GROUPED = [name for name, kind in KINDS.items() if kind.group is not None and kind.scales == "fp32"]
# The exponents of scales: of any weights; all too large, or too small, for a weight's exponent to take them; both.
RANGES = {"far": (-20, 1), "large": (30, 60), "small": (-90, -80), "both": (-60, 60)}


def weights(name: str, n: int, k: int, generator: torch.Generator, exponents: tuple[int, int]):
    """Packed, of scales among which are some of 0, rows of them, at their beginning and up to their end, and negative
    ones; and in FP64."""
    kind = KINDS[name]
    count = (n, -(-k // kind.group))
    scales = torch.exp2(torch.randint(*exponents, count, generator=generator).float())
    scales *= 1 + torch.rand(count, generator=generator)
    scales[torch.rand(count, generator=generator) < 0.15] = 0
    scales[3], scales[5, :1], scales[6, 1:] = 0, 0, 0
    scales[7] *= -1
    return inputs.weights(kind, (n, k), generator, scales=scales)


def check(d: torch.Tensor, a: torch.Tensor, w: torch.Tensor, groups: int) -> None:
    """However small they are. Each group rounds the sum of those before it."""
    a, found = a.double(), d.double().cpu()
    expected, magnitude = a @ w.mT, a.abs() @ w.abs().mT
    allowed = (TOLERANCE[d.device.type] + groups * 2.0**-25) * magnitude + ROUNDING[d.dtype] * expected.abs()
    wrong = (found - expected).abs() > allowed
    assert not wrong.any()
    assert found.isfinite().all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", devices_of("sm90", "lazy", "random"), indirect=True)
@pytest.mark.parametrize("k", [100, 128, 640, 1152])
@pytest.mark.parametrize("cols", [96, 128])
@pytest.mark.parametrize("exponents", RANGES)
@pytest.mark.parametrize("name", GROUPED)
def test_against_fp64(device, name, exponents, cols, k) -> None:
    """Of one K block, and of a K that ends within one; several tiles a CTA."""
    m, n = 130, 200
    generator = torch.Generator().manual_seed(k)
    a = activations((m, k), torch.bfloat16, generator)
    w, exact = weights(name, n, k, generator, RANGES[exponents])
    with settings(device, num_sms=2):
        d = guarded_product(KINDS[name], a, w, device, tile=(True, 128, cols))
    check(d, a, exact, k // KINDS[name].group)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", devices_of("sm90", "any"), indirect=True)
@pytest.mark.parametrize("name", [name for name in GROUPED if "8" not in name or name == "fp8"])
def test_the_widest_tile(device, name) -> None:
    m, n, k = 300, 136, 512
    generator = torch.Generator().manual_seed(2)
    a = activations((m, k), torch.bfloat16, generator)
    w, exact = weights(name, n, k, generator, RANGES["far"])
    with settings(device, num_sms=1):
        d = guarded_product(KINDS[name], a, w, device, torch.bfloat16, tile=(True, 128, 256))
    check(d, a, exact, k // KINDS[name].group)


def config_of(m: int, **fields: int) -> str:
    return str(kernel_of("dense", {"m": m, "n": 4096, "k": 7168, "s4b": 1, "gran_k_b": 32, **fields})["text"])


def test_who_is_served_so() -> None:
    """Many tokens in BF16; not a few, nor where bits must not depend on how many there are, nor FP16, which has not the
    range: two sets of sums for groups of 32 leave room for 64 columns."""
    many = config_of(4096, bf16=1)
    assert ".rescales = true" in many
    assert ".cols = 256" in many
    assert ".rescales = false" in config_of(16, bf16=1)
    for fields in ({"bf16": 1, "batch_invariant": 1}, {"fp16": 1}):
        other = config_of(4096, **fields)
        assert ".rescales = false" in other
        assert ".cols = 64" in other
