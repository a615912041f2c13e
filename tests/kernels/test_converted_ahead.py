"""Packed weights beside FP8 whose next K block is converted while this one is multiplied (wide tiles of Hopper's)."""

from __future__ import annotations

import pytest
import torch
from call_checks import settings
from candidates import forced_tile
from devices import devices_of
from guarded_products import guarded_product
from inputs import GuardedOutput
from packed_products import COUNTS, HEIGHT, KINDS, Tokens, check, weights

from deep_gemm import simulator

NAMES = ["fp8-token-scales", "fp8-with-minus-eight", "fp8-channels", "mxfp4-near-exponents", "fp8-zeros-token-scales"]
# Rows, columns, cluster, warpgroups that share K, and SMs: several tiles a CTA, or all tiles at once where K is split
# (of six SMs pairs share the last tiles).
TILES = [
    (128, 128, (1, 1, 1), 1, 2),
    (128, 128, (2, 1, 1), 1, 2),
    (128, 128, (1, 1, 2), 1, 16),
    (128, 128, (1, 1, 2), 1, 6),
    (128, 160, (1, 1, 1), 1, 2),
    (128, 160, (2, 1, 1), 1, 2),
    (128, 160, (1, 1, 2), 1, 16),
    (64, 128, (1, 1, 1), 1, 2),
    (64, 128, (1, 1, 1), 2, 16),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", devices_of("sm90", "eager", "lazy", "random"), indirect=True)
@pytest.mark.parametrize("k", [656, 896])
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_dense(device, name, tile, k) -> None:
    """K blocks of an odd and of an even number, and a last one that is not full."""
    *tile, num_sms = tile
    m, n, kind = 170, 440, KINDS[name]
    generator = torch.Generator().manual_seed(k + tile[1])
    a = Tokens(kind, (m, k), generator)
    w, exact = weights(kind, (n, k), generator)
    with simulator.options(num_sms=num_sms), settings(device, num_sms=num_sms):
        d = guarded_product(kind, a, w, device, tile=(True, *tile))
    check(d, a.exact, exact, kind.activations)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", devices_of("sm90", "eager", "lazy", "random"), indirect=True)
@pytest.mark.parametrize("cols", [128, 160])
@pytest.mark.parametrize("name", NAMES)
def test_experts(device, name, cols) -> None:
    kind, n, k = KINDS[name], 136, 640
    generator = torch.Generator().manual_seed(cols)
    a = Tokens(kind, (len(COUNTS), HEIGHT, k), generator)
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((len(COUNTS), HEIGHT, n), torch.bfloat16, device)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    with (
        simulator.options(num_sms=2),
        settings(device, num_sms=2),
        forced_tile(device, (HEIGHT, n, k), True, 128, cols),
    ):
        kind.function("m_grouped_{}_gemm_nt_masked")(a.to(device), w.to(device), d.tensor, counts, 40)
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            check(d.tensor[group, :count], a.exact[group, :count], exact[group], kind.activations, 0)
