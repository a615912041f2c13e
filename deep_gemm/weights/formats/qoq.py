"""QoQ, as QServe stores it: blocks of 32 rows by 32 of K, and scales of groups that are integers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...utils.math import ceil_div
from ..matrix import Matrix
from .config import Config
from .groups import grouping
from .layer import PAIRS, Format, Layer, Read

_ROWS, _K = 32, 32  # of a block
_METHODS = ("qoq", "qserve")
_INT8 = (torch.int8,)


def _read(layer: Layer, config: Config) -> Read:
    config.choice("quant_method", _METHODS)
    config.require_bits("w_bit", "bits", "wbits")
    pairs = layer.weights("qweight", dtypes=PAIRS)
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    if n % _ROWS != 0 or k % _K != 0:
        raise ValueError(f"{layer.prefix}qweight must lie in blocks of {_ROWS} x {_K}, got {[n, k]}")
    second = layer.scales("s1_scales", (n,), "[N]")
    given = config.group_size("group_size")
    if not layer.has("s2_scales"):
        scaled = layer.scales("s1_szeros", (n,), "[N]")
        size = grouping(layer, k, 1, given, "s1_scales").size
        return Read(Matrix(n, k, _rows(pairs), second, _zeros(layer, scaled, second)), "uint4", size)
    if layer.has("s1_szeros"):
        raise ValueError(f"{layer.prefix}s1_szeros must not be there beside s2_scales: groups have s2_zeros")
    factors = layer.tensor("s2_scales", _INT8)
    if factors.dim() != 2 or factors.shape[1] != n:
        layer.reject_shape("s2_scales", (factors.shape[0] if factors.dim() else 1, n), f"[groups, N={n}]")
    negative = layer.tensor("s2_zeros", _INT8, (factors.shape[0], n), f"[groups, N={n}]")
    size = grouping(layer, k, factors.shape[0], given, "s2_scales").size
    matrix = Matrix(
        n,
        k,
        _rows(pairs),
        _of_groups(factors),
        second_scales=second,
        scaled_zeros=-_of_groups(negative).to(torch.int32),
    )
    return Read(matrix, "uint4", size)


def _rows(pairs: torch.Tensor) -> Callable[[int, int], torch.Tensor]:
    """Of blocks of 32 rows by 32 of K, each of them 512 bytes in a row: a byte holds a code of a row in its low nibble,
    and of the row 16 further on in its high one."""

    def read(first: int, last: int) -> torch.Tensor:
        begin, end = first // _ROWS, ceil_div(last, _ROWS)
        # block, K block, row of 8, four quads of K, 16 of K, 8 rows, K of a quad
        blocks = pairs[begin * _ROWS : end * _ROWS].contiguous().view(torch.uint8)
        parts = blocks.view(end - begin, -1, 8, 4, 2, 2, 4)
        halves = torch.stack((parts & 15, parts >> 4))
        rows = halves.permute(1, 0, 6, 3, 2, 5, 4, 7).reshape((end - begin) * _ROWS, -1)
        return rows[first - begin * _ROWS : last - begin * _ROWS]

    return read


def _of_groups(stored: torch.Tensor) -> torch.Tensor:
    """`[groups, N]`, of each 32 rows in the order 0 8 16 24 1 9 ... -> `[N, groups]`."""
    n = stored.shape[1]
    return stored.reshape(stored.shape[0], -1, 8, 4).permute(1, 3, 2, 0).reshape(n, -1)


def _zeros(layer: Layer, scaled: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Zero points of channels, which are stored times their scales."""
    zeros = torch.where(scales == 0, 0, scaled.float() / scales.float()).round()
    if not torch.equal((zeros * scales.float()).to(scaled.dtype), scaled):
        raise ValueError(
            f"{layer.prefix}s1_szeros must be integers times s1_scales, but are not: such weights have no zero points"
        )
    return zeros.to(torch.int32)


FORMAT = Format(_read, {"qweight": 2}, ("s1_scales", "s1_szeros", "s2_scales", "s2_zeros"))
