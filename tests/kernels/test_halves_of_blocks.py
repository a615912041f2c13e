"""Stages that hold half a block of packed weights (stages_of_block): K that ends in either half, groups that reach over
both, parts of K that pairs share."""

from __future__ import annotations

import pytest
import torch
from bf16_weight_inputs import KINDS, activations, check, weights
from call_checks import settings
from devices import devices_of
from field_calls import kernel_of
from guarded_products import guarded_product

HALVES = ".k = 64}"


def product(device: torch.device, name: str, shape: tuple[int, int, int], dtype: torch.dtype, sms: int, tile) -> None:
    generator = torch.Generator().manual_seed(shape[2])
    a = activations((shape[0], shape[2]), dtype, generator)
    w, exact = weights(KINDS[name], shape[1:], generator)
    with settings(device, num_sms=sms):
        d = guarded_product(KINDS[name], a, w, device, tile=(True, *tile))
    check(d, a, exact)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("device", devices_of("sm90", "eager", "lazy", "random"), indirect=True)
@pytest.mark.parametrize("k", [48, 112, 192, 640])
@pytest.mark.parametrize("cols", [128, 160, 192, 256])
@pytest.mark.parametrize("name", KINDS)
def test_against_fp64(device, name, cols, k) -> None:
    """Several tiles a CTA."""
    product(device, name, (cols + 50, 200, k), torch.bfloat16, 1, (128, cols))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", devices_of("sm90", "any"), indirect=True)
@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 1, 2)])
@pytest.mark.parametrize("name", ["int4", "int4-groups-of-32", "int4-zeros-channels", "mxfp4", "fp8"])
def test_in_clusters(device, name, cluster) -> None:
    """Of a K of 11 blocks, which pairs share unequally, each CTA has whole blocks."""
    product(device, name, (200, 200, 11 * 128), torch.bfloat16, 4, (128, 256, cluster))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", devices_of("sm90", "any"), indirect=True)
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.group is None] + ["mxfp4", "nvfp4"])
def test_fp16(device, name) -> None:
    product(device, name, (300, 136, 448), torch.float16, 1, (128, 256))


@pytest.mark.parametrize(
    ("m", "fields", "halves"),
    [
        (4096, {"bf16": 1, "s4b": 1, "gran_k_b": 128}, True),
        (4096, {"fp16": 1, "s4b": 1, "channel_scales": 1}, True),
        (4096, {"fp16": 1, "s4b": 1, "gran_k_b": 128}, False),  # two sets of sums
        (16, {"bf16": 1, "s4b": 1, "gran_k_b": 128}, False),
        (512, {"bf16": 1, "e4m3p": 1, "channel_scales": 1}, True),  # 128 columns
        (512, {"bf16": 1, "s4b": 1, "channel_scales": 1}, False),
    ],
)
def test_who_has_them(m, fields, halves) -> None:
    text = str(kernel_of("dense", {"m": m, "n": 4096, "k": 7168, **fields})["text"])
    assert (HALVES in text) == halves
