"""`epilogue=` of INT8 products: bits of the same steps behind the plain product in FP32, and FP64's of a gate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from devices import ONE_OF_EACH_ARCH
from grouped_inputs import alignment_of
from inputs import GuardedOutput, random_values
from quantised_output import ALIGNMENT, dense, of_experts
from test_gates import GATES, expected

import deep_gemm
from deep_gemm.epilogue import Alpha, Chain, GeGLU, Identity, RowScale, SwiGLU


def operands(kind: str, device: torch.device, m: int, n: int, k: int) -> tuple[Any, Any, dict[str, Any]]:
    """Of a scale for each row, with zero points of a, or scales for groups of K."""
    a, b = ((random_values(size, device, 1) * 40).clamp(-128, 127).to(torch.int8) for size in ((m, k), (n, k)))
    of_a, of_b = random_values((m,), device, 3).abs() / 64, random_values((n,), device, 4).abs() / 64
    if kind == "groups":
        return (a, of_a[:, None].repeat(1, k // 128)), (b, of_b[:, None].repeat(1, k // 128)), {"recipe": (1, 1, 128)}
    if kind == "blocks":
        blocks = random_values((n // 128, k // 128), device, 4).abs() / 64
        return (a, of_a[:, None].repeat(1, k // 128)), (b, blocks), {"recipe": (1, 128, 128)}
    zeros = torch.arange(m, dtype=torch.int32, device=device) % 7 - 3
    return ((a, of_a, zeros) if kind == "zero points" else (a, of_a)), (b, of_b), {}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("kind", ["channels", "zero points", "groups", "blocks"])
@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("gate", ["swiglu", "geglu erf"])
@pytest.mark.parametrize("m", [3, 70])
def test_every_step(device, kind, layout, gate, m) -> None:
    n, k = 256, 256
    a, b, more = operands(kind, device, m, n, k)
    weights, bias = random_values((m,), device, 5), random_values((n,), device, 6)
    c, product = random_values((m, n), device, 7), torch.empty(m, n, device=device)
    deep_gemm.int8_gemm_nt(a, b, product, c, bias=bias, epilogue=Alpha(-0.5), **more)
    plain = torch.empty_like(product)
    deep_gemm.int8_gemm_nt(a, b, plain, **more)
    assert torch.allclose(product.double(), -0.5 * plain.double() + bias.double() + c.double(), rtol=1e-6, atol=1e-5)
    d = GuardedOutput((m, n // 2), torch.float32, device)
    steps = Chain(Alpha(-0.5), GATES[gate][0](layout=layout), RowScale(weights))
    deep_gemm.int8_gemm_nt(a, b, d.tensor, c, bias=bias, epilogue=steps, **more)
    d.check()
    wanted = expected(product, layout, gate) * weights.double()[:, None]
    assert torch.allclose(d.tensor.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("scales", ["fp32", "words of 32"])
@pytest.mark.parametrize("grouping", ["dense", "contiguous", "psum", "masked"])
@pytest.mark.parametrize("gate", [SwiGLU(limit=7.0), GeGLU("interleaved")], ids=["halves", "interleaved"])
def test_quantised_gates(device, scales, grouping, gate) -> None:
    if grouping == "dense":
        dense("int8", device, 33, 544, columns=272).check(scales, device, epilogue=gate)
        return
    with alignment_of(ALIGNMENT):
        of_experts("int8", grouping, device, 512, columns=256).check(scales, device, epilogue=gate)


def test_without_k_and_with_too_much() -> None:
    a, b = (torch.ones(4, 0, dtype=torch.int8), 1.0), (torch.ones(32, 0, dtype=torch.int8), 1.0)
    bias, d = torch.arange(32.0), torch.empty(4, 16)
    deep_gemm.int8_gemm_nt(a, b, d, bias=bias, epilogue=SwiGLU())
    assert torch.allclose(d, (torch.nn.functional.silu(bias[:16]) * bias[16:]).expand(4, 16))
    long = [(torch.ones(rows, 131200, dtype=torch.int8), 1.0) for rows in (4, 32)]
    with pytest.raises(ValueError, match="K must be at most 131071 where d has scales, or there is an epilogue, got"):
        deep_gemm.int8_gemm_nt(*long, d, epilogue=SwiGLU())
    sums = torch.empty(4, 32)
    deep_gemm.int8_gemm_nt(*long, sums, epilogue=Identity())
    assert (sums == 131200).all()
    exact = [torch.ones(rows, 64, dtype=torch.int8) for rows in (4, 32)]
    for step, name in ((Alpha(2.0), "Alpha"), (RowScale(torch.ones(4)), "RowScale")):
        with pytest.raises(ValueError, match=f"epilogue must have no {name} where d is int32"):
            deep_gemm.int8_gemm_nt(*exact, torch.empty(4, 32, dtype=torch.int32), epilogue=step)
    with pytest.raises(ValueError, match="d must not be int32 for a gated activation"):
        deep_gemm.int8_gemm_nt(*exact, torch.empty(4, 16, dtype=torch.int32), epilogue=SwiGLU())
