"""Training and serving with equal bits: a layer's results, whether it trains or serves, for one token or for many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from logits_inputs import fp8_dense

import deep_gemm
from deep_gemm import nn, quantize, simulator

TARGETS = ["sm_80", "sm_90a", "sm_100a"]
TOKENS = 9


@pytest.fixture(autouse=True, params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    torch.manual_seed(5)
    deep_gemm.set_batch_invariant(True)
    with simulator.options(target=request.param):
        yield request.param
    deep_gemm.set_batch_invariant(False)


@pytest.mark.sampled(2)
def test_linear_layers() -> None:
    """K is so large that it would be split for one token, and is not for many."""
    trains = nn.FP8Linear(2048, 128, dtype=torch.bfloat16)
    x = torch.randn(300, 2048)
    y = trains(x.clone().requires_grad_()).detach()
    scales = "ue8m0" if deep_gemm.get_target("cpu") == "sm_100a" else "fp32"
    bias = None if trains.bias is None else trains.bias.detach()
    serves = nn.QuantLinear(quantize.fp8_blocks(trains.weight.detach(), scales=scales), bias)
    with torch.no_grad():
        assert torch.equal(trains(x), y)
        assert torch.equal(serves(x), y)
        assert torch.equal(serves(x[:1]), y[:1])
        deep_gemm.set_batch_invariant(False)
        assert not torch.equal(serves(x[:1]), y[:1]), "K is not split, so that this test shows nothing"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_experts(precision: str) -> None:
    experts = nn.GroupedExperts(4, 256, 128, dtype=torch.bfloat16, precision=precision)
    x, weights = torch.randn(TOKENS, 256).bfloat16(), torch.rand(TOKENS, 2)
    ids = torch.stack([torch.randperm(4)[:2] for _ in range(TOKENS)])
    y = experts(x.clone().requires_grad_(), ids, weights).detach()
    with torch.no_grad():
        fused = experts(x, ids, weights)
        assert not torch.equal(fused, y), "as_trained would change nothing"
        assert torch.equal(experts(x[4:5], ids[4:5], weights[4:5]), fused[4:5])
        experts.as_trained = True
        for masked in (False, True):
            assert torch.equal(experts(x, ids, weights, masked=masked), y)
        assert torch.equal(experts(x[4:5], ids[4:5], weights[4:5]), y[4:5])


@pytest.mark.sampled(1)
def test_index_logits() -> None:
    x = fp8_dense(TOKENS, 300, 32, 128)
    q, kv, weights, first, end = x.arguments
    every = deep_gemm.fp8_mqa_logits(q, kv, weights, first, end)
    for row in (0, 8):
        keys = slice(int(first[row]), int(end[row]))
        own = [tensor[row : row + 1].contiguous() for tensor in (weights, first, end)]
        alone = deep_gemm.fp8_mqa_logits(q[row : row + 1].contiguous(), kv, *own)
        assert torch.equal(alone[0, keys], every[row, keys])
