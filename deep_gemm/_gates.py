"""Gated activations as the runtime takes them, and what they are in torch."""

from __future__ import annotations

import math
import struct

import torch

from ._numbers import fp32_bits

__all__ = ["Gate", "gate_record", "gated_product"]

Gate = tuple[
    int, ...
]  # the kind, where rows are, and the bits of limit, alpha and up_shift: as csrc's check_gate reads

# In the order of GateKind and GateRows (include/deep_gemm/gate.cuh).
KINDS = ("none", "swiglu", "geglu_tanh", "geglu_erf")
ROWS = ("halves", "interleaved")
EIGHTS = 2 * len(ROWS)  # behind those of packed weights
SIDE = 8  # gates that lie side by side, and then their ups
# Rows of an expert from which packed weights quantise faster within a product with a gate than behind it, rounding
# alike (docs/layers.md).
QUANTISE_PACKED_FROM = 64
_LAYOUTS = {**{name: number for number, name in enumerate(ROWS)}, "eights": EIGHTS}


def gate_record(kind: str, layout: str, limit: float | None = None, alpha: float = 1.0, up_shift: float = 0.0) -> Gate:
    if layout not in _LAYOUTS:
        raise ValueError(f"layout must be 'halves', 'interleaved' or 'eights', got {layout!r}")
    bits = [fp32_bits(name, value) for name, value in (("alpha", alpha), ("up_shift", up_shift))]
    if limit is not None:
        fp32_bits("limit", limit)
        if not 0 < limit < math.inf:
            raise ValueError(f"limit must be None or a number above 0, got {limit!r}")
    bound = struct.unpack("<I", struct.pack("<f", math.inf if limit is None else limit))[0]
    return KINDS.index(kind), _LAYOUTS[layout], bound, *bits


def gated_product(product: torch.Tensor, record: Gate) -> torch.Tensor:
    """Of the N columns of a product, in its dtype. (Of calls with K = 0.)"""
    kind, rows = KINDS[record[0]], record[1]
    limit, alpha, up_shift = struct.unpack("<3f", struct.pack("<3I", *record[2:]))
    if rows == _LAYOUTS["halves"]:
        gate, up = product.chunk(2, -1)
    elif rows == EIGHTS:
        gate, up = (side.flatten(-2) for side in product.unflatten(-1, (-1, 2, SIDE)).unbind(-2))
    else:
        gate, up = product[..., ::2], product[..., 1::2]
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    activated: torch.Tensor
    if kind == "swiglu":
        activated = gate * torch.sigmoid(alpha * gate)
    else:
        approximate = "tanh" if kind == "geglu_tanh" else "none"
        activated = torch.nn.functional.gelu(gate, approximate=approximate)
    shifted: torch.Tensor = up + up_shift
    return activated.mul(shifted)
