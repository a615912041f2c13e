"""Gated activations: as the epilogue's steps, as the runtime takes them, and what they are in torch."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator

import torch

from ._extension import C
from ._numbers import fp32_bits
from ._step import Epilogue

__all__ = ["GeGLU", "SwiGLU"]  # in `epilogue`, too

Gate = tuple[
    int, ...
]  # the kind, where rows are, and the bits of limit, alpha and up_shift: as csrc's check_gate reads

KINDS = tuple(C.gate_kinds().split())
# In the order of GateRows (include/deep_gemm/gate.cuh).
ROWS = ("halves", "interleaved")
EIGHTS = 2 * len(ROWS)  # behind those of packed weights
SIDE = 8  # gates that lie side by side, and then their ups
# Rows of an expert from which packed weights quantise faster within a product with a gate than behind it, rounding
# alike (docs/layers.md).
QUANTISE_PACKED_FROM = 64
_LAYOUTS = {**{name: number for number, name in enumerate(ROWS)}, "eights": EIGHTS}


def _record(kind: str, layout: str, limit: float | None = None, alpha: float = 1.0, up_shift: float = 0.0) -> Gate:
    if layout not in _LAYOUTS:
        raise ValueError(f"layout must be 'halves', 'interleaved' or 'eights', got {layout!r}")
    bits = [fp32_bits(name, value) for name, value in (("alpha", alpha), ("up_shift", up_shift))]
    if limit is not None:
        fp32_bits("limit", limit)
        if not 0 < limit < math.inf:
            raise ValueError(f"limit must be None or a number above 0, got {limit!r}")
    bound = struct.unpack("<I", struct.pack("<f", math.inf if limit is None else limit))[0]
    return KINDS.index(kind), _LAYOUTS[layout], bound, *bits


class Gated(Epilogue):
    """The base of gated activations, which make one column of D of two of the product."""

    record: Gate
    layout: str

    @classmethod
    def of_models(cls, layout: str, limits: list[float | None]) -> Iterator[Gated]:
        """Those that models may have; `limits` are the numbers that may be its limit."""
        raise NotImplementedError


class SwiGLU(Gated):
    """D has N/2 columns, `gate * sigmoid(alpha * gate) * (up + up_shift)` of the N columns of the product.

    `C + alpha * (A @ B)` comes first, C being `[M, N]`, and all of it is FP32 up to the one rounding to D. Weights lie
    as checkpoints have them; no call permutes or copies them.

    Args:
        limit: before the activation, gates become at most this, and ups at most so far from 0. None: no limit.
        alpha: within the sigmoid.
        up_shift: what is added to ups.
        layout: where the rows of B are: 'halves', N/2 of gates and then N/2 of ups; 'interleaved', a gate and its
            up in turn; or 'eights', 8 gates and their 8 ups in turn, while scales of 128x128 blocks are those of
            halves (what `transform_weights_for_mega_moe_sm90` makes; not beside packed weights, nor on SM100 with
            scales of groups of K).

    gpt-oss has `SwiGLU(limit=7.0, alpha=1.702, up_shift=1.0, layout='interleaved')`, DeepSeek-V4 `SwiGLU(limit=10.0)`.

    Taken by dense products, experts and `einsum`s 'bhr,hdr->bhd' of BF16, FP16, FP8, INT8 and FP4, beside packed
    weights where `pack_weights` was told this layout as `gate_up` (bias and C lie as rows did before). B must have K
    contiguous, and N must be even: a multiple of 16 of packed weights and of 'eights', whose rows are 8 and 8, and N/2
    one of 128 where B has FP32 scales of 128x128 blocks, except with 'interleaved'. Others refuse it. `d` may be a
    pair `(q, s)`: what the activation makes is quantised.
    """

    def __init__(
        self, limit: float | None = None, alpha: float = 1.0, up_shift: float = 0.0, layout: str = "halves"
    ) -> None:
        self.record = _record("swiglu", layout, limit, alpha, up_shift)
        self.limit, self.alpha, self.up_shift, self.layout = limit, alpha, up_shift, layout

    def __repr__(self) -> str:
        return f"SwiGLU(limit={self.limit}, alpha={self.alpha}, up_shift={self.up_shift}, layout={self.layout!r})"

    @classmethod
    def of_models(cls, layout: str, limits: list[float | None]) -> Iterator[Gated]:
        yield from (cls(limit=limit, layout=layout) for limit in limits)
        yield from (cls(limit=limit, alpha=1.702, up_shift=1.0, layout=layout) for limit in limits)


class GeGLU(Gated):
    """D has N/2 columns, `GELU(gate) * up`. Otherwise as `SwiGLU`.

    Args:
        layout: as there.
        approximate: of GELU: 'tanh', or 'none' for that of erf.
    """

    def __init__(self, layout: str = "halves", approximate: str = "tanh") -> None:
        if approximate not in ("tanh", "none"):
            raise ValueError(f"approximate must be 'tanh' or 'none', got {approximate!r}")
        self.record = _record("geglu_tanh" if approximate == "tanh" else "geglu_erf", layout)
        self.layout, self.approximate = layout, approximate

    def __repr__(self) -> str:
        return f"GeGLU(layout={self.layout!r}, approximate={self.approximate!r})"

    @classmethod
    def of_models(cls, layout: str, limits: list[float | None]) -> Iterator[Gated]:
        yield from (cls(layout, approximate) for approximate in ("tanh", "none"))


class RecordedGate(Gated):
    """As operators of torch hand it on."""

    def __init__(self, record: Gate) -> None:
        self.record = record


GATES: tuple[type[Gated], ...] = (SwiGLU, GeGLU)
_ACTIVATIONS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "swiglu": lambda gate, alpha: gate * torch.sigmoid(alpha * gate),
    "geglu_tanh": lambda gate, _: torch.nn.functional.gelu(gate, approximate="tanh"),
    "geglu_erf": lambda gate, _: torch.nn.functional.gelu(gate),
}


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
    shifted: torch.Tensor = up + up_shift
    return _ACTIVATIONS[kind](gate, alpha).mul(shifted)
