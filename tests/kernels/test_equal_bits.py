"""After `set_batch_invariant(True)` a result's bits do not depend on the tile, on swapped operands or on clusters: what
docs/api-guarantees.md promises ("Bits") for any M, whose tile is then another one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from candidates import can_serve, forced, parse, target_of
from devices import EACH_ARCH
from field_calls import explain
from inputs import random_blocks, random_rows, random_values

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import HOPPER_SMS

CONFIGS = 8  # of some hundred that a problem has
GRADIENT = {"per_row_b": 1, "add_c": 1, "in_place": 1}
KINDS = {"per block": {}, "per row": {"per_row_b": 1}, "gradient": GRADIENT, "bf16": {"bf16": 1}}


def call_of(kind: str, m: int, n: int, k: int, device: torch.device, seed: int) -> Callable[[torch.Tensor], None]:
    if kind == "bf16":
        a, b = (random_values((rows, k), device, seed + i).bfloat16() for i, rows in enumerate((m, n)))
        return lambda d: deep_gemm.bf16_gemm_nt(a, b, d)
    a = random_rows((m, k), device, seed)
    if kind in ("per row", "gradient"):
        b = random_rows((n, k), device, seed + 1)
        return lambda d: deep_gemm.fp8_gemm_nt(a, b, d, c=d if kind == "gradient" else None, recipe=(1, 1, 128))
    b = random_blocks((n, k), device, seed + 1)
    return lambda d: deep_gemm.fp8_gemm_nt(a, b, d)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_every_config_gives_the_same_bits(device, kind, seed, batch_invariant) -> None:
    generator = random.Random(f"{kind} {seed}")
    sizes = [(129, 300), (104, 264, 520), (144, 1024)]
    if kind != "gradient":  # of which few tiles serve, and for small sizes one
        sizes = [(7, 64, *sizes[0]), (8, *sizes[1]), sizes[2]]
    m, n, k = map(generator.choice, sizes)
    fields = {"m": m, "n": n, "k": k, "num_sms": HOPPER_SMS, "fp32_output": 1, "batch_invariant": 1, **KINDS[kind]}
    fields["fp32_scales"] = int(deep_gemm.get_fp32_scales(device))
    legal = list(filter(can_serve, parse(explain("dense", fields, target_of(device)))))
    assert len(legal) > (3 if kind == "gradient" else CONFIGS)
    call = call_of(kind, m, n, k, device, seed)
    expected = None
    with simulator.options(num_sms=HOPPER_SMS):
        for candidate in generator.sample(legal, min(CONFIGS, len(legal))):
            d = torch.zeros((m, n), device=device)
            with forced(device, m, n, k, candidate):
                call(d)
            expected = d if expected is None else expected
            assert torch.equal(d, expected), candidate
