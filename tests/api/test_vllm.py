"""The linear kernels for vLLM: found by its selection, and right, on stand-ins of vLLM 0.33's interfaces."""

from __future__ import annotations

import logging
import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoints import words
from vllm_stub import PlatformEnum, ScalarType, installed, layer_of, parameter, scales_in

from deep_gemm import simulator
from deep_gemm.integrations import vllm as plugin
from deep_gemm.utils import per_block_cast_to_fp8, per_channel_cast_to_int8, per_token_cast_to_fp8, quantize_to_mxfp4

ROOT = Path(__file__).resolve().parents[2]
N, K, GROUP = 136, 256, 64
TARGETS = ["sm_80", "sm_90a", "sm_100a"]


def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    registered = installed(monkeypatch)
    plugin.register()
    return {kind: found[0] for (_, kind), found in registered.items()}


def test_registered_behind_vllms_own_and_by_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = installed(monkeypatch)
    plugin.register()
    plugin.register()
    assert {kind: len(found) for (platform, kind), found in registered.items() if platform is PlatformEnum.CUDA} == {
        "mp": 1,
        "int8": 1,
        "fp8_block": 1,
        "mxfp4": 1,
    }
    backends = sys.modules["vllm.model_executor.kernels.linear"]._LINEAR_BACKEND_KERNEL_MAP
    assert backends["deep_gemm"] == {found[0] for found in registered.values()}
    assert not backends["marlin"]
    for kernel in backends["deep_gemm"]:
        assert kernel.is_supported(80) == kernel.is_supported(120) == (True, None)
        assert kernel.is_supported(75) == (False, "needs compute capability 80 or higher, got 75")
        assert kernel.is_supported() == (True, None)
        assert kernel.get_min_capability() == 80
    monkeypatch.setattr(sys.modules["vllm.platforms"].current_platform, "get_device_capability", lambda: None)
    assert {kernel.is_supported() for kernel in backends["deep_gemm"]} == {(False, "needs a CUDA GPU")}


def test_the_entry_point_is_what_vllm_calls() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text[text.index('[project.entry-points."vllm.general_plugins"]') :]
    module, name = re.search(r'^deep_gemm = "([\w.]+):(\w+)"$', section, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert getattr(import_module(module), name) is plugin.register


@pytest.mark.parametrize("version", ["0.34.1", None])
def test_what_is_not_known_is_logged_and_never_raises(
    version: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registered = installed(monkeypatch, version or "")
    if version is None:
        monkeypatch.setitem(sys.modules, "vllm", None)
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert not registered
    said = "vLLM must be 0.33, got 0.34.1" if version else "ModuleNotFoundError: import of vllm halted"
    assert f"deep_gemm registers no linear kernels: {said}" in caplog.text


def tokens_and_bias(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, K, generator=generator) + 0.5  # so that zero points are not 0
    return x.to(dtype), 20 * torch.randn(N, generator=generator).to(dtype)


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x.double() @ weight.T.double() + bias.double()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("group", [GROUP, -1])
@pytest.mark.parametrize("form", ["gptq", "compressed-tensors"])  # where K lies; AWQ comes as GPTQ
@pytest.mark.parametrize("act_order", [False, True])
def test_weights_of_4_and_8_bits(
    bits: int, zero_points: bool, group: int, form: str, act_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(bits + group)
    groups = 1 if group == -1 else K // group
    stored = torch.randint(0, 2**bits, (N, K), generator=generator)
    zeros = torch.randint(0, 2**bits, (N, groups), generator=generator) if zero_points else None
    scales = (torch.rand(N, groups, generator=generator) + 0.5).bfloat16()
    offset = torch.full((N, groups), 2 ** (bits - 1)) if zeros is None else zeros
    each = K // groups
    g_idx = torch.arange(K) // each
    if act_order:
        g_idx = g_idx[torch.randperm(K, generator=generator)]
    weight = (stored - offset[:, g_idx]).double() * scales.double()[:, g_idx]

    packed = words(stored, bits)  # [N, K / values a word]
    layer = layer_of(
        w=parameter(packed, output_dim=0, input_dim=1, packed_dim=1)
        if form == "compressed-tensors"
        else parameter(packed.T.contiguous(), output_dim=1, input_dim=0, packed_dim=0),
        s=parameter(scales, output_dim=0, input_dim=1)
        if form == "compressed-tensors"
        else parameter(scales.T.contiguous(), output_dim=1, input_dim=0),
        z=None
        if zeros is None
        else parameter(words(zeros.T, bits).T.contiguous(), output_dim=0, input_dim=1, packed_dim=0),
    )
    kind = ScalarType(bits, 0 if zero_points else 2 ** (bits - 1))
    config = SimpleNamespace(
        full_weight_shape=(K, N),
        partition_weight_shape=(K, N),
        weight_type=kind,
        act_type=torch.bfloat16,
        group_size=group,
        zero_points=zero_points,
        out_type=None,
        has_g_idx=act_order,
    )
    layer.register_parameter("g", parameter(g_idx.int()))
    kernel = kernels(monkeypatch)["mp"](config, "w", "s", "z", "g")
    kernel.process_weights_after_loading(layer)
    assert layer.w.numel() == layer.s.numel() == 0
    x, bias = tokens_and_bias(torch.bfloat16)
    assert distance(kernel.apply_weights(layer, x, bias), product(x, weight, bias)) < 5e-3
    refused = SimpleNamespace(**{**vars(config), "group_size": 48})
    assert kernel.can_implement(refused) == (False, "group_size must be -1 or a multiple of 32, got 48")
    refused = SimpleNamespace(**{**vars(config), "weight_type": ScalarType(2, 2)})
    assert "weights must be uint4b8 or uint8b128" in kernel.can_implement(refused)[1]
    refused = SimpleNamespace(**{**vars(config), "full_weight_shape": (2 * K, N), "has_g_idx": True})
    assert "K in act order must not be cut" in kernel.can_implement(refused)[1]


@pytest.mark.parametrize("target", TARGETS)
def test_fp8_blocks(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    magnitudes = torch.linspace(0.1, 4, N)[:, None] * torch.linspace(0.2, 3, K)  # so that scales differ
    weight, scales = per_block_cast_to_fp8(torch.randn(N, K) * magnitudes, use_ue8m0=False)
    layer = layer_of(weight=parameter(weight), weight_scale_inv=parameter(scales))
    keys = {"weight_quant_key": scales_in(128, 128), "activation_quant_key": scales_in(1, 128)}
    config = SimpleNamespace(**keys, weight_shape=(N, K), input_dtype=torch.bfloat16, out_dtype=torch.bfloat16)
    kernel = kernels(monkeypatch)["fp8_block"](config)
    every = scales.repeat_interleave(128, 0)[:N].repeat_interleave(128, 1)
    x, bias = tokens_and_bias(torch.bfloat16)
    with simulator.options(target=target):
        kernel.process_weights_after_loading(layer)
        found = kernel.apply_weights(layer, x, bias)
    assert found.dtype == torch.bfloat16
    q, s = per_token_cast_to_fp8(x.view(-1, K), use_ue8m0=False)
    rounded = (q.double() * s.double().repeat_interleave(128, 1)).view(x.shape)
    assert distance(found, product(rounded, weight.double() * every, bias)) < 4e-3
    for changed, words_of in (
        ({"weight_quant_key": scales_in(1, 128)}, "weights must have a scale for each (128, 128), got (1, 128)"),
        ({"activation_quant_key": scales_in(1, 128, static=True)}, "activations must be quantised in each call"),
        ({"weight_shape": (N, 250)}, "input features must be a multiple of 16, got 250"),
    ):
        answer, why = kernel.can_implement(SimpleNamespace(**{**vars(config), **changed}))
        assert not answer
        assert words_of in why


def test_scales_of_fp8_blocks_that_are_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As numbers they would be 127 for one."""
    layer = layer_of(weight=parameter(torch.zeros(N, K).to(torch.float8_e4m3fn)))
    layer.weight_scale_inv = parameter(torch.full((2, 2), 127, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"weight_scale_inv must be torch\.float32 or .*, got torch\.uint8"):
        kernels(monkeypatch)["fp8_block"](SimpleNamespace()).process_weights_after_loading(layer)


def test_mxfp4(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, exponents = quantize_to_mxfp4(torch.randn(N, K))
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    every = torch.exp2(exponents.double() - 127).repeat_interleave(32, 1)
    weight = torch.cat((table, -table)).double()[codes.long()] * every
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    layer = layer_of(weight=parameter(packed), weight_scale=parameter(exponents.view(torch.uint8)))
    kernel = kernels(monkeypatch)["mxfp4"](SimpleNamespace(activation_quant_key=None))
    kernel.process_weights_after_loading(layer)
    x, bias = tokens_and_bias(torch.float16)
    found = kernel.apply_weights(layer, x, bias)
    assert found.dtype == torch.float16
    assert distance(found, product(x, weight, bias)) < 2e-3


@pytest.mark.parametrize("scheme", ["dynamic", "zero points", "static"])
def test_int8(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, scales = per_channel_cast_to_int8(torch.randn(N, K))
    per_tensor = scheme == "static"  # two layers fused, of a scale each
    if per_tensor:
        scales = torch.tensor([0.02, 0.03])
    names = ["weight", "weight_scale", "input_scale", "input_zero_point", "azp_adj"]
    x, bias = tokens_and_bias(torch.bfloat16)
    static = parameter(x.float().abs().max().reshape(1) / 127) if per_tensor else None
    layer = layer_of(**dict.fromkeys(names))
    layer.weight, layer.weight_scale = parameter(weight), parameter(scales if per_tensor else scales.view(-1, 1))
    layer.input_scale, layer.logical_widths = static, [100, 36]
    config = SimpleNamespace(is_static_input_scheme=per_tensor, is_channelwise=not per_tensor)
    config.input_symmetric = scheme != "zero points"
    kernel = kernels(monkeypatch)["int8"](config, names)
    kernel.process_weights_after_loading(layer)
    every = scales.repeat_interleave(torch.tensor([100, 36])) if per_tensor else scales.view(-1)
    found = kernel.apply_weights(layer, x, bias)
    assert distance(found, product(x, weight.double() * every.double()[:, None], bias)) < 1e-2
    refused = SimpleNamespace(**{**vars(config), "is_static_input_scheme": True, "input_symmetric": False})
    assert kernel.can_implement(refused) == (False, "static activations must be symmetric")
