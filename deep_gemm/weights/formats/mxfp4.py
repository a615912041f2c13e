"""MXFP4: E2M1 with an exponent for each 32 of K."""

from __future__ import annotations

from .config import Config
from .e2m1 import matrix_of_pairs, require_e2m1
from .layer import EXPONENTS, PAIRS, Format, Layer, Read

GROUP = 32
_METHODS = ("mxfp4", "gpt_oss_mxfp4", "fp8", "compressed-tensors", "modelopt", "modelopt_mxfp4", "quark")


def _read(layer: Layer, config: Config) -> Read:
    config.choice("quant_method", _METHODS)
    require_e2m1(config, GROUP)
    name = layer.name_of("blocks", "weight_packed", "weight")
    pairs = layer.weights(name, dtypes=PAIRS, dimensions=3 if name == "blocks" else 2)
    if name == "blocks" and pairs.shape[2] != GROUP // 2:
        layer.reject_shape(name, (*pairs.shape[:2], GROUP // 2), f"[N, K / {GROUP}, {GROUP // 2}]")
    pairs = pairs.flatten(1)
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    if k % GROUP != 0:
        raise ValueError(f"{layer.prefix}{name} must hold whole groups of {GROUP} of K, got K={k}")
    scales = layer.scales(
        layer.name_of("scales", "weight_scale"), (n, k // GROUP), f"[N, K / {GROUP}]", dtypes=EXPONENTS
    )
    return Read(matrix_of_pairs(pairs, scales), "e2m1", GROUP)


FORMAT = Format(_read, {"blocks": 3, "weight_packed": 2, "weight": 2}, ("scales", "weight_scale"))
