"""`deep_gemm.nn` on a GPU as programs run it: in CUDA graphs, and compiled by inductor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from logits_inputs import generator_of

from deep_gemm import nn

pytestmark = pytest.mark.gpu
HIDDEN, INNER, EXPERTS, TOKENS = 256, 128, 6, 40


def linear(device: torch.device) -> torch.nn.Linear:
    return torch.nn.Linear(HIDDEN, INNER, device=device, dtype=torch.bfloat16)


def experts(device: torch.device, precision: str = "fp8") -> nn.GroupedExperts:
    return nn.GroupedExperts(EXPERTS, HIDDEN, INNER, precision=precision, device=device)


LAYERS: dict[str, Callable[[torch.device], Any]] = {
    "FP8Linear": lambda device: nn.FP8Linear.from_linear(linear(device)),
    "QuantLinear int4": lambda device: nn.QuantLinear.from_linear(linear(device)),
    "QuantLinear e4m3": lambda device: nn.QuantLinear.from_linear(linear(device), element="e4m3", activations="fp8"),
    "GroupedExperts fp8": experts,
    "GroupedExperts bf16": lambda device: experts(device, "bf16"),
    "GroupedExperts int4": lambda device: experts(device).quantized(element="int4", activations="fp8"),
}
TRAINED = ("FP8Linear", "GroupedExperts fp8")


def given(name: str, seed: int, device: torch.device) -> list[torch.Tensor]:
    drawn = generator_of(seed)
    x = torch.randn(TOKENS, HIDDEN, generator=drawn).bfloat16()
    if not name.startswith("GroupedExperts"):
        return [x.to(device)]
    weights, ids = torch.rand(TOKENS, EXPERTS, generator=drawn).topk(2)
    return [x.to(device), ids.to(device), weights.to(device)]


def captured(step: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


@pytest.mark.parametrize("name", LAYERS)
def test_a_captured_layer_sees_other_tokens_and_weights(name, cuda) -> None:
    torch.manual_seed(0)
    layer, other = LAYERS[name](cuda), LAYERS[name](cuda)
    static = given(name, 0, cuda)
    with torch.no_grad():
        graph, y = captured(lambda: layer(*static))
        for seed in (1, 2):
            new = given(name, seed, cuda)
            for old, value in zip(static, new, strict=True):
                old.copy_(value)
            graph.replay()
            assert torch.equal(y, layer(*new))
        before = y.clone()
        layer.load_state_dict(other.state_dict())
        wanted = layer(*static)
        graph.replay()
        assert torch.equal(y, wanted)
        assert torch.equal(y, other(*static))
        assert not torch.equal(y, before)


@pytest.mark.parametrize("name", TRAINED)
def test_a_captured_step_has_the_gradients_of_each_steps_weights(name, cuda) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name](cuda)
    static = given(name, 0, cuda)
    static[0].requires_grad_()
    asked = [static[0], *layer.parameters()]

    def step() -> list[torch.Tensor]:
        y = layer(*static)
        return [y, *torch.autograd.grad(y.float().square().sum(), asked)]

    graph, found = captured(step)
    for seed in (1, 2):
        with torch.no_grad():
            for old, value in zip(static, given(name, seed, cuda), strict=True):
                old.copy_(value)
            for parameter in layer.parameters():
                parameter.mul_(-0.5)
        graph.replay()
        assert all(torch.equal(one, right) for one, right in zip(found, step(), strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_compiled_by_inductor(name, cuda) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name](cuda)
    inputs = given(name, 0, cuda)
    inputs[0].requires_grad_()
    asked = [inputs[0], *layer.parameters()]

    def results(forward: Callable[..., Any]) -> list[torch.Tensor]:
        y = forward(*inputs)
        return [y, *torch.autograd.grad(y.float().square().sum(), asked)]

    compiled = torch.compile(layer, fullgraph=True)
    for found, right in zip(results(compiled), results(layer), strict=True):
        found, right = found.detach().float(), right.detach().float()
        assert float((found - right).norm()) <= 2e-2 * float(right.norm())
