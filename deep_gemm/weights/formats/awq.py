"""AWQ ('gemm'): eight codes in an int32 along N, in an order of their own."""

from __future__ import annotations

import torch

from ...utils.math import _unpack_codes
from ..matrix import Matrix
from .config import Config
from .groups import grouping
from .layer import WORDS, Format, Layer, Read

_CODES_PER_WORD = 8
_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)  # the nibble of a word that holds each of its eight columns
_METHODS = ("awq", "awq_marlin", "auto-round", "auto_round", "intel/auto-round")
_SYMMETRIC = 8


def _read(layer: Layer, config: Config) -> Read:
    config = config.of_layer(layer.prefix)
    config.choice("quant_method", _METHODS)
    config.choice("packing_format", ("auto_round:auto_awq",))
    config.require_bits("bits", "w_bit")
    version = config.get("version")
    if version is not None and str(version).lower() != "gemm":
        raise NotImplementedError(f"'awq' checkpoints of version {version!r} (config) are not served, only 'gemm'")
    words = layer.weights("qweight", dtypes=WORDS)
    k, columns = words.shape
    n = columns * _CODES_PER_WORD
    scales = layer.scales("scales", None)
    if scales.dim() != 2 or scales.shape[1] != n:
        layer.reject_shape("scales", (scales.shape[0] if scales.dim() else 1, n), f"[groups, N={n}]")
    groups = grouping(layer, k, scales.shape[0], config.group_size("group_size", "q_group_size"), "scales")
    zeros = _columns(layer.tensor("qzeros", WORDS, (scales.shape[0], columns), "[groups, N / 8]"))
    symmetric = [key for key, value in (("zero_point", False), ("sym", True)) if config.flag(key) is value]
    if symmetric and not bool((zeros == _SYMMETRIC).all()):
        raise ValueError(
            f"{layer.prefix}qzeros must hold the zero point 8 throughout, as config's {symmetric[0]} says, "
            "but hold others"
        )

    def read(first: int, last: int) -> torch.Tensor:
        return _columns(words[:, first // _CODES_PER_WORD : last // _CODES_PER_WORD]).T

    return Read(Matrix(n, k, read, scales.T, zeros.T), "uint4", groups.size)


def _columns(words: torch.Tensor) -> torch.Tensor:
    """int32 `[rows, N / 8]` -> uint8 `[rows, N]`."""
    nibbles = _unpack_codes(words).view(words.shape[0], -1, _CODES_PER_WORD)
    return nibbles[:, :, _NIBBLES].flatten(1)


FORMAT = Format(_read, {"qweight": 2}, ("qzeros", "scales"))
