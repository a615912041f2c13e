"""W4AFP8: signed values of 4 bits, two a byte, the first one in the low nibble, with a scale for each 128 of K."""

from __future__ import annotations

from ...utils.math import ceil_div
from ...utils.quantize import unpack_int4
from ..matrix import Matrix
from .config import Config
from .groups import grouping
from .layer import PAIRS, Format, Layer, Read, rows_of

_GROUP = 128
_METHODS = ("w4afp8", "w4a8_fp8", "fp8", "mixed_precision")


def _read(layer: Layer, config: Config) -> Read:
    config.choice("quant_method", _METHODS)
    config.require_bits("bits", "w_bit")
    pairs = layer.weights("weight", dtypes=PAIRS)
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    size = config.group_size("group_size") or _GROUP
    groups = 1 if size < 0 else ceil_div(k, size)
    name = layer.name_of("weight_scale_inv", "weight_scale")
    scales = layer.scales(name, (n, groups), f"[N, groups of {'all' if size < 0 else size} of K={k}]")
    matrix = Matrix(n, k, lambda first, last: unpack_int4(pairs[first:last]), scales, read_pairs=rows_of(pairs))
    return Read(matrix, "int4", grouping(layer, k, groups, size, name).size)


FORMAT = Format(_read, {"weight": 2}, ("weight_scale_inv", "weight_scale"))
