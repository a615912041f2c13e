"""NVFP4: E2M1 with an E4M3 scale for each 16 of K, and one for the matrix."""

from __future__ import annotations

import torch

from ...utils.math import TILE_COLUMNS, TILE_ROWS, align, scales_of_tiles
from .config import Config
from .e2m1 import matrix_of_pairs, require_e2m1
from .layer import PAIRS, Format, Layer, Read

GROUP = 16
_METHODS = ("nvfp4", "modelopt", "modelopt_fp4", "compressed-tensors", "torchao")
_E4M3 = (torch.float8_e4m3fn,)
_FACTOR, _DIVISOR = "weight_scale_2", "weight_global_scale"


def _read(layer: Layer, config: Config) -> Read:
    config.choice("quant_method", _METHODS)
    config.choice("quant_algo", ("nvfp4", "w4a16_nvfp4"))
    require_e2m1(config, GROUP)
    name = layer.name_of("weight_packed", "weight")
    pairs = layer.weights(name, dtypes=PAIRS)
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    if k % GROUP != 0:
        raise ValueError(f"{layer.prefix}{name} must hold whole groups of {GROUP} of K, got K={k}")
    scales = _scales(layer, n, k // GROUP, config.flag("is_swizzled_scales"))
    return Read(matrix_of_pairs(pairs, scales, _second_scale(layer).to(pairs.device)), "e2m1", GROUP)


def _scales(layer: Layer, n: int, groups: int, swizzled: bool | None) -> torch.Tensor:
    scales = layer.scales("weight_scale", None, dtypes=_E4M3)
    rows, columns = align(n, TILE_ROWS), align(groups, TILE_COLUMNS)
    shape = tuple(scales.shape)
    tiled = scales.numel() == rows * columns and shape[-1:] in ((columns,), (rows * columns,), (16,))
    if swizzled:
        if not tiled:
            layer.reject_shape(
                "weight_scale", (rows, columns), f"tiles of {TILE_ROWS} x {TILE_COLUMNS}: config's is_swizzled_scales"
            )
        return scales_of_tiles(scales.reshape(rows, columns))[:n, :groups]
    if shape != (n, groups):
        of_tiles = (
            ": it has the size of tiles of 128 x 4 (swizzled), which config's is_swizzled_scales must say"
            if tiled and swizzled is None
            else ""
        )
        layer.reject_shape("weight_scale", (n, groups), f"[N, K / {GROUP}]{of_tiles}")
    return scales


def _second_scale(layer: Layer) -> torch.Tensor:
    """One FP32 number; the matrices of gate and up, stored as one, have equal ones."""
    name = layer.name_of(_FACTOR, _DIVISOR)
    given = layer.scales(name, None).float().flatten()
    if given.numel() not in (1, 2) or bool((given != given[0]).any()):
        raise ValueError(
            f"{layer.prefix}{name} must be one number for each matrix, or an equal pair, got {given.tolist()[:4]} of "
            f"shape {[*layer.tensors[name].shape]}"
        )
    if name == _DIVISOR and float(given[0]) == 0:
        raise ValueError(f"{layer.prefix}{name} must not be 0: it divides scales")
    return given[:1] if name == _FACTOR else given[:1].reciprocal()


FORMAT = Format(
    _read, {"weight_packed": 2, "weight": 2}, ("weight_scale", _FACTOR, _DIVISOR), shared=(_FACTOR, _DIVISOR)
)
