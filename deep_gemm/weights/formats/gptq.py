"""GPTQ: eight codes in an int32 along K, zero points along N, and the group of each K where it is out of order."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch

from ...utils.math import _unpack_codes
from ..matrix import Matrix
from .config import Config
from .groups import group_index, grouping
from .layer import WORDS, Format, Layer, Read

CODES_PER_WORD = 8
_SYMMETRIC = 8  # the zero point of symmetric weights
_ONES = 0x11111111
_VERSIONS = ("gptq", "gptq_v2")
_AUTOROUND = ("auto-round", "auto_round", "intel/auto-round")
_METHODS = ("gptq", "gptq_marlin", "gptqmodel", "auto_gptq", "auto-gptq", *_AUTOROUND)
_AS_THEY_ARE, _LESS_ONE = "auto_round", ("auto_round:auto_gptq", "auto_gptq")


def _read(layer: Layer, config: Config) -> Read:
    config = config.of_layer(layer.prefix)
    config.choice("quant_method", _METHODS)
    config.choice("data_type", ("int",))
    config.require_bits("bits")
    are_less_one = _are_less_one(config)
    words = layer.weights("qweight", dtypes=WORDS)
    k, n = words.shape[0] * CODES_PER_WORD, words.shape[1]
    if n % CODES_PER_WORD != 0:
        raise ValueError(f"{layer.prefix}qweight must have a multiple of {CODES_PER_WORD} columns, got {n}")
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
    wanted = (scales.shape[0], n // CODES_PER_WORD)
    stored = layer.tensor("qzeros", WORDS, wanted, "[groups, N / 8]")
    zeros = _zeros(layer, stored, are_less_one, config)
    read = groups.in_order(lambda first, last: _unpack_codes(words[:, first:last].T))
    return Read(Matrix(n, k, read, scales.T, zeros.T, groups.permutation), "uint4", groups.size)


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


def _zeros(layer: Layer, stored: torch.Tensor, are_less_one: bool, config: Config) -> torch.Tensor:
    nibbles = _unpack_codes(stored)
    if config.flag("sym"):
        return _symmetric_zeros(layer, nibbles, are_less_one)
    if not are_less_one:
        return nibbles
    borrowed = nibbles.unflatten(1, (-1, CODES_PER_WORD))[:, :, :-1] == 15
    if not bool(borrowed.any()):  # all writers agree
        return (nibbles + 1) & 15
    subtracts_words = _subtracts_words(config)
    if subtracts_words is None:
        raise ValueError(
            f"{layer.prefix}qzeros hold 15 where writers differ: a zero point of 0 was stored by one subtraction from "
            "the word, and borrowed from the next, or by one from each zero point. config's meta.quantizer must say: "
            "'gptqmodel' does the first, others the second"
        )
    return _unpack_codes(stored + _ONES) if subtracts_words else (nibbles + 1) & 15


def _symmetric_zeros(layer: Layer, nibbles: torch.Tensor, are_less_one: bool) -> torch.Tensor:
    for stored in (7, 8):
        if bool((nibbles == stored).all()):
            if stored != _SYMMETRIC - are_less_one:
                warnings.warn(
                    f"{layer.prefix}qzeros hold {stored} throughout, as config's sym means with the other "
                    "checkpoint_format: they are read as the zero point 8 of symmetric weights",
                    stacklevel=2,
                )
            return torch.full_like(nibbles, _SYMMETRIC)
    raise ValueError(
        f"{layer.prefix}qzeros must hold the zero point 8 throughout, as config's sym says, but hold others"
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
