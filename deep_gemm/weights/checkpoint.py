"""Checkpoints in their public forms: packed, with nothing quantised or rounded on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .forms import FORMS, Named, Read
from .matrix import Tensors
from .pack import pack_matrices
from .packed import PackedWeights
from .packings import packing_of


def weights_from_checkpoint(
    format: str,
    tensors: Mapping[str, Tensors],
    *,
    activations: str,
    config: Mapping[str, Any] | None = None,
    prefix: str = "",
) -> PackedWeights:
    """Pack the weights of one layer of a checkpoint: `dequantize()` of the result gives its values exactly.

    What is served, with the names of its tensors after `prefix`:

    - 'compressed-tensors', pack-quantized: `weight_packed`, `weight_scale`, and where they are there `weight_shape`,
      `weight_zero_point` and `weight_g_idx`; int-quantized, with 4 bits in each int8: `weight`, `weight_scale` and
      `weight_zero_point`. Either becomes 'int4'.
    - 'gptq': `qweight`, `qzeros`, `scales`, and `g_idx` where it is there. It becomes 'uint4'.
    - 'awq': `qweight`, `qzeros`, `scales`. It becomes 'uint4'.
    - 'w4afp8': `weight`, `weight_scale_inv`. It becomes 'int4'.
    - 'qoq', as QServe stores it: `qweight`, `s1_scales`, and of groups `s2_scales` and `s2_zeros`, of channels
      `s1_szeros`. It becomes 'uint4', of groups with two levels of scales, for 'int8' activations.
    - 'mxfp4': `blocks`, `scales`. It becomes 'e2m1', for 'fp8' activations.

    - 'mxfp4': `blocks`, `scales`; 'nvfp4': `weight`, `weight_scale`, `weight_scale_2`. Either becomes 'e2m1', NVFP4 for
      'bf16' activations only.
    - 'fp8-block': `weight`, `weight_scale_inv`. It becomes 'e4m3', for 'bf16' activations.

    8 bits of 'compressed-tensors' are known, and refused as they have no kernel yet.

    Args:
        format: one of these names.
        tensors: from names to tensors as the checkpoint has them; other names are ignored. Where a weight has one
            dimension more than a matrix has, or is a sequence of tensors, the tensors are those of a stack of experts.
        activations: what kind of activations will be multiplied: see `pack_weights`.
        config: the checkpoint's `quantization_config`, for what its tensors do not tell. Of 'gptq' and 'awq' 'bits' and
            'group_size' are read, of 'qoq' 'group_size'; of 'gptq' also 'checkpoint_format': 'gptq' (the default; zero
            points are stored less one, 0 as 15) or 'gptq_v2'; of 'awq' also 'version', 'gemm' (the default). Of
            'compressed-tensors' the 'weights' of its only config group, or these alone: 'num_bits' (the default is 4
            where weights are packed and 8 where they are not) and 'group_size'.
        prefix: what the names begin with, such as `'model.layers.0.mlp.down_proj.'`.

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
        is_stack=_is_stack(format, _unprefixed(tensors, prefix)),
        element=reads[0].element,
        activations=activations,
        group_size=reads[0].group_size,
    )


def read_checkpoint(
    format: str, tensors: Mapping[str, Tensors], *, config: Mapping[str, Any] | None = None, prefix: str = ""
) -> list[Read]:
    """What each matrix is, without its codes, which are read when it is packed."""
    if format not in FORMS:
        raise ValueError(f"format must be one of {', '.join(FORMS)}, got {format!r}")
    form, named = FORMS[format], _unprefixed(tensors, prefix)
    experts: list[dict[str, Any]] = [named]
    if _is_stack(format, named):
        counts = {name: len(value) for name, value in named.items() if name in form.names}
        if len({*counts.values()}) != 1 or 0 in counts.values():
            raise ValueError(f"tensors must be those of as many experts each, at least one, but are of {counts}")
        experts = [{name: named[name][expert] for name in counts} for expert in range(min(counts.values()))]
    return [form.read(Named(format, prefix, expert), config or {}) for expert in experts]


def _unprefixed(tensors: Mapping[str, Tensors], prefix: str) -> dict[str, Tensors]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _is_stack(format: str, named: Mapping[str, Tensors]) -> bool:
    """By the tensor of weights, of which a matrix has so many dimensions."""
    for name, dimensions in FORMS[format].weights.items():
        if name in named:
            weight = named[name]
            return not isinstance(weight, torch.Tensor) or weight.dim() > dimensions
    return False
