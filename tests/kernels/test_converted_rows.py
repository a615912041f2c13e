"""Packed weights on SM100, converted into tensor memory: buffers that are used again, clusters that split K."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from devices import SCHEDULES, on_simulator
from inputs import GuardedOutput
from packed_products import KINDS, Tokens, check, weights

import deep_gemm
from deep_gemm import simulator
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
    d = GuardedOutput((m, n), torch.float32, device)
    with simulator.options(num_sms=16), forced_tile(device, (m, n, k), True, 128, cols, cluster):
        kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor)
    d.check()
    check(d.tensor, a.exact, exact, kind.activations)


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
def test_int4_by_int4(device) -> None:
    generator = torch.Generator().manual_seed(1)
    a, w = (torch.randint(-8, 8, (rows, 256), dtype=torch.int8, generator=generator) for rows in (9, 72))
    packed = deep_gemm.pack_weights(w, torch.ones(72), element="int4", activations="int4")
    d = GuardedOutput((9, 72), torch.float32, device)
    deep_gemm.int4_gemm_nt((pack_int4(a), 0.5), packed, d.tensor)
    d.check()
    assert torch.equal(d.tensor.double(), 0.5 * (a.double() @ w.double().T))
