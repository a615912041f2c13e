"""Gated activations of FP8, and of FP4, with the public pair of FP4 weights, on Blackwell."""

from __future__ import annotations

import pytest
import torch
from devices import on_simulator
from inputs import GuardedOutput, random_rows
from test_gates import LAYOUTS, assert_close, expected

import deep_gemm
from deep_gemm.epilogue import SwiGLU


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "columns", "k"), [(5, 71, 256), (150, 250, 512)])
def test_fp8_by_fp4(device, layout, m, columns, k) -> None:
    """Codes that the copy engine spreads, and words of exponents, come in the order of tiles."""
    generator = torch.Generator().manual_seed(2)
    codes = torch.randint(-128, 128, (2 * columns, k // 2), generator=generator, dtype=torch.int8)
    b = codes, 2.0 ** torch.randint(-4, 1, (2 * columns, k // 32), generator=generator)
    a = tuple(random_rows((m, k), device, 1))
    product = torch.empty(m, 2 * columns)
    deep_gemm.fp8_fp4_gemm_nt(a, b, product)
    d = GuardedOutput((m, columns), torch.bfloat16, device)
    deep_gemm.fp8_fp4_gemm_nt(a, b, d.tensor, epilogue=SwiGLU(layout=layout))
    d.check()
    assert_close(d.tensor, expected(product, layout))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("group", [32, 16])
@pytest.mark.parametrize(("m", "columns", "k"), [(5, 71, 256), (150, 250, 512)])
def test_fp4_by_fp4(device, layout, group, m, columns, k) -> None:
    generator = torch.Generator().manual_seed(2)

    def operand(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        codes = torch.randint(-128, 128, (rows, k // 2), generator=generator, dtype=torch.int8)
        exponents = torch.randint(-4, 1, (rows, k // group), generator=generator)
        scales = 2.0**exponents
        return codes, scales.to(torch.float8_e4m3fn) if group == 16 else scales

    a, b, recipe = operand(m), operand(2 * columns), (1, 1, group)
    product = torch.empty(m, 2 * columns)
    deep_gemm.fp4_gemm_nt(a, b, product, recipe=recipe)
    d = GuardedOutput((m, columns), torch.bfloat16, device)
    deep_gemm.fp4_gemm_nt(a, b, d.tensor, recipe=recipe, epilogue=SwiGLU(layout=layout))
    d.check()
    assert_close(d.tensor, expected(product, layout))
