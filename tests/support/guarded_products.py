"""Dense products with packed weights, of which nothing but D is written, and all of it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from candidates import forced_tile
from inputs import GuardedOutput

from deep_gemm.weights import PackedWeights


def guarded_product(
    kind: Any,
    a: Any,
    w: PackedWeights,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    tile: tuple[Any, ...] | None = None,
    **arguments: torch.Tensor | None,
) -> torch.Tensor:
    """D, by the dense function of a kind of `packed_products` or `bf16_weight_inputs`.

    Args:
        a: `Tokens`, or a tensor beside weights for 16 bits.
        tile: what follows the problem in `forced_tile`; None: whatever selection takes.
    """
    (m, k), n = a.shape, w.shape[0]
    d = GuardedOutput((m, n), dtype, device)
    with forced_tile(device, (m, n, k), *tile) if tile else nullcontext():
        kind.function("{}_gemm_nt")(a.to(device), w.to(device), d.tensor, **arguments)
    d.check()
    return d.tensor
