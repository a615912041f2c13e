"""The products that a model calls, by the fields of its Hugging Face config.json, and compiling their kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import jit
from ._layer_calls import whole_layer_calls
from ._model_calls import Batch, Limits, before_norm, of_model
from ._numbers import integer
from ._precompile import Calls, Operands, Part, each_once, output_for, parts_of, record_parts
from ._recording import Machine, RecordedKernel, Recording, sms_of
from ._targets import HOPPER_TARGET
from .logits import logits_kernels

Fields = Mapping[str, Any]
_BLOCK = [128, 128]
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
_LOGITS_ROWS, _LOGITS_BLOCKS = (*range(1, 129), 8192), (0, 64)


@dataclass(frozen=True)
class ModelCalls:
    """How a program calls a model's layers.

    Args:
        tensor_parallel, expert_parallel: GPUs that share layers, and experts. Experts are cut by tensor_parallel only
            where expert_parallel is 1.
        max_m: the most tokens of a call; contiguous experts get that times the model's experts a token.
        max_masked_m: rows that each expert of masked calls has room for.
        groupings: how experts are called: 'contiguous', 'psum', 'masked'.
        product: multiply by this ('fp8', 'bf16_int4', ...: as the functions' names begin), whatever quantization_config
            says.
        training: also gradients of tokens and of weights (of experts by K groups), of FP8 and BF16.
        mega_moe: also experts by `mega_moe_pre_dispatch_sm90` and `fp8_mega_moe` (FP8, or int4 or MXFP4 beside FP8), of
            a group of expert_parallel ranks; in one launch and in two.
    """

    tensor_parallel: int = 1
    expert_parallel: int = 1
    max_m: int = 4096
    max_masked_m: int = 1024
    groupings: Sequence[str] = ("contiguous", "masked")
    product: str | None = None
    training: bool = False
    mega_moe: bool = False

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "expert_parallel", "max_m", "max_masked_m"):
            integer(name, getattr(self, name), smallest=1)


@dataclass(frozen=True)
class ModelWeight:
    """A weight of a layer, and how it is multiplied."""

    name: str
    n: int
    k: int
    calls: Calls
    rows_a_token: int = 1  # of contiguous experts: each token goes to several
    model_experts: int = 1  # on all GPUs


def read_config(config: str | Path | Fields) -> dict[str, Any]:
    """A config.json, its path, its directory, or its content. Of a model with pictures, that of its text."""
    if not isinstance(config, Mapping):
        path = Path(config)
        config = json.loads((path / "config.json" if path.is_dir() else path).read_text())
    if not isinstance(config, dict):
        raise ValueError(f"config must be that of a model, got {type(config).__name__}")
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else dict(config)


def _divide(name: str, value: int, by: int) -> int:
    if value % by != 0:
        raise ValueError(f"{name}={value} must be divisible by the number of GPUs that share it, got {by}")
    return value // by


def _need(fields: Fields, name: str) -> int:
    if not isinstance(fields.get(name), int):
        raise ValueError(f"config must have {name}, an integer, got {fields.get(name)!r}")
    return int(fields[name])


def _of_packed(group_size: object, product: str, zero_points: bool) -> Operands:
    size = None if group_size in (None, -1) else integer("group_size", group_size)
    return Operands(product, size, zero_points=zero_points)


def _operands(fields: Fields, product: str | None) -> tuple[Operands, Operands]:
    """Of layers and of experts: of `product`, if there is one, whatever the config says."""
    if product is not None:
        return Operands(product), Operands(product)
    dtype = str(fields.get("torch_dtype") or fields.get("dtype") or "bfloat16")
    plain = Operands("fp16" if dtype.endswith("float16") and not dtype.endswith("bfloat16") else "bf16")
    given = fields.get("quantization_config") or fields.get("compression_config")
    if not given:
        return plain, plain
    method = given.get("quant_method")
    if method == "fp8":
        if given.get("weight_block_size") != _BLOCK:
            raise ValueError(f"weight_block_size must be [128, 128], got {given.get('weight_block_size')!r}")
        return Operands("fp8"), Operands("fp8")
    if method == "mxfp4":  # experts only
        return plain, Operands("bf16_fp4")
    if method in ("gptq", "awq"):
        zero_points = bool(given.get("zero_point")) if method == "awq" else given.get("sym") is False
        bits = given.get("bits", given.get("w_bit"))
        served = (4, 8) if method == "gptq" else (4,)
        if bits not in served:
            many = " or ".join(map(str, served))
            raise ValueError(
                f"weights of {method} must have {many} bits, got {bits!r}: name a product that serves it, or None "
                "for BF16"
            )
        packed = _of_packed(given.get("group_size", 128), f"bf16_int{bits}", zero_points)
        return packed, packed
    if method == "compressed-tensors":
        packed = _compressed_tensors(given)
        return packed, packed
    raise ValueError(f"quant_method must be one of fp8, mxfp4, gptq, awq, compressed-tensors, got {method!r}")


def _compressed_tensors(given: Fields) -> Operands:
    groups = [group for group in (given.get("config_groups") or {}).values() if isinstance(group, dict)]
    if len(groups) != 1:
        raise ValueError(f"config_groups must have one group, got {len(groups)}: name the product")
    weights, tokens = groups[0].get("weights") or {}, groups[0].get("input_activations") or {}
    kinds = tuple((side.get("type"), side.get("num_bits")) for side in (weights, tokens))
    if kinds == (("int", 8), ("int", 8)):
        return Operands("int8")
    if kinds == (("float", 8), ("float", 8)) and weights.get("block_structure") == _BLOCK:
        return Operands("fp8")
    products = {
        (("int", 4), ("int", 8)): "int8_int4",
        (("int", 4), ("float", 8)): "fp8_int4",
        (("int", 4), (None, None)): "bf16_int4",
        (("int", 8), (None, None)): "bf16_int8",
    }
    if kinds not in products:
        raise ValueError(f"config_groups: weights of {kinds[0]} beside activations of {kinds[1]} are not served")
    zero_points = weights.get("symmetric") is False
    return _of_packed(weights.get("group_size"), products[kinds], zero_points)


def _attention(fields: Fields, tensor_parallel: int) -> Iterator[tuple[str, int, int]]:
    """Name, N and K."""
    hidden = _need(fields, "hidden_size")
    heads = _divide("num_attention_heads", _need(fields, "num_attention_heads"), tensor_parallel)
    if fields.get("o_lora_rank"):  # DeepSeek-V4: one head of keys and values, and results of heads by groups
        queries, width = _need(fields, "q_lora_rank"), _need(fields, "head_dim")
        groups, _, rank = _groups_of_heads(fields, tensor_parallel)
        yield "q_a and kv", queries + width, hidden
        yield "q_b", heads * width, queries
        yield "o_b", hidden, groups * rank
        yield from _indexer(fields, queries)
        return
    if fields.get("kv_lora_rank"):
        kv_rank, rope = _need(fields, "kv_lora_rank"), _need(fields, "qk_rope_head_dim")
        nope, v = _need(fields, "qk_nope_head_dim"), _need(fields, "v_head_dim")
        q_rank = fields.get("q_lora_rank")
        if q_rank:
            yield "q_a and kv_a", q_rank + kv_rank + rope, hidden
            yield "q_b", heads * (nope + rope), q_rank
        else:
            yield "q", heads * (nope + rope), hidden
            yield "kv_a", kv_rank + rope, hidden
        yield "kv_b", heads * (nope + v), kv_rank
        yield "o", hidden, heads * v
        yield from _indexer(fields, q_rank or hidden)
        return
    width = fields.get("head_dim") or hidden // _need(fields, "num_attention_heads")
    of_kv = fields.get("num_key_value_heads") or _need(fields, "num_attention_heads")
    kv_heads = max(1, of_kv // tensor_parallel)  # more GPUs than heads: each has a copy
    yield "qkv", (heads + 2 * kv_heads) * width, hidden
    yield "o", hidden, heads * width


def _indexer(fields: Fields, of_queries: int) -> Iterator[tuple[str, int, int]]:
    if fields.get("index_n_heads"):
        yield "indexer q", _need(fields, "index_n_heads") * _need(fields, "index_head_dim"), of_queries
        yield "indexer k", _need(fields, "index_head_dim"), _need(fields, "hidden_size")


def _mlp(name: str, hidden: int, inner: int) -> Iterator[tuple[str, int, int]]:
    yield f"{name}gate and up", 2 * inner, hidden
    yield f"{name}down", hidden, inner


def weights_of_model(config: str | Path | Fields, calls: ModelCalls) -> list[ModelWeight]:
    """The weights that one GPU multiplies in a model's layers, each kind once."""
    fields, tensor_parallel = read_config(config), calls.tensor_parallel
    of_layers, of_experts = _operands(fields, calls.product)
    hidden = _need(fields, "hidden_size")
    layers = list(_attention(fields, tensor_parallel))
    experts = next((_need(fields, name) for name in _EXPERTS if fields.get(name)), 0)
    dense = fields.get("intermediate_size")
    inner = fields.get("moe_intermediate_size")
    if experts and not inner:  # the one size is of experts, layers without them have another or are not there
        inner, dense = dense, fields.get("intermediate_size_mlp")
        shared = inner if dense else 0
    else:
        shared = (fields.get("n_shared_experts") or 0) * (inner or 0)
        shared = shared or fields.get("shared_expert_intermediate_size") or 0
        every = not fields.get("first_k_dense_replace") and not fields.get("mlp_only_layers")
        if experts and every and (fields.get("decoder_sparse_step") or 1) == 1:
            dense = None  # all layers have experts
    for name, size in (("", dense), ("shared expert's ", shared)):
        if size:
            layers += _mlp(name, hidden, _divide("intermediate_size", size, tensor_parallel))
    found = [ModelWeight(name, n, k, Calls(of_layers)) for name, n, k in layers]
    if experts:
        if not isinstance(inner, int):
            raise ValueError(f"config must have moe_intermediate_size or intermediate_size, got {inner!r}")
        a_gpu = _divide(f"experts ({experts})", experts, calls.expert_parallel)
        share = _divide("moe_intermediate_size", inner, tensor_parallel if calls.expert_parallel == 1 else 1)
        top_k = fields.get("num_experts_per_tok") or 1
        for grouping in calls.groupings:
            made = Calls(of_experts, grouping, a_gpu)
            found += [
                ModelWeight(f"experts' {name}", n, k, made, top_k, experts) for name, n, k in _mlp("", hidden, share)
            ]
    return found


@dataclass(frozen=True)
class ModelKernels:
    """What a model's calls need: of each weight's products, and of what is called beside them, by its name."""

    of_weights: list[tuple[ModelWeight, list[RecordedKernel]]]
    of_others: list[tuple[str, list[RecordedKernel]]]

    @property
    def kernels(self) -> list[RecordedKernel]:
        """All of them, each once."""
        return each_once(some for _, some in [*self.of_weights, *self.of_others])


def kernels_of_model(
    config: str | Path | Fields,
    weights: Sequence[ModelWeight],
    calls: ModelCalls,
    machine: Machine,
    *,
    progress: bool = False,
) -> ModelKernels:
    """Of a model with these weights."""
    limits = Limits(calls.max_m, calls.max_masked_m, machine.target)
    each: list[list[Part]] = []
    for weight in weights:
        each.append(parts_of(weight.calls, weight.n, weight.k, limits.rows_of(weight), limits.target))
    fields = read_config(config)
    others = of_model(weights, _batches(fields, calls.tensor_parallel), limits, calls.training)
    if fields.get("hc_mult"):
        copies = _need(fields, "hc_mult")
        others.append(before_norm(copies * (copies + 2), copies * _need(fields, "hidden_size"), limits.max_m))
    if calls.mega_moe:
        others.append(whole_layer_calls(weights, limits))
    each += [other.parts for other in others]
    flat = record_parts([part for parts in each for part in parts], machine, progress=progress)
    found = iter(flat)
    kernels = [each_once(next(found) for _ in parts) for parts in each]
    of_others = [(other.name, some) for other, some in zip(others, kernels[len(weights) :], strict=True)]
    if indexer := indexer_kernels(config, limits.target):
        of_others.append(("index logits", indexer))
    return ModelKernels(list(zip(weights, kernels[: len(weights)], strict=True)), of_others)


def _batches(fields: Fields, tensor_parallel: int) -> list[Batch]:
    """MLA's products for each head, with the weights that expand keys and values taken into queries and results; or of
    heads' results by groups, each to a rank of its own."""
    if fields.get("o_lora_rank"):
        groups, width, rank = _groups_of_heads(fields, tensor_parallel)
        return [Batch("grouped o_a", "bhr,hdr->bhd", groups, rank, width)]
    if not fields.get("kv_lora_rank"):
        return []
    heads = _divide("num_attention_heads", _need(fields, "num_attention_heads"), tensor_parallel)
    nope, v, rank = (_need(fields, name) for name in ("qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))
    return [
        Batch("absorbed queries", "bhd,hdr->bhr", heads, nope, rank),
        Batch("expanded results", "bhr,hdr->bhd", heads, v, rank),
    ]


def _groups_of_heads(fields: Fields, tensor_parallel: int) -> tuple[int, int, int]:
    """Groups of a GPU, the width of a group's results, and the rank that it is brought to."""
    groups, heads = _need(fields, "o_groups"), _need(fields, "num_attention_heads")
    width = _divide("num_attention_heads", heads, groups) * _need(fields, "head_dim")
    return _divide("o_groups", groups, tensor_parallel), width, _need(fields, "o_lora_rank")


def indexer_kernels(config: str | Path | Fields, target: str) -> list[RecordedKernel]:
    """Of index logits, dense and paged by blocks of 64 keys; none of a model without an indexer."""
    fields = read_config(config)
    if not fields.get("index_n_heads"):
        return []
    heads, d = _need(fields, "index_n_heads"), _need(fields, "index_head_dim")
    sources = [logits_kernels(heads, d, rows=_LOGITS_ROWS, block_kv=block, target=target) for block in _LOGITS_BLOCKS]
    return [RecordedKernel(*source, target) for some in sources for source in some]


def precompile_model(
    config: str | Path | Fields,
    calls: ModelCalls = ModelCalls(),
    *,
    target: str = HOPPER_TARGET,
    num_sms: int | None = None,
    gpu: str | None = None,
    newer_gpu: bool = False,
    progress: bool = False,
) -> list[jit.CompileResult]:
    """Compile every kernel that a model's linear layers, experts and indexer need, with or without a GPU.

    Beside the products: quantise kernels of their tokens (behind the gate, too), routing, MLA's products for each head
    (`fp8_einsum`, `einsum`), index logits, the product before the norm of hyperconnections.

    Read are fields of a Hugging Face config.json, not the model's name: sizes, experts, MLA's ranks, the indexer, and
    `quantization_config` (fp8 by blocks of 128 x 128; mxfp4; gptq, awq and compressed-tensors of 4 bits, the first and
    the last also of 8, beside 16-bit activations or what compressed-tensors says; INT8). What decides and is unknown is
    refused by its name. Left to torch: embeddings, the router, the output layer.

    Args:
        config: the file, its directory, or its content.
        calls: how the layers are called, on how many GPUs, with how many tokens.
        target, num_sms, gpu, newer_gpu, progress: as for `precompile`.

    Returns:
        a result for each kernel: see `jit.compile_many`.

    Raises:
        ValueError, TypeError: a field or an argument cannot be right, or is not known; nothing was compiled.
    """
    machine = Machine(target, sms_of(target, num_sms, gpu), gpu)
    found = kernels_of_model(config, weights_of_model(config, calls), calls, machine, progress=progress)
    recording = Recording(target, found.kernels)
    return jit.compile_recorded(recording, output=output_for(newer_gpu), progress=progress)
