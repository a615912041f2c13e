"""Checkpoints in their public forms: packed, with nothing quantised or rounded on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .._dtypes import e8m0
from .formats import FORMATS, Config, Format, Layer, Read
from .formats.fp8_blocks import stored_blocks
from .matrix import Tensors
from .pack import pack_matrices
from .packed import PackedWeights
from .packings import packing_of

_ACTIVATIONS_SCALE = "pre_quant_scale"


def weights_from_checkpoint(
    format: str,
    tensors: Mapping[str, Tensors],
    *,
    activations: str,
    config: Mapping[str, Any] | None = None,
    prefix: str = "",
    gate_up: str | None = None,
) -> PackedWeights:
    """Pack the weights of one layer of a checkpoint: `dequantize()` of the result gives its values exactly.

    What is served, with the names of its tensors after `prefix`:

    - 'compressed-tensors', pack-quantized: `weight_packed`, `weight_scale`, and where they are there `weight_shape`,
      `weight_zero_point` and `weight_g_idx`; int-quantized, with 4 or 8 bits in each int8: `weight`, `weight_scale`
      and `weight_zero_point`. Either becomes 'int4', or of 8 bits 'int8'.
    - 'gptq': `qweight`, `qzeros`, `scales`, and `g_idx` where it is there. It becomes 'uint4', or of 8 bits 'uint8'.
    - 'awq': `qweight`, `qzeros`, `scales`. It becomes 'uint4'.
    - 'w4afp8': `weight`, `weight_scale_inv`. It becomes 'int4'.
    - 'qoq', as QServe stores it: `qweight`, `s1_scales`, and of groups `s2_scales` and `s2_zeros`, of channels
      `s1_szeros`. It becomes 'uint4', of groups with two levels of scales, for 'int8' activations.
    - 'mxfp4': `blocks`, `scales`. It becomes 'e2m1', for 'fp8' and 'bf16' activations.
    - 'nvfp4': `weight`, `weight_scale`, `weight_scale_2` (or `weight_packed`, and `weight_global_scale`, which
      divides). It becomes 'e2m1', for 'bf16' activations.
    - 'fp8-block': `weight`, `weight_scale_inv`. It becomes 'e4m3', for 'bf16' activations.

    Tensors and config are compared, and nothing is cut, repeated or guessed: what contradicts is refused by name
    (docs/checkpoints.md says which keys decide). Weights beside which activations must be
    scaled (`pre_quant_scale`) or transformed (config's `transform_config`) first are refused.

    Args:
        format: one of these names.
        tensors: from names to tensors as the checkpoint has them; other names are ignored. Where a weight has one
            dimension more than a matrix has, or is a sequence of tensors, the tensors are those of a stack of experts.
        activations: what kind of activations will be multiplied: see `pack_weights`.
        config: the checkpoint's `quantization_config`, for what its tensors do not tell.
        prefix: what the names begin with, such as `'model.layers.0.mlp.down_proj.'`.
        gate_up: as `pack_weights` has it, for products with a gated activation: how gates and ups lie among the rows.

    K's last group may be a part of one, where config's 'group_size' or a `g_idx` says how large a whole one is.

    Columns that a `g_idx` takes out of order are put in the order of their groups: the result then has an
    `input_permutation`, and `w.for_permuted_inputs()` multiplies `w.permute_inputs(x)`.

    Raises:
        ValueError, TypeError: tensors are missing, or are not what the format has.
        NotImplementedError: weights of this format are not served for these activations yet.
    """
    reads = read_checkpoint(format, tensors, config=config, prefix=prefix)
    packing_of(reads[0].element, activations)
    return pack_matrices(
        [read.matrix for read in reads],
        is_stack=_is_stack(FORMATS[format], _unprefixed(tensors, prefix)),
        element=reads[0].element,
        activations=activations,
        group_size=reads[0].group_size,
        gate_up=gate_up,
    )


def read_checkpoint(
    format: str, tensors: Mapping[str, Tensors], *, config: Mapping[str, Any] | None = None, prefix: str = ""
) -> list[Read]:
    """What each matrix is, without its codes, which are read when it is packed."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    keys = Config(config)
    reads = [FORMATS[format].read(layer, keys) for layer in _layers(format, tensors, keys, prefix)]
    if len({(read.element, read.group_size) for read in reads}) > 1:
        sizes = ", ".join(str(read.group_size) for read in reads)
        raise ValueError(f"scales of a stack must be those of groups of one size, got groups of {sizes}")
    return reads


def fp8_blocks_from_checkpoint(
    tensors: Mapping[str, Tensors], *, config: Mapping[str, Any] | None = None, prefix: str = ""
) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer of 'fp8-block' as it is stored: E4M3 `[.., N, K]` and the FP32 scales of its blocks of 128 x 128."""
    keys, stacked = Config(config), _is_stack(FORMATS["fp8-block"], _unprefixed(tensors, prefix))
    parts = [stored_blocks(layer, keys) for layer in _layers("fp8-block", tensors, keys, prefix)]
    if (block := parts[0][2]) != (128, 128):
        raise NotImplementedError(f"config's weight_block_size must be [128, 128] beside FP8 activations, got {block}")
    values = [values.view(torch.uint8) for values, _, _ in parts]
    scales = [(s.view(e8m0()) if s.dtype == torch.uint8 else s).float() for _, s, _ in parts]
    data, blocks = (torch.stack(values), torch.stack(scales)) if stacked else (values[0], scales[0])
    return data.view(torch.float8_e4m3fn), blocks


def _layers(format: str, tensors: Mapping[str, Tensors], config: Config, prefix: str) -> list[Layer]:
    """Of one matrix, or of each of a stack."""
    form, named = FORMATS[format], _unprefixed(tensors, prefix)
    _require_plain_activations(named, config, prefix)
    experts = _experts(form, named, prefix) if _is_stack(form, named) else [named]
    return [Layer(format, prefix, expert) for expert in experts]


def _require_plain_activations(named: Mapping[str, Any], config: Config, prefix: str) -> None:
    """Some weights are right only beside activations that are scaled or rotated first."""
    if _ACTIVATIONS_SCALE in named:
        raise NotImplementedError(
            f"{prefix}{_ACTIVATIONS_SCALE} must not be there: these weights want activations multiplied by it, which "
            "is not served yet"
        )
    if transforms := config.get("transform_config"):
        raise NotImplementedError(
            "config's transform_config must be empty: such weights want activations transformed first, which is not "
            f"served yet, got {transforms!r}"
        )


def _unprefixed(tensors: Mapping[str, Tensors], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _is_stack(form: Format, named: Mapping[str, Any]) -> bool:
    """By the tensor of weights, of which a matrix has so many dimensions."""
    for name, dimensions in form.weights.items():
        if name in named:
            weight = named[name]
            return isinstance(weight, Sequence) or (isinstance(weight, torch.Tensor) and weight.dim() > dimensions)
    return False


def _experts(form: Format, named: Mapping[str, Any], prefix: str) -> list[dict[str, torch.Tensor]]:
    """The tensors of each matrix of a stack."""
    counts = {}
    for name, value in named.items():
        if name not in form.names:
            continue
        is_tensor = isinstance(value, torch.Tensor)
        if not is_tensor and not isinstance(value, Sequence):
            raise TypeError(f"{prefix}{name} must be a tensor or a sequence of tensors, got {type(value).__name__}")
        if name in form.shared and is_tensor and value.numel() == 1:
            continue
        if is_tensor and value.dim() == 0:
            raise ValueError(f"{prefix}{name} must have a dimension of experts, got shape []")
        counts[name] = len(value)
    if len({*counts.values()}) != 1 or 0 in counts.values():
        raise ValueError(f"tensors must be those of as many experts each, at least one, got those of {counts}")
    every = range(min(counts.values()))
    return [
        {name: named[name][expert] if name in counts else named[name] for name in form.names if name in named}
        for expert in every
    ]
