"""GPTQ: codes of 4 or 8 bits in an int32 along K, zero points along N, and the group of each K where it is out of
order."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch

from ..matrix import Matrix
from .config import Config
from .groups import group_index, grouping
from .layer import WORD_BITS, WORDS, Format, Layer, Read, unpacked

_BITS = (4, 8)
_ONES = {4: 0x11111111, 8: 0x01010101}
_VERSIONS = ("gptq", "gptq_v2")
_AUTOROUND = ("auto-round", "auto_round", "intel/auto-round")
_METHODS = ("gptq", "gptq_marlin", "gptqmodel", "auto_gptq", "auto-gptq", *_AUTOROUND)
_AS_THEY_ARE, _LESS_ONE = "auto_round", ("auto_round:auto_gptq", "auto_gptq")


def _read(layer: Layer, config: Config) -> Read:
    config = config.of_layer(layer.prefix)
    config.choice("quant_method", _METHODS)
    config.choice("data_type", ("int",))
    are_less_one = _are_less_one(config)
    words = layer.weights("qweight", dtypes=WORDS)
    n = words.shape[1]
    bits = _bits(layer, n, config)
    k = words.shape[0] * WORD_BITS // bits
    scales = layer.scales("scales", None)
    if scales.dim() != 2 or scales.shape[1] != n:
        layer.reject_shape("scales", (scales.shape[0] if scales.dim() else 1, n), f"[groups, N={n}]")
    groups = grouping(
        layer,
        k,
        scales.shape[0],
        config.group_size("group_size"),
        "scales",
        ("g_idx", group_index(layer, "g_idx", k)),
        ("desc_act", config.flag("desc_act")),
    )
    wanted = (scales.shape[0], n * bits // WORD_BITS)
    stored = layer.tensor("qzeros", WORDS, wanted, f"[groups, N / {WORD_BITS // bits}]")
    zeros = _zeros(layer, stored, bits, are_less_one, config)
    read = groups.in_order(lambda first, last: unpacked(words[:, first:last].T, bits))
    return Read(Matrix(n, k, read, scales.T, zeros.T, groups.permutation), f"uint{bits}", groups.size)


def _bits(layer: Layer, n: int, config: Config) -> int:
    """Of a code: what the config says, else what the words of zero points for N columns tell."""
    said = config.require_bits("bits", served=_BITS)
    zeros = layer.tensor("qzeros", WORDS)
    columns = zeros.shape[-1] if zeros.dim() == 2 else 0  # another shape is refused where its rows are known
    bits = said or next((bits for bits in _BITS if columns * WORD_BITS == n * bits), _BITS[0])
    if n * bits % WORD_BITS != 0:
        raise ValueError(
            f"{layer.prefix}qweight must have a multiple of {WORD_BITS // bits} columns (codes of {bits} bits), got {n}"
        )
    return bits


def _are_less_one(config: Config) -> bool:
    """Whether zero points are stored less one."""
    if config.flag("is_marlin_format"):
        raise NotImplementedError("weights in Marlin's order (config's is_marlin_format) are not served")
    version = config.choice("checkpoint_format", _VERSIONS)
    also = config.choice("format", _VERSIONS)
    packing = config.choice("packing_format", (_AS_THEY_ARE, *_LESS_ONE))
    said = {
        "checkpoint_format": None if version is None else version == "gptq",
        "format": None if also is None else also == "gptq",
        "packing_format": None if packing is None else packing in _LESS_ONE,
    }
    answers = {key: answer for key, answer in said.items() if answer is not None}
    if len({*answers.values()}) > 1:
        raise ValueError(f"config's {' and '.join(answers)} must agree on whether zero points are stored less one")
    if not answers and config.choice("quant_method", _METHODS) in _AUTOROUND:
        raise ValueError("config's packing_format must be there: it decides whether zero points are stored less one")
    return next(iter(answers.values()), True)


def _zeros(layer: Layer, stored: torch.Tensor, bits: int, are_less_one: bool, config: Config) -> torch.Tensor:
    zeros, largest = unpacked(stored, bits), (1 << bits) - 1
    if config.flag("sym"):
        return _symmetric_zeros(layer, zeros, bits, are_less_one)
    if not are_less_one:
        return zeros
    borrowed = zeros.unflatten(1, (-1, WORD_BITS // bits))[:, :, :-1] == largest
    if not bool(borrowed.any()):  # all writers agree
        return (zeros + 1) & largest
    subtracts_words = _subtracts_words(config)
    if subtracts_words is None:
        raise ValueError(
            f"{layer.prefix}qzeros hold {largest} where writers differ: a zero point of 0 was stored by one "
            "subtraction from the word, and borrowed from the next, or by one from each zero point. config's "
            "meta.quantizer must say: 'gptqmodel' does the first, others the second"
        )
    return unpacked(stored + _ONES[bits], bits) if subtracts_words else (zeros + 1) & largest


def _symmetric_zeros(layer: Layer, zeros: torch.Tensor, bits: int, are_less_one: bool) -> torch.Tensor:
    symmetric = 1 << (bits - 1)
    for stored in (symmetric - 1, symmetric):
        if bool((zeros == stored).all()):
            if stored != symmetric - are_less_one:
                warnings.warn(
                    f"{layer.prefix}qzeros hold {stored} throughout, as config's sym means with the other "
                    f"checkpoint_format: they are read as the zero point {symmetric} of symmetric weights",
                    stacklevel=2,
                )
            return torch.full_like(zeros, symmetric)
    raise ValueError(
        f"{layer.prefix}qzeros must hold the zero point {symmetric} throughout, as config's sym says, but hold others"
    )


def _subtracts_words(config: Config) -> bool | None:
    """Whether the checkpoint's writer subtracts one from the zero points of a word at once; None: nobody says."""
    meta = config.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise ValueError(f"config's meta must be a mapping, got {meta!r}")
    writers = meta.get("quantizer")
    if isinstance(writers, str):
        writers = [writers]
    if not writers:
        rounded = config.get("packing_format") is not None or config.get("autoround_version") is not None
        return False if rounded else None
    if not isinstance(writers, (list, tuple)) or not all(isinstance(writer, str) for writer in writers):
        raise ValueError(f"config's meta.quantizer must be the names of programs, got {writers!r}")
    return any("gptqmodel" in writer.lower() for writer in writers)


FORMAT = Format(_read, {"qweight": 2}, ("qzeros", "scales", "g_idx"))
