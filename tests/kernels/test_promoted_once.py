"""`set_fast_accumulation`: FP8 by packed weights whose rows have one scale, added up by Hopper's tensor cores alone."""

from __future__ import annotations

import json

import pytest
import torch
from call_checks import settings
from devices import devices_of
from field_calls import kernel_of
from guarded_products import guarded_product
from inputs import GuardedOutput
from packed_products import COUNTS, HEIGHT, KINDS, ROUNDING, Tokens, weights

import deep_gemm
from deep_gemm import simulator
from deep_gemm.weights import PackedWeights

NAMES = ["fp8-channels", "mxfp4-near-exponents", "fp8-zeros-channels"]
TOLERANCES = {"cuda": 2e-2, "cpu": 1e-6}  # of sum |a||w|: the tensor cores' sums keep some 13 bits
TILES = [
    (128, 128, (1, 1, 1), 1, 2),
    (128, 192, (2, 1, 1), 1, 2),
    (128, 256, (1, 1, 1), 1, 2),
    (128, 128, (1, 1, 2), 1, 16),
    (64, 32, (1, 1, 1), 2, 24),
    (64, 64, (1, 1, 1), 1, 2),
]


def close(d: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> None:
    expected, magnitude = a @ w.mT, a.abs() @ w.abs().mT
    allowed = TOLERANCES[d.device.type] * magnitude + ROUNDING[d.dtype] * expected.abs() + 1e-6
    assert ((d.double().cpu() - expected).abs() <= allowed).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", devices_of("sm90", "eager", "lazy", "random"), indirect=True)
@pytest.mark.parametrize("k", [656, 896])
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_dense(device, name, tile, k) -> None:
    """K blocks of an odd and of an even number, parts of K, and a last block that is not full."""
    *tile, num_sms = tile
    m, n, kind = 70, 440, KINDS[name]
    generator = torch.Generator().manual_seed(k + tile[1])
    a = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    assert w.near_scales
    with simulator.options(num_sms=num_sms), settings(device, num_sms=num_sms, fast_accumulation=1):
        d = guarded_product(kind, a, w, device, tile=(True, *tile))
    close(d, a.exact, exact)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", devices_of("sm90", "eager", "lazy", "random"), indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_experts(device, name) -> None:
    kind, n, k = KINDS[name], 136, 640
    generator = torch.Generator().manual_seed(1)
    a = Tokens(kind, (len(COUNTS), HEIGHT, k), generator)
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((len(COUNTS), HEIGHT, n), torch.bfloat16, device)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    with settings(device, fast_accumulation=1):
        kind.function("m_grouped_{}_gemm_nt_masked")(a.to(device), w.to(device), d.tensor, counts, 40)
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            close(d.tensor[group, :count], a.exact[group, :count], exact[group])


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"fast_accumulation": 1, "e2m1x": 1, "token_scales": 1}, True),
        ({"fast_accumulation": 1, "s4m": 1, "token_scales": 1}, True),
        ({"fast_accumulation": 1, "s4m": 1, "token_scales": 1, "m": 1}, False),
        ({"fast_accumulation": 1, "s4m": 1, "token_scales": 1, "batch_invariant": 1}, False),
        ({"fast_accumulation": 1, "s4m": 1}, False),  # tokens have a scale for each 128 of K
        ({"fast_accumulation": 1, "s4m": 1, "gran_k_b": 64, "token_scales": 1}, False),
        ({"fast_accumulation": 1, "bf16": 1, "s4b": 1, "channel_scales": 1}, False),
        ({"e2m1x": 1, "token_scales": 1}, False),
    ],
)
def test_who_gets_it(fields, wanted) -> None:
    text = str(kernel_of("dense", {"m": 256, "n": 4096, "k": 7168, **fields})["text"])
    assert (".promotes_once = true" in text) is wanted


def packed_of(exponents: torch.Tensor) -> PackedWeights:
    codes = torch.full((exponents.shape[0], exponents.shape[1] * 32), 3, dtype=torch.uint8)
    return deep_gemm.pack_weights(codes, torch.exp2(exponents), element="e2m1", activations="fp8", group_size=32)


def test_rows_of_a_small_span_have_one_scale() -> None:
    """Within 2^11 over all of K; else within each 128; the values stay what they were."""
    near, far = torch.zeros(64, 8), torch.zeros(64, 8)
    near[:, 2], near[3, 7], far[5, :4] = -4, 7, 9
    far[5, 7] = -9
    for exponents, even in ((near, True), (far, False)):
        w = packed_of(exponents)
        assert (w.folds_exponents, w.near_scales) == (True, even)
        assert torch.equal(w.dequantize(), 1.5 * torch.exp2(exponents).repeat_interleave(32, 1))
    tensors, metadata = packed_of(far).tensors()
    with pytest.raises(ValueError, match="scales of each row must be one for all of K where metadata say near_scales"):
        PackedWeights.from_tensors(tensors, {**metadata, "near_scales": True}).require_near_scales()
    assert json.loads(json.dumps(packed_of(near).tensors()[1]))["near_scales"]
