"""Right layers of each format with one thing broken at random: what is read is right, or refused by name."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch
from checkpoint_layers import LAYERS, RightLayer
from sampling import SEED, everything

from deep_gemm import weights_from_checkpoint
from deep_gemm.weights.formats import FORMATS

DRAWS, DRAWN = 2000, 500  # in a full run, and in others
KEYS = (
    *("bits", "w_bit", "num_bits", "group_size", "sym", "symmetric", "desc_act", "actorder", "zero_point", "data_type"),
    *("checkpoint_format", "packing_format", "format", "version", "meta.quantizer", "meta", "quant_method"),
    *("quant_algo", "weight_block_size", "block_structure", "fmt", "scale_fmt", "strategy", "type"),
    *("is_swizzled_scales", "dynamic", "extra_config", "config_groups", "weights"),
)
# None of them another right value of a key that only the key tells.
VALUES = (None, True, False, 0, -1, 3, 4, 64, 96, 4.5, "4", "foo", "", [], {}, [128], [128, 0], {"quantizer": 7})
DTYPES = (
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2),
    torch.float8_e8m0fnu,
)
REFUSALS = (ValueError, TypeError, NotImplementedError)


def another_shape(layer: RightLayer, name: str, draw: random.Random) -> torch.Tensor:
    """Not that of another right layer, such as one whose last group has one K less."""
    tensor = layer.tensors[name]
    if tensor.dim() == 0:
        return torch.stack([tensor] * draw.randint(2, 3))
    told = [dim for dim in range(tensor.dim()) if dim != layer.untold.get(name)]
    dim = draw.choice(told)
    size = tensor.shape[dim]
    data = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
    by_one = [lambda: data.narrow(dim, 0, size - 1), lambda: torch.cat((data, data.narrow(dim, 0, 1)), dim)]
    if name in FORMATS[layer.format].shared:
        return draw.choice([data[:2], torch.cat((data, data)), data.view(1, -1)])
    changed = draw.choice(
        [
            lambda: data.transpose(0, -1) if tensor.dim() > 1 else data.unsqueeze(0),
            lambda: data.narrow(dim, 0, size // 2),
            lambda: data.narrow(dim, size // 2, size - size // 2),
            lambda: torch.cat((data, data), dim),
            lambda: data.narrow(dim, 0, 1),
            lambda: data.flatten(),
            lambda: data.unsqueeze(draw.choice([0, -1])),
            lambda: data.narrow(dim, 0, 0),
            lambda: data.flatten()[0],
            *([] if name in FORMATS[layer.format].weights else by_one),
        ]
    )()
    return changed.view(tensor.dtype) if changed.dtype != tensor.dtype else changed


def another_dtype(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """Of the same values, or the same bits: not what another right layer would have."""
    dtype = draw.choice([dtype for dtype in DTYPES if dtype != tensor.dtype])
    cast = tensor.to(dtype)
    if torch.equal(cast.double(), tensor.double()):
        return cast
    floats = tensor.dtype.is_floating_point and dtype.is_floating_point
    return tensor.view(dtype) if cast.element_size() == tensor.element_size() and not floats else tensor.double()


def with_nan(tensor: torch.Tensor) -> torch.Tensor:
    """Where such a type has it; else one of its values is changed to one that it cannot have."""
    changed = tensor.clone()
    flat = (changed.view(torch.uint8) if changed.element_size() == 1 else changed).view(-1)
    flat[0] = torch.nan if flat.dtype.is_floating_point else 255 if tensor.dtype == torch.uint8 else 127
    return changed


def broken(layer: RightLayer, draw: random.Random) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Tensors, config, and what is broken."""
    tensors, config = dict(layer.tensors), dict(layer.config)
    name = draw.choice(sorted(tensors))
    kind = draw.choice(["shape", "shape", "shape", "dtype", "dtype", "key", "key", "gone", "other", "scale"])
    if kind == "shape":
        tensors[name] = another_shape(layer, name, draw)
    elif kind == "dtype":
        tensors[name] = another_dtype(tensors[name], draw)
    elif kind == "key":
        name = draw.choice([*config, *KEYS])
        config[name] = draw.choice(VALUES)
    elif kind == "gone":
        name = draw.choice([*tensors, *config])
        (tensors if name in tensors else config).pop(name)
    elif kind == "other":
        mine = tensors[name]
        others = [x for x in tensors.values() if (x.dtype, x.shape) != (mine.dtype, mine.shape)]
        others = [] if name in layer.untold else others
        tensors[name] = draw.choice([None, 3, "text", [], *others])
    else:
        name = next(name for name in tensors if name.endswith(("scale", "scales", "scale_inv")))
        tensors[name] = with_nan(tensors[name])
    left = config.get(name) if kind == "key" else tensors.get(name)
    form = f"{left.dtype} {[*left.shape]}" if isinstance(left, torch.Tensor) else repr(left)
    return tensors, config, f"{kind} of {name}: {form}"


def names_something(message: str, layer: RightLayer) -> bool:
    names = (*FORMATS[layer.format].names, *KEYS)
    return any(re.search(rf"\b{re.escape(name)}\b", message) for name in names)


@pytest.mark.filterwarnings("ignore:qzeros")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_one_thing_broken_is_right_or_refused_by_name(name, pytestconfig) -> None:
    draw, layer = random.Random(f"{name} {pytestconfig.stash[SEED]}"), LAYERS[name]()
    read, refused = 0, []
    for _ in range((DRAWS if everything(pytestconfig) else DRAWN) // len(LAYERS) + 1):
        tensors, config, what = broken(layer, draw)
        try:
            w = weights_from_checkpoint(layer.format, tensors, activations=layer.activations, config=config)
        except REFUSALS as error:
            refused.append((what, str(error)))
            continue
        read += 1
        order = w.input_permutation
        assert torch.equal(w.dequantize(), layer.values if order is None else layer.values[:, order]), what
    assert [(what, message) for what, message in refused if not names_something(message, layer)] == []
    assert read > 0, "some breaks leave the meaning as it was"
    assert refused


@pytest.mark.parametrize("name", LAYERS)
def test_the_layers_are_right_before_they_are_broken(name) -> None:
    layer = LAYERS[name]()
    w = weights_from_checkpoint(layer.format, layer.tensors, activations=layer.activations, config=layer.config)
    order = w.input_permutation
    assert torch.equal(w.dequantize(), layer.values if order is None else layer.values[:, order])
