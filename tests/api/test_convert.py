"""A model's layers replaced: by parameters that it has, and by a checkpoint; and what is left, with reasons."""

from __future__ import annotations

import json

import pytest
import torch

from deep_gemm import nn
from deep_gemm.epilogue import GeGLU, SwiGLU
from deep_gemm.nn.recognise import gate_of
from deep_gemm.quantize import fp8_blocks
from deep_gemm.utils import pack_int4, per_block_cast_to_fp8, quantize_to_int4
from deep_gemm.weights import pack_weights


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
    assert "experts: left, tried with small tensors it is no gated activation" in str(nn.convert(other))
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


def a_limit(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate.clamp(max=7.0)) * up.clamp(-7.0, 7.0)


def of_gpt_oss(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


GATES = {
    "silu": (SwiGLU(), lambda gate, up: torch.nn.functional.silu(gate) * up),
    "gelu": (GeGLU(approximate="none"), lambda gate, up: torch.nn.functional.gelu(gate) * up),
    "limit": (SwiGLU(limit=7.0), a_limit),
    "gpt-oss": (SwiGLU(7.0, 1.702, 1.0), of_gpt_oss),
    "ups first": (None, lambda gate, up: torch.nn.functional.silu(up) * gate),
    "no weight": (None, lambda gate, up: torch.nn.functional.silu(gate) * up * 1.01),
}


class Gated(torch.nn.Module):
    def __init__(self, kind: str, layout: str) -> None:
        super().__init__()
        self.gate, self.layout = GATES[kind][1], layout
        self.gate_up_proj = torch.nn.Parameter(torch.empty(3, 256, 128, device="meta"))
        self.down_proj = torch.nn.Parameter(torch.empty(3, 128, 128, device="meta"))

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        both = torch.einsum("th,tsnh->tsn", x, self.gate_up_proj[ids])
        gate, up = both.chunk(2, -1) if self.layout == "halves" else (both[..., ::2], both[..., 1::2])
        return torch.einsum("tsi,tshi,ts->th", self.gate(gate, up), self.down_proj[ids], weights)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("kind", GATES)
def test_what_experts_compute_is_found_by_trying(kind, layout) -> None:
    found, wanted = gate_of(Gated(kind, layout)), GATES[kind][0]
    if wanted is None:
        assert isinstance(found, str)
    else:
        assert not isinstance(found, str)
        assert (found.record[0], *found.record[2:]) == (wanted.record[0], *wanted.record[2:])
        assert found.layout == layout


def test_linear_layers_that_are_more_than_that_are_left() -> None:
    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = torch.nn.ModuleDict({"doubled": Doubled(16, 16), "hooked": torch.nn.Linear(16, 16)})
    model["normed"] = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 16))
    model["hooked"].register_forward_hook(lambda _module, _inputs, y: y + 1)
    report = nn.convert(model)
    assert report.replaced == {}
    assert report.left == {
        "doubled": "Doubled has a forward of its own",
        "hooked": "it has hooks, which its successor would not",
        "normed": "its parameters are parametrised",
    }


def test_fp8_checkpoints_in_blocks_are_read_as_their_config_says() -> None:
    q, s = per_block_cast_to_fp8(torch.randn(256, 128), use_ue8m0=True)
    exponents = (s.view(torch.int32) >> 23).to(torch.uint8)
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}

    def weights(tensors: dict[str, torch.Tensor], **more: object) -> torch.Tensor:
        named = {f"down.{name}": tensor for name, tensor in tensors.items()}
        made = nn.QuantLinear.from_checkpoint(named, "down", config={**config, **more})
        data, scales = made.weights
        assert torch.equal(data.view(torch.uint8), q.view(torch.uint8))
        return scales

    assert torch.equal(weights({"weight": q, "weight_scale_inv": s}), s)
    assert torch.equal(weights({"weight": q, "weight_scale_inv": exponents}, scale_fmt="ue8m0"), s)
    with pytest.raises(TypeError, match=r"weight_scale_inv must be torch\.float32"):
        weights({"weight": q, "weight_scale_inv": exponents})
    with pytest.raises(ValueError, match="weight_scale_inv must be finite"):
        weights({"weight": q, "weight_scale_inv": s.clone().fill_(float("nan"))})
    with pytest.raises(NotImplementedError, match=r"weight_block_size must be \[128, 128\] .* got \(64, 128\)"):
        weights({"weight": q, "weight_scale_inv": s.repeat_interleave(2, 0)}, weight_block_size=[64, 128])
    with pytest.raises(NotImplementedError, match="pre_quant_scale must not be there"):
        weights({"weight": q, "weight_scale_inv": s, "pre_quant_scale": torch.ones(128)})
    with pytest.raises(NotImplementedError, match="transform_config must be empty"):
        weights({"weight": q, "weight_scale_inv": s}, transform_config={"config_groups": {"u": {}}})


def test_biases_of_experts_beside_packed_weights_only() -> None:
    weight = torch.randn(2, 128, 128)
    packed = pack_weights(*quantize_to_int4(weight, 128), element="int4", activations="bf16", group_size=128)
    halves = pack_weights(*quantize_to_int4(weight[:, :, :64], 64), element="int4", activations="bf16", group_size=64)
    with pytest.raises(ValueError, match=r"gate_up_bias must be \[2, 128\], got \[2, 64\]"):
        nn.GroupedExperts.from_weights(packed, halves, gate_up_bias=torch.zeros(2, 64))
    blocks = [fp8_blocks(part) for part in (weight, weight[:, :, :64].contiguous())]
    with pytest.raises(NotImplementedError, match="down_bias must be None except beside PackedWeights"):
        nn.GroupedExperts.from_weights(*blocks, down_bias=torch.zeros(2, 128))


class Processes:
    """The second of two."""

    def size(self) -> int:
        return 2

    def rank(self) -> int:
        return 1


def test_experts_of_one_process() -> None:
    """Half of the experts, packed as they are of the whole."""
    torch.manual_seed(0)
    whole = Gated("silu", "halves")
    whole.gate_up_proj = torch.nn.Parameter(torch.randn(4, 256, 128) / 12)
    whole.down_proj = torch.nn.Parameter(torch.randn(4, 128, 128) / 12)
    model = torch.nn.ModuleDict({"experts": whole})
    nn.convert(model, config={"element": "int4", "group": Processes()})
    own = model["experts"]
    assert (own.num_experts, own.local_experts) == (4, 2)
    every = quantize_to_int4(whole.down_proj.detach(), 128)
    packed = pack_weights(*(part[2:] for part in every), element="int4", activations="bf16", group_size=128)
    assert torch.equal(own.down.weights.dequantize(), packed.dequantize())
    report = nn.convert(torch.nn.ModuleDict({"experts": whole}), config={"group": Processes()})
    assert "spreads experts for inference only" in report.left["experts"]
