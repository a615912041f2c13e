"""Words of exponents may hold anything behind the end of K, of a product or of a K group."""

from __future__ import annotations

import pytest
import torch
from inputs import GuardedOutput

import deep_gemm
from deep_gemm import simulator

NAN = 0xFF


def operand(rows: int, k: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """E4M3 [rows, k]; words [rows, words] of exponents for 32 of K, NaN behind k; and what both mean, in FP64."""
    data = torch.randn((rows, k), generator=generator).to(torch.float8_e4m3fn)
    exponents = torch.randint(124, 131, (rows, -(-k // 128) * 4), generator=generator, dtype=torch.uint8)
    exact = data.double() * torch.exp2(exponents.double() - 127).repeat_interleave(32, 1)[:, :k]
    exponents[:, -(-k // 32) :] = NAN
    words = exponents.view(torch.int32) if k > 0 else torch.empty((rows, 0), dtype=torch.int32)
    return data, words, exact


def assert_near(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    assert (found.double() - a @ b.T).abs().le(1e-6 * (a.abs() @ b.abs().T)).all()


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
@pytest.mark.parametrize("k", [16, 48, 272, 336])
def test_dense(k, target) -> None:
    generator = torch.Generator().manual_seed(k)
    a, words_a, exact_a = operand(40, k, generator)
    b, words_b, exact_b = operand(72, k, generator)
    d = GuardedOutput((40, 72), torch.float32, torch.device("cpu"))
    with simulator.options(target=target):
        deep_gemm.fp8_gemm_nt((a, words_a), (b, words_b), d.tensor, recipe=(1, 1, 32))
    d.check()
    assert_near(d.tensor, exact_a, exact_b)


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_k_groups(target) -> None:
    generator = torch.Generator().manual_seed(0)
    ks = [48, 0, 144, 128]
    operands = {rows: [operand(rows, k, generator) for k in ks] for rows in (40, 72)}
    a, b = (
        (torch.cat([x[0].T for x in group]).contiguous(), torch.cat([x[1].T for x in group]).contiguous())
        for group in operands.values()
    )
    d = GuardedOutput((len(ks), 40, 72), torch.float32, torch.device("cpu"))
    sizes = torch.tensor(ks, dtype=torch.int32)
    with simulator.options(target=target):
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous(a, b, d.tensor, ks, sizes, recipe=(1, 1, 32))
    d.check()
    for group in range(len(ks)):
        assert_near(d.tensor[group], operands[40][group][2], operands[72][group][2])
