"""FP8 in blocks: E4M3 with a scale for each block of rows and K."""

from __future__ import annotations

import re
from typing import Any

import torch

from ..._dtypes import E8M0
from ...utils.math import ceil_div
from ..matrix import Matrix
from .config import Config
from .layer import FLOATS, Format, Layer, Read, rows_of

_BLOCK = (128, 128)
_METHODS = ("fp8", "compressed-tensors", "deepseek_fp8", "mxfp8")
_E4M3 = (torch.float8_e4m3fn,)


def stored_blocks(layer: Layer, config: Config) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
    """`[N, K]`, scales `[blocks of N, blocks of K]` as they are stored, and the rows and K of a block."""
    config.choice("quant_method", _METHODS)
    config.choice("fmt", ("e4m3",))
    rows, columns = _block(config)
    values = layer.weights("weight", dtypes=_E4M3)
    n, k = values.shape
    exponents = E8M0
    if config.choice("scale_fmt", ("ue8m0", "float", "float32", "fp32")) == "ue8m0":
        exponents = (*exponents, torch.uint8)
    blocks = layer.scales(
        layer.name_of("weight_scale_inv", "weight_scale"),
        (ceil_div(n, rows), ceil_div(k, columns)),
        f"one for each block of {[rows, columns]} of {[n, k]}",
        dtypes=FLOATS + exponents,
    )
    return values, blocks, (rows, columns)


def _read(layer: Layer, config: Config) -> Read:
    values, blocks, (rows, columns) = stored_blocks(layer, config)
    n, k = values.shape
    return Read(Matrix(n, k, rows_of(values), _of_rows(blocks, rows, n)), "e4m3", columns)


def _block(config: Config) -> tuple[int, int]:
    """Rows and K of a block."""
    weights = config.of_weights()
    weights.choice("strategy", ("block",))
    weights.choice("type", ("float",))
    weights.require_bits("num_bits", served=(8,))
    if "weight_block_size" in config.keys and config.keys["weight_block_size"] is None:
        raise ValueError("config's weight_block_size must be [rows, K] of a block, got None")
    block: Any = config.get("weight_block_size") or weights.get("block_structure") or _BLOCK
    if isinstance(block, str) and re.fullmatch(r"\d+x\d+", block):
        rows, k = block.split("x")
        block = [int(rows), int(k)]
    sizes: list[Any] = [*block] if isinstance(block, (list, tuple)) else []
    if len(sizes) != 2 or any(type(size) is not int or size <= 0 for size in sizes):
        raise ValueError(f"config's weight_block_size must be [rows, K] of a block, got {block!r}")
    return sizes[0], sizes[1]


def _of_rows(blocks: torch.Tensor, rows: int, n: int) -> torch.Tensor:
    data = blocks.view(torch.uint8) if blocks.element_size() == 1 else blocks
    return data.repeat_interleave(rows, 0)[:n].view(blocks.dtype)


FORMAT = Format(_read, {"weight": 2}, ("weight_scale_inv", "weight_scale"))
