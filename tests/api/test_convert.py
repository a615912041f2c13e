"""A model's layers replaced: by parameters that it has, and by a checkpoint; and what is left, with reasons."""

from __future__ import annotations

import json

import pytest
import torch

from deep_gemm import nn
from deep_gemm.utils import pack_int4, quantize_to_int4


class Experts(torch.nn.Module):
    """As those of transformers: every token by every expert, in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.randn(3, 256, 128) / 12)
        self.down_proj = torch.nn.Parameter(torch.randn(3, 128, 128) / 12)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for expert in range(3):
            gate, up = (x @ self.gate_up_proj[expert].T).chunk(2, -1)
            each = (self.act_fn(gate) * up) @ self.down_proj[expert].T
            out = out + each * ((ids == expert) * weights).sum(1, keepdim=True)
        return out


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(128, 128)
        self.router = torch.nn.Linear(128, 3, bias=False)
        self.experts = Experts()
        self.head = torch.nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        weights, ids = self.router(x).softmax(-1).topk(2)
        return self.head(x + self.experts(x, ids, weights))


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def test_parameters_stay_and_train() -> None:
    model, wanted = Model(), Model()
    parameters = {*model.parameters()}
    report = nn.convert(model)
    assert report.replaced == {"first": "FP8Linear", "experts": "GroupedExperts", "head": "FP8Linear"}
    assert report.left == {"router": "features must be multiples of 16, got [3, 128]"}
    assert {*model.parameters()} == parameters
    x = torch.randn(12, 128)
    y, exact = model(x), wanted(x)
    y.sum().backward()
    assert distance(y.detach(), exact.detach()) < 0.1
    assert all(parameter.grad is not None for parameter in parameters)


def test_few_bits_and_what_is_skipped() -> None:
    model, wanted = Model(), Model()
    report = nn.convert(model, config={"element": "e4m3", "activations": "bf16", "skip": ["head", "router"]})
    assert report.replaced == {"first": "QuantLinear", "experts": "GroupedExperts"}
    assert set(report.left.values()) == {"config's skip names it"}
    x = torch.randn(12, 128)
    with torch.no_grad():
        assert distance(model(x), wanted(x)) < 0.1
    other = Model()
    other.experts.act_fn = torch.nn.ReLU()
    assert "act_fn must be SiLU, got relu" in str(nn.convert(other))
    with pytest.raises(ValueError, match="config must have only"):
        nn.convert(model, config={"elements": "int4"})


def test_a_checkpoint_by_its_own_config(tmp_path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    source = Model()
    tensors = {f"router.{name}": value for name, value in source.router.state_dict().items()}
    layers = {"first": source.first.weight}
    for expert in range(3):
        gate, up = source.experts.gate_up_proj[expert].chunk(2)
        layers |= {f"experts.{expert}.gate_proj": gate, f"experts.{expert}.up_proj": up}
        layers[f"experts.{expert}.down_proj"] = source.experts.down_proj[expert]
    for name, weight in layers.items():
        values, scales = quantize_to_int4(weight.detach(), 128)
        tensors |= {f"{name}.weight": pack_int4(values), f"{name}.weight_scale_inv": scales}
    tensors["first.bias"] = source.first.bias.detach()
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    config = {"quant_method": "w4afp8", "group_size": 128}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    model = Model()
    report = nn.convert(model, tmp_path)
    assert report.replaced == {"first": "QuantLinear", "experts": "GroupedExperts"}
    assert report.left["router"] == "the checkpoint has not quantised it"
    assert report.left["head"] == "the checkpoint has no such layer"
    wanted = Model()
    nn.convert(wanted, config={"element": "int4", "activations": "fp8", "skip": ["router", "head"]})
    x = torch.randn(12, 128)
    with torch.no_grad():
        assert torch.equal(model(x), wanted(x))
