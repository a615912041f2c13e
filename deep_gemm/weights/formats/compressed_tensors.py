"""compressed-tensors: integers, packed in int32 along K or one in each int8."""

from __future__ import annotations

from typing import NoReturn

import torch

from ...utils.math import ceil_div
from ..matrix import Matrix
from .config import ALL_OF_K, Config
from .groups import Rows, group_index, grouping
from .layer import EXPONENTS, INTEGERS, WORD_BITS, Format, Layer, Read, rows_of, unpacked

_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "mixed-precision")
_STRATEGIES = ("tensor", "channel", "group")
_PACKED, _PLAIN, _SCALE, _ZERO = "weight_packed", "weight", "weight_scale", "weight_zero_point"
_SHAPE, _INDEX = "weight_shape", "weight_g_idx"
_FLOATING = (torch.float8_e4m3fn, torch.float8_e5m2)


def _read(layer: Layer, config: Config) -> Read:
    arguments = _arguments(layer, config)
    name = layer.name_of(_PACKED, _PLAIN)
    bits = arguments.require_bits("num_bits", served=(4, 8))
    if name == _PACKED:
        words = layer.weights(name, dtypes=(torch.int32,))
        n, k, bits = _packed_shape(layer, words, bits)
        read = _biased_rows(words, k, bits)
    else:
        values = layer.weights(name, dtypes=(torch.int8,))
        n, k = values.shape
        _stored_shape(layer, n, k)
        bits, read = bits or 8, rows_of(values)
    scales, given = _scales(layer, n, k, arguments)
    index = group_index(layer, _INDEX, k)
    act_order = ("actorder", _act_order(arguments))
    groups = grouping(layer, k, scales.shape[1], given, _SCALE, (_INDEX, index), act_order)
    if given is None and groups.size is not None and index is None and not (name == _PACKED and layer.has(_SHAPE)):
        raise ValueError(f"{layer.prefix}{_SCALE} has {scales.shape[1]} groups: config's group_size must be there")
    zeros = _zeros(layer, n, bits, arguments, name)
    matrix = Matrix(n, k, groups.in_order(read), scales, zeros, groups.permutation)
    return Read(matrix, f"int{bits}", groups.size)


def _arguments(layer: Layer, config: Config) -> Config:
    config.choice("quant_method", ("compressed-tensors",))
    _require_integers(layer, config)
    config.choice("format", _FORMATS)
    arguments = config.of_weights()
    arguments.choice("type", ("int",))
    arguments.choice("strategy", _STRATEGIES)
    return arguments


def _require_integers(layer: Layer, config: Config) -> None:
    """Names the format that reads what is no integers."""
    packed, plain = layer.tensors.get(_PACKED), layer.tensors.get(_PLAIN)
    is_float = config.of_weights().get("type") == "float"
    if isinstance(packed, torch.Tensor) and packed.dtype == torch.uint8:
        scales = layer.tensors.get(_SCALE)
        exponents = isinstance(scales, torch.Tensor) and scales.dtype in EXPONENTS
        _reject_float(layer, _PACKED, "mxfp4" if exponents else "nvfp4")
    if isinstance(plain, torch.Tensor) and (plain.dtype in _FLOATING or (is_float and plain.dtype != torch.int8)):
        _reject_float(layer, _PLAIN, "fp8-block")
    if is_float:
        raise ValueError("config's type of weights must be 'int', got 'float'")


def _reject_float(layer: Layer, name: str, reader: str) -> NoReturn:
    scales = ", if its scales are those of blocks" if reader == "fp8-block" else ""
    raise ValueError(
        f"{layer.prefix}{name} must be int32 or int8, got {layer.tensors[name].dtype}: the format {reader!r} "
        f"reads such weights{scales}"
    )


def _packed_shape(layer: Layer, words: torch.Tensor, bits: int | None) -> tuple[int, int, int]:
    """N, K and the bits of a code. `weight_shape` says how much of the last words is there."""
    rows, columns = words.shape
    stored = _shape_tensor(layer)
    if stored is None:
        if bits is None:
            raise ValueError(
                f"{layer.prefix}{_SHAPE} or config's num_bits must be there: {layer.prefix}{_PACKED} does not tell "
                "how many bits a code has"
            )
        return rows, columns * WORD_BITS // bits, bits
    n, k = stored
    fitting = [b for b in ((4, 8) if bits is None else (bits,)) if ceil_div(k * b, WORD_BITS) == columns]
    if n != rows or not fitting:
        fits = f"{bits} bits" if bits else "4 or 8 bits"
        raise ValueError(
            f"{layer.prefix}{_SHAPE} must be that of {layer.prefix}{_PACKED}, whose shape is {[rows, columns]} of "
            f"words with codes of {fits}, got {[n, k]}"
        )
    if len(fitting) > 1:
        raise ValueError(f"config's num_bits must be there: {layer.prefix}{_SHAPE} {[n, k]} does not tell it")
    return n, k, fitting[0]


def _stored_shape(layer: Layer, n: int, k: int) -> None:
    stored = _shape_tensor(layer)
    if stored is not None and stored != (n, k):
        raise ValueError(f"{layer.prefix}{_SHAPE} must be {[n, k]}, that of the weights, got {[*stored]}")


def _shape_tensor(layer: Layer) -> tuple[int, int] | None:
    if not layer.has(_SHAPE):
        return None
    n, k = layer.tensor(_SHAPE, INTEGERS, (2,), "N and K").tolist()
    if n <= 0 or k <= 0:
        raise ValueError(f"{layer.prefix}{_SHAPE} must be N and K, got {[n, k]}")
    return n, k


def _scales(layer: Layer, n: int, k: int, arguments: Config) -> tuple[torch.Tensor, int | None]:
    """`[N, groups]`, and the group size that the config says."""
    strategy, given = arguments.choice("strategy", _STRATEGIES), arguments.group_size("group_size")
    scales = layer.scales(_SCALE, None)
    if strategy == "tensor":
        if scales.numel() != 1:
            layer.reject_shape(_SCALE, (1,), "one for the matrix: config's strategy is 'tensor'")
        return scales.reshape(1, 1).expand(n, 1), ALL_OF_K
    if strategy == "channel" or given == ALL_OF_K:
        if scales.shape not in ((n,), (n, 1)):
            layer.reject_shape(_SCALE, (n, 1), "one for each of N: config's strategy or group_size")
        return scales.reshape(n, 1), ALL_OF_K
    if strategy == "group" and given is None:
        raise ValueError("config's group_size must be there, as its strategy is 'group'")
    if scales.dim() == 1 and scales.shape[0] == n and given is None:
        return scales.unsqueeze(1), None
    if scales.dim() != 2 or scales.shape[0] != n or scales.shape[1] == 0:
        groups = f"{ceil_div(k, given)} groups of {given} of K={k}" if given else "groups"
        layer.reject_shape(_SCALE, (n, ceil_div(k, given) if given else 1), f"N={n} rows and {groups}")
    return scales, given


def _zeros(layer: Layer, n: int, bits: int, arguments: Config, weights: str) -> torch.Tensor | None:
    """Signed, `[N, groups]`, or None: in words of eight or four along N, or as they are."""
    symmetric = arguments.flag("symmetric")
    if not layer.has(_ZERO):
        if symmetric is False:
            raise ValueError(
                f"asymmetric weights (config's symmetric) have {layer.prefix}{_ZERO}, but no tensor has that name"
            )
        return None
    zeros = _stored_zeros(layer, n, bits, weights)
    if symmetric and bool((zeros != 0).any()):
        raise ValueError(f"{layer.prefix}{_ZERO} must be 0 throughout, as config's symmetric says, but is not")
    return zeros.expand(n, -1)


def _stored_zeros(layer: Layer, n: int, bits: int, weights: str) -> torch.Tensor:
    given, scales = layer.tensors[_ZERO], layer.tensors[_SCALE]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    groups = scales.shape[1] if scales.dim() == 2 else 1
    words = (ceil_div(n * bits, WORD_BITS), groups)
    is_word = isinstance(given, torch.Tensor) and given.dtype == torch.int32 and weights == _PACKED
    if is_word and given.dim() == 2 and tuple(given.shape) == words:
        if n == 1:
            raise ValueError(f"{layer.prefix}{_ZERO} must be int8 where N is 1: int32 may be packed or not")
        return (unpacked(given.T, bits).T[:n].to(torch.int32)) + low
    meaning = f"as {layer.prefix}{_SCALE}" + (f", or {[*words]} of words" if is_word else "")
    zeros = layer.integers(_ZERO, tuple(scales.shape), meaning, low, high)
    return zeros if zeros.dim() == 2 else zeros.reshape(-1, 1)


def _act_order(arguments: Config) -> bool | None:
    """Whether K is out of order; None where the config does not say."""
    value = arguments.get("actorder")
    if isinstance(value, bool):
        return value
    order = arguments.choice("actorder", ("group", "dynamic", "weight", "static"))
    return None if order is None else order in ("group", "dynamic")


def _biased_rows(words: torch.Tensor, k: int, bits: int) -> Rows:
    """Signed codes of which words hold the sum with half their range, the lowest K in the low bits."""
    return lambda first, last: (unpacked(words[first:last], bits)[:, :k] - (1 << bits - 1)).to(torch.int8)


FORMAT = Format(_read, {_PACKED: 2, _PLAIN: 2}, (_SCALE, _SHAPE, _ZERO, _INDEX))
