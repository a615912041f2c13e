"""Gated products in CUDA graphs: a replay reads the operands of the moment, and writes the bits of a call."""

from __future__ import annotations

import pytest
import torch
from gates import GATES, LAYOUTS, operands
from inputs import GuardedOutput
from quantised_output import SCALES, QuantisedOutput

from deep_gemm.epilogue import Chain, RowScale

pytestmark = pytest.mark.gpu


@pytest.mark.sampled(8)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pair", ["bf16", "fp16", "fp8", "fp8 rows"])
@pytest.mark.parametrize("m", [1, 64, 300])  # the first splits K
def test_a_replay_is_a_call(cuda, gate, layout, pair, m) -> None:
    a, b, call = operands(pair, m, 512, 2048, cuda)
    weights = torch.rand(m, device=cuda)
    steps = Chain(GATES[gate][0](layout=layout), RowScale(weights))
    d = GuardedOutput((m, 256), torch.float16 if pair == "fp16" else torch.bfloat16, cuda)
    call(a, b, d.tensor, epilogue=steps)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(a, b, d.tensor, epilogue=steps)
    data = a[0].view(torch.uint8) if isinstance(a, tuple) else a
    data.copy_(data.flip(0).roll(1, -1))
    weights.copy_(torch.rand(m, device=cuda))
    wanted = torch.empty_like(d.tensor)
    call(a, b, wanted, epilogue=steps)
    for _ in range(3):
        d.tensor.fill_(float("nan"))
        graph.replay()
        d.check()
        assert torch.equal(d.tensor, wanted)


@pytest.mark.parametrize("scales", SCALES)
def test_a_replay_quantises(cuda, scales) -> None:
    """D and its scales."""
    a, b, call = operands("fp8", 64, 1024, 2048, cuda)
    gate = GATES["swiglu"][0](layout="halves")
    found, wanted = (QuantisedOutput((64, 512), scales, cuda).pair for _ in range(2))
    call(a, b, found, epilogue=gate)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(a, b, found, epilogue=gate)
    data = a[0].view(torch.uint8)
    data.copy_(data.flip(0))
    call(a, b, wanted, epilogue=gate)
    graph.replay()
    for part, other in zip(found, wanted, strict=True):
        assert torch.equal(part.flatten().view(torch.uint8), other.flatten().view(torch.uint8))
