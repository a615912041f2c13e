"""`precompile --model`: the products of a model, by the fields of its config.json."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import fresh
import pytest
import torch
from command_line import refuse, succeed
from model_configs import DEEPSEEK, FP8, MODELS, SMALL

import deep_gemm
from deep_gemm import jit, nn
from deep_gemm._models import ModelCalls, kernels_of_model, weights_of_model
from deep_gemm._precompile import kernels_of
from deep_gemm._recording import Machine
from deep_gemm.nn.numbers import operands_of
from deep_gemm.nn.products import experts_product


@pytest.mark.parametrize("model", MODELS)
def test_weights_of_models(model) -> None:
    config, (tensor, expert), wanted = MODELS[model]
    found = weights_of_model(config, ModelCalls(tensor, expert, groupings=["masked"]))
    weights = {each.name: (each.n, each.k, each.calls.operands.product, each.calls.experts) for each in found}
    assert wanted.items() <= weights.items()
    assert ("gate and up" in weights) == (
        model not in ("Qwen3-30B-A3B", "gpt-oss-120b", "MiniMax-M2", "Mixtral-8x7B, AWQ")
    )
    assert all(each.calls.operands.zero_points == ("AWQ" in model) for each in found)


CALL = """
import deep_gemm
deep_gemm.precompile_model({config!r}, deep_gemm.ModelCalls(max_m=64, max_masked_m=32))
known = {{(entry.name, entry.key) for entry in jit.list_cache()}}
blank = jit.placeholder
def pair(*shape, block=1):
    *groups, rows, k = shape
    return blank(*shape, dtype=torch.float8_e4m3fn), blank(*groups, -(-rows // block), k // 128, dtype=torch.float32)
with jit.record("sm_90a") as recording:
    for m in range(1, 65):
        deep_gemm.fp8_gemm_nt(pair(m, 512), pair(768, 512, block=128), blank(m, 768, dtype=torch.bfloat16))
    for hint in range(1, 33):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(
            pair(4, 32, 512), pair(4, 512, 512, block=128), blank(4, 32, 512, dtype=torch.bfloat16),
            torch.zeros(4, dtype=torch.int32), hint)
products = [kernel for kernel in recording.kernels if "GemmConfig" in kernel.text]
keys = [(kernel.name, C.jit_cache_key(kernel.name, kernel.text, kernel.target, "cubin")) for kernel in products]
result = [len(products), [name for name, key in keys if (name, key) not in known]]
"""


def test_what_a_model_calls_is_there_afterwards(cache) -> None:
    count, missing = fresh.check(CALL.format(config=SMALL), DG_JIT_CACHE_DIR=cache).result
    assert count >= 2
    assert missing == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in MODELS["DeepSeek-V3"][2] if "experts'" not in name])
def test_a_sweep_of_tokens_needs_no_other_kernels(name) -> None:
    """Each number of tokens from 1 to 8192, in the form in which layers call."""
    (weight,) = (w for w in weights_of_model(DEEPSEEK, ModelCalls(expert_parallel=8)) if w.name == name)
    found = kernels_of(weight.calls, [(weight.n, weight.k)], 8192, Machine("sm_90a", 132), progress=False)
    a, blocks = jit.placeholder(8192, weight.k, dtype=torch.float8_e4m3fn), -(-weight.n // 128)
    a_scales = jit.placeholder(weight.k // 128, 8192, dtype=torch.float32).T
    b = (
        jit.placeholder(weight.n, weight.k, dtype=torch.float8_e4m3fn),
        jit.placeholder(blocks, weight.k // 128, dtype=torch.float32),
    )
    d = jit.placeholder(8192, weight.n, dtype=torch.bfloat16)
    with jit.record("sm_90a") as recording:
        for m in range(1, 8193):
            deep_gemm.fp8_gemm_nt((a[:m], a_scales[:m]), b, d[:m])
    assert 1 < len(recording.kernels) <= len(found)
    assert {*recording.kernels} <= {*found}


MLA_OF_SMALL = {"kv_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


def named(precision: str) -> dict[str, Any]:
    return {"quantization_config": FP8 if precision == "fp8" else None}


@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_layers_that_serve_and_train_need_no_other_kernels(precision) -> None:
    """By the recorder, which runs nothing: what the layers of such a model call with numbers of tokens drawn here."""
    config = {**SMALL, **named(precision)}
    calls = ModelCalls(max_m=96, max_masked_m=32, groupings=["contiguous"], training=True)
    weights = weights_of_model(config, calls)
    found = kernels_of_model(config, weights, calls, Machine("sm_90a", 132))
    experts = torch.zeros(4, 512, 512, dtype=torch.bfloat16, requires_grad=True)  # gate and up
    linear = nn.FP8Linear(weights[0].k, weights[0].n, bias=False, precision=precision, dtype=torch.bfloat16)
    tokens = [1, 96, *random.sample(range(2, 96), 3)]
    with jit.record("sm_90a") as recording:
        for m in tokens:
            x = torch.zeros(m, 512, dtype=torch.bfloat16, requires_grad=True)
            linear(x).sum().backward()
            alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
            rows = -(-(m * 2 + 4 * (alignment - 1)) // alignment) * alignment  # with all the padding that there can be
            of_experts = torch.zeros(rows, 512, dtype=torch.bfloat16, requires_grad=True)
            ends = torch.tensor([rows, 0, 0, 0], dtype=torch.int32).cumsum(0).int()
            operands = operands_of(experts.detach(), precision, True)
            layout = torch.zeros(rows, dtype=torch.int32)
            experts_product(of_experts, experts, *operands, layout, ends).sum().backward()
    missing = {kernel.name for kernel in recording.kernels} - {kernel.name for kernel in found.kernels}
    assert not missing, tokens
    assert {*recording.kernels} <= {*found.kernels}, tokens


def test_batches_and_logits_of_mla_are_among_the_kernels() -> None:
    config = {**SMALL, **MLA_OF_SMALL, "index_n_heads": 32, "index_head_dim": 128}
    calls = ModelCalls(max_m=64, max_masked_m=8)
    found = kernels_of_model(config, weights_of_model(config, calls), calls, Machine("sm_90a", 132))
    blank = jit.placeholder
    with jit.record("sm_90a") as recording:
        for m in (1, 64, *random.sample(range(2, 64), 2)):
            a = blank(m, 8, 128, dtype=torch.float8_e4m3fn), blank(m, 8, 1, dtype=torch.float32)
            b = blank(8, 128, 256, dtype=torch.float8_e4m3fn), blank(8, 1, 2, dtype=torch.float32)
            deep_gemm.fp8_einsum("bhd,hdr->bhr", a, b, blank(m, 8, 256, dtype=torch.bfloat16))
            q, keys = blank(m, 32, 128, dtype=torch.float8_e4m3fn), blank(256, 128, dtype=torch.float8_e4m3fn)
            ends = blank(m, dtype=torch.int32)
            scales, of_heads = blank(256, dtype=torch.float32), blank(m, 32, dtype=torch.float32)
            deep_gemm.fp8_mqa_logits(q, (keys, scales), of_heads, ends, ends)
    assert len(recording.kernels) >= 3
    assert {*recording.kernels} <= {*found.kernels}


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_the_product_before_the_norm_is_among_the_kernels(target) -> None:
    """Of hyperconnections, whose copies of the residual make K; of all numbers of tokens."""
    config = {**SMALL, "hc_mult": 4}
    calls = ModelCalls(max_m=300, max_masked_m=8)
    found = kernels_of_model(config, weights_of_model(config, calls), calls, Machine(target, 132))
    n, k = 24, 4 * SMALL["hidden_size"]
    with jit.record(target) as recording:
        for m in (1, 16, 17, 300, *random.sample(range(2, 300), 3)):
            d, squares = jit.placeholder(m, n, dtype=torch.float32), jit.placeholder(m, dtype=torch.float32)
            a, b = jit.placeholder(m, k, dtype=torch.bfloat16), jit.placeholder(n, k, dtype=torch.float32)
            deep_gemm.tf32_hc_prenorm_gemm(a, b, d, squares)
    assert recording.kernels
    assert {*recording.kernels} <= {*found.kernels}


def test_batches_of_heads_by_groups_are_among_the_kernels() -> None:
    config = {**SMALL, "head_dim": 64, "q_lora_rank": 128, "o_lora_rank": 256, "o_groups": 4}
    calls = ModelCalls(max_m=64, max_masked_m=8)
    found = kernels_of_model(config, weights_of_model(config, calls), calls, Machine("sm_90a", 132))
    blank = jit.placeholder
    with jit.record("sm_90a") as recording:
        for m in (1, 64, *random.sample(range(2, 64), 2)):
            a = blank(m, 4, 128, dtype=torch.float8_e4m3fn), blank(m, 4, 1, dtype=torch.float32)
            b = blank(4, 256, 128, dtype=torch.float8_e4m3fn), blank(4, 2, 1, dtype=torch.float32)
            deep_gemm.fp8_einsum("bhr,hdr->bhd", a, b, blank(m, 4, 256, dtype=torch.bfloat16))
    assert {*recording.kernels} <= {*found.kernels}
    with pytest.raises(ValueError, match=r"o_groups=4 must be divisible by the number of GPUs .*, got 8"):
        weights_of_model(config, ModelCalls(tensor_parallel=8))


def test_the_command_lists_weights_and_kernels(tmp_path, cache) -> None:
    """With a dry run nothing is compiled. A model with an indexer has its logits."""
    more = {"index_n_heads": 64, "index_head_dim": 128, "hc_mult": 4}
    (tmp_path / "config.json").write_text(json.dumps({**DEEPSEEK, **more}))
    options = ("--max-m", "16", "--max-masked-m", "8", "--expert-parallel", "32", "--dry-run")
    printed = succeed("precompile", "--model", str(tmp_path), *options, DG_JIT_CACHE_DIR=cache)
    assert "experts' down                  7168 x   2048 fp8, 8 masked: " in printed
    assert "indexer q                      8192 x   1536 fp8: " in printed
    assert "fp8_mqa_logits" in printed
    for name in (
        "quantised tokens",
        "routing",
        "absorbed queries",
        "expanded results",
        "index logits",
        "before the norm",
    ):
        assert re.search(rf"^{name} +[0-9]+ kernels$", printed, re.MULTILINE)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": None}, "config must have hidden_size, an integer, got None"),
        ({"quantization_config": {"quant_method": "quark"}}, "quant_method must be one of fp8, .*, got 'quark'"),
        ({"quantization_config": {"quant_method": "fp8"}}, r"weight_block_size must be \[128, 128\], got None"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "weights of gptq must have 4 or 8 bits, got 3"),
        ({"num_attention_heads": 6}, "num_attention_heads=6 must be divisible by the number of GPUs .*, got 4"),
    ],
)
def test_what_is_unknown_is_refused(changes, said) -> None:
    with pytest.raises(ValueError, match=said):
        deep_gemm.precompile_model({**SMALL, **changes}, deep_gemm.ModelCalls(tensor_parallel=4))


def test_the_command_wants_weights_or_a_model(cache, tmp_path) -> None:
    said = "precompile wants shapes of weights (7168x2048 ...), or --model config.json"
    assert said in refuse("precompile", DG_JIT_CACHE_DIR=cache)
    assert said in refuse("precompile", "512x512", "--model", "x", DG_JIT_CACHE_DIR=cache)
    assert "No such file" in refuse("precompile", "--model", str(tmp_path / "none.json"), DG_JIT_CACHE_DIR=cache)


COMPRESSED = {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"type": "int", "num_bits": 8}}}}


@pytest.mark.parametrize(
    ("given", "group", "zeros"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": False}, 64, True),
        ({"quant_method": "gptq", "bits": 8}, 128, False),
        (COMPRESSED, None, False),
    ],
)
def test_weights_of_8_bits_beside_16(given, group, zeros) -> None:
    for each in weights_of_model({**SMALL, "quantization_config": given}, ModelCalls()):
        made = each.calls.operands
        assert (made.product, made.group_size, made.zero_points) == ("bf16_int8", group, zeros)
