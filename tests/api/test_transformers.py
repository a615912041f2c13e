"""transformers with this library in the place of its DeepGEMM, and without: a tiny Qwen3-MoE in BF16, FP8 and int4."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="third_party/requirements-transformers.txt")

import transformers
from checkpoints import pack_quantized
from safetensors.torch import load_file, save_file
from transformers.integrations import deepgemm as kernels
from transformers.integrations import finegrained_fp8

import deep_gemm
from deep_gemm import nn, simulator
from deep_gemm.integrations import transformers as integration
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8, quantize_to_int4, quantize_to_mxfp4

TARGETS = ["sm_80", "sm_90a", "sm_100a", "sm_120"]
IDS = torch.tensor([[1, 5, 9, 60, 33], [7, 7, 2, 14, 21]])
SIZES = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 128}
SIZES |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64}
SIZES |= {"num_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64}


@pytest.fixture(autouse=True)
def _disabled_again() -> Iterator[None]:
    yield
    integration.disable()


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(**SIZES, initializer_range=0.1)
    return transformers.Qwen3MoeForCausalLM(config).bfloat16().eval()


def written(
    model: Any, folder: Path, quantised: Callable[[torch.Tensor], dict[str, torch.Tensor]], how: dict[str, Any]
) -> Path:
    """A checkpoint of the model with its projections quantised, experts one by one, by the names that models have."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    found = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        parts = quantised(tensor.float()) if re.search(r"(_proj|\.w[123])$", layer) else {"weight": tensor}
        found |= {f"{layer}.{part}": value.contiguous() for part, value in parts.items()}
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": how}))
    return folder


def logits(model: Any, experts: str) -> torch.Tensor:
    model.set_experts_implementation(experts)
    with torch.no_grad():
        result: torch.Tensor = model(IDS).logits.float()
    return result


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    calls: list[str] = []
    for name in names:
        function = getattr(deep_gemm, name)

        def call(*arguments: Any, of: Any = function, **keywords: Any) -> None:
            calls.append(of.__name__)
            of(*arguments, **keywords)

        monkeypatch.setattr(deep_gemm, name, call)
    return calls


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
def test_bf16_experts(target: str, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = logits(model, "eager")
    with pytest.raises(ImportError):  # no kernels from the hub here
        logits(model, "deepgemm")
    calls = counted(monkeypatch, "m_grouped_bf16_gemm_nt_contiguous")
    integration.enable()
    with simulator.options(target=target):
        assert distance(logits(model, "deepgemm"), wanted) < 1e-2
        assert len(calls) == 2
        with pytest.raises(RuntimeError, match="autograd cannot differentiate it"):
            model(IDS)


def in_torch(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """`fp8_linear` without a kernel: the same quantised numbers, multiplied in FP64."""
    q, s = per_token_cast_to_fp8(x.view(-1, x.shape[-1]), use_ue8m0=False)
    every = scales.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[: weight.shape[0], : weight.shape[1]]
    tokens = q.double() * s.double().repeat_interleave(128, 1)[:, : q.shape[1]]
    return (tokens @ (weight.double() * every).T).to(x.dtype).view(*x.shape[:-1], -1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
def test_fp8_checkpoint(target: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scales are no powers of two: on sm_100a, too, they are multiplied as they are."""

    def blocks(weight: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(zip(("weight", "weight_scale_inv"), per_block_cast_to_fp8(weight, use_ue8m0=False), strict=True))

    how = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    written(model, tmp_path, blocks, how)
    calls = counted(monkeypatch, "m_grouped_fp8_fp4_gemm_nt_contiguous", "fp8_fp4_gemm_nt")
    integration.enable()
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    assert model.model.layers[0].mlp.experts.gate_up_proj.dtype == torch.float8_e4m3fn
    with simulator.options(target=target):
        found = logits(model, "deepgemm")
    assert len(calls) == 2 + 4  # of experts and of attention
    integration.disable()
    monkeypatch.setattr(finegrained_fp8, "fp8_linear", in_torch)
    assert distance(found, logits(model, "eager")) < 2e-2


def int4_of(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, scales = quantize_to_int4(weight, 128)
    return values, scales.bfloat16()


def tiny_mixtral() -> Any:
    sizes = {name: value for name, value in SIZES.items() if "moe" not in name} | {"intermediate_size": 128}
    config = transformers.MixtralConfig(**sizes, num_local_experts=4, initializer_range=0.1)
    return transformers.MixtralForCausalLM(config).bfloat16().eval()


@pytest.mark.parametrize("family", ["qwen3", "mixtral"])
def test_int4_checkpoint(family: str, tmp_path: Path, model: Any) -> None:
    """In compressed-tensors' form. Mixtral's has names of its own for modules and projections."""
    exact = transformers.Qwen3MoeForCausalLM(model.config).bfloat16().eval() if family == "qwen3" else tiny_mixtral()
    if family == "qwen3":
        exact.load_state_dict(model.state_dict())
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
    how = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    how["config_groups"] = {"group_0": {"targets": ["Linear"], "weights": weights}}  # type: ignore[assignment]
    written(exact, tmp_path, lambda weight: pack_quantized(*int4_of(weight)), how)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    del config.quantization_config
    served = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, config=config, dtype=torch.bfloat16).eval()
    rename = {".mlp.": ".block_sparse_moe."} if family == "mixtral" else {}
    report = nn.convert(served, tmp_path, config={"rename": rename})
    assert sorted(report.replaced.values()) == ["GroupedExperts", *["QuantLinear"] * 4]
    with torch.no_grad():
        for name, weight in exact.named_parameters():
            if "_proj" in name:
                values, scales = int4_of(weight.flatten(0, -2).float())
                weight.copy_((values.view(*scales.shape, 128) * scales[..., None].float()).view(weight.shape))
    assert distance(logits(served, "eager"), logits(exact, "eager")) < 2e-2


def test_gpt_oss(tmp_path: Path) -> None:
    """Its experts lie with K before N, gates and ups in turn, and have biases; its checkpoint is MXFP4."""
    torch.manual_seed(0)
    sizes = {name: value for name, value in SIZES.items() if "moe" not in name} | {"intermediate_size": 128}
    config = transformers.GptOssConfig(
        **sizes, num_local_experts=4, layer_types=["full_attention"], initializer_range=0.1
    )
    config._attn_implementation = "eager"
    exact = transformers.GptOssForCausalLM(config).bfloat16().eval()
    experts, name, tensors = exact.model.layers[0].mlp.experts, "model.layers.0.mlp.experts", {}
    with torch.no_grad():
        for part in ("gate_up_proj", "down_proj"):
            bias, weight = getattr(experts, f"{part}_bias"), getattr(experts, part)
            bias.normal_()
            codes, exponents = quantize_to_mxfp4(weight.transpose(1, 2).float().contiguous())
            packed = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
            tensors[f"{name}.{part}_blocks"] = packed.view(*exponents.shape, 16).contiguous()
            tensors[f"{name}.{part}_scales"] = exponents.view(torch.uint8).contiguous()
            tensors[f"{name}.{part}_bias"] = bias.clone()
            table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
            scales = torch.exp2(exponents.float() - 127).repeat_interleave(32, -1)
            weight.copy_((torch.cat((table, -table))[codes.long()] * scales).transpose(1, 2))
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
    exact.set_experts_implementation("eager")
    wanted, found = logits(exact, "eager"), {}
    for source in (tmp_path, None):
        served = transformers.GptOssForCausalLM(config).bfloat16().eval()
        served.load_state_dict(exact.state_dict())
        served.set_experts_implementation("eager")
        how = {} if source else {"element": "e2m1", "linear": False, "group_size": 32}
        assert list(nn.convert(served, source, config=how).replaced.items()) == [(name, "GroupedExperts")]
        found[source] = logits(served, "eager")
        assert distance(found[source], wanted) < 2e-2
    assert torch.equal(found[tmp_path], found[None])
    assert "experts that train have no biases" in nn.convert(exact).left[name]


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_fp4_weights_of_a_linear_layer(target: str) -> None:
    """Tokens are such that their casts are exact, whatever shares a scale."""
    torch.manual_seed(1)
    x = torch.randint(-8, 9, (3, 256)).bfloat16()
    x[:, ::32] = 448
    codes, exponents = quantize_to_mxfp4(torch.randn(64, 256))
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).view(torch.int8)
    integration.enable()
    with simulator.options(target=target):
        found = kernels.deepgemm_fp8_fp4_linear(x, packed, exponents.view(torch.float8_e8m0fnu))
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    scales = torch.exp2(exponents.double() - 127).repeat_interleave(32, 1)
    wanted = x.double() @ (torch.cat((table, -table)).double()[codes.long()] * scales).T
    assert distance(found.double(), wanted) < 4e-3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("k", [384, 512])  # words of exponents that K fills, and that it does not
def test_exponents_as_scales_of_blocks(k: int, target: str) -> None:
    """Of 136 rows: blocks of 128 are not equal shares of them."""
    torch.manual_seed(1)
    x = torch.randint(-8, 9, (3, k)).bfloat16()
    x[:, ::128] = 448  # so that its casts are exact
    weight, scales = per_block_cast_to_fp8(torch.randn(136, k) * torch.linspace(0.1, 4, 136)[:, None], use_ue8m0=True)
    integration.enable()
    with simulator.options(target=target), torch.no_grad():
        found = finegrained_fp8.fp8_linear(x, weight, scales.to(torch.float8_e8m0fnu), [128, 128])
    assert distance(found.double(), in_torch(x.double(), weight, scales)) < 4e-3


def test_what_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: vars(kernels)[name] for name in ("_DEEPGEMM", "is_deepgemm_loadable", "is_sm100")}
    monkeypatch.setattr(importlib.import_module("transformers"), "__version__", "4.57.6")
    with pytest.raises(RuntimeError, match=r"transformers must be 5\.17 to 5\.\d\d to be enabled, got 4\.57\.6"):
        integration.enable()
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "DeepGEMM", SimpleNamespace)
    monkeypatch.delattr(kernels, "_coerce_sf_for_kernel")
    with pytest.raises(RuntimeError, match="must have _coerce_sf_for_kernel to be enabled"):
        integration.enable()
    monkeypatch.undo()
    integration.enable()
    integration.enable()
    assert integration.is_enabled()
    integration.disable()
    assert {name: vars(kernels)[name] for name in before} == before
