"""The gated activation between an expert's products: in the first one's epilogue where that has it, else behind it."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from .. import quantize
from .._compiled import constant_when_compiled
from .._gates import EIGHTS, QUANTISE_PACKED_FROM, ROWS, SIDE, Gate, Gated, gated_product
from .._gemm import Contiguous, Masked, gemm
from .._recording import placeholder, record
from .._targets import GPUS
from ..epilogue import epilogue_of
from ..utils.math import ceil_div
from .numbers import Grouping, scale_form

_QUANTISED = ("fp8", "int8")  # activations that a quantise kernel makes of gates and ups
_BLOCK = 128  # columns of a quantised result, or rows and K of weights, that share a scale


# Rows of an expert from which a gate and quantising are faster as one kernel behind the product (docs/layers.md).
_GATE_APART_FROM = 512


def quantising_pays(kind: str, packed: bool, rows: int, invariant: bool) -> bool:
    """Within a product with a gate; else a quantise kernel reads its result, which was rounded first.

    invariant: in equal steps whatever the number of rows, and however they lie.
    """
    if invariant:
        return not packed
    return kind == "masked" and (not packed or rows >= QUANTISE_PACKED_FROM)


def fusing_pays(kind: str, activations: str, rows: int, invariant: bool) -> bool:
    """A gate within the product, of weights that are multiplied either way."""
    return invariant or kind != "contiguous" or activations not in _QUANTISED or rows < _GATE_APART_FROM


def packed_for(gate: Gated, n: int) -> str | None:
    """`gate_up` of weights to be packed: with the gate within the product, where their rows can lie so."""
    return gate.layout if gate.layout in ROWS and n % (2 * SIDE) == 0 else None


@constant_when_compiled
def gate_is_fused(target: str, kind: str, fp8: bool, n: int, k: int, groups: int, gate: Gate, quantised: bool) -> bool:
    """Whether products have such an epilogue: asked by recording a call, which else is refused.

    Args:
        kind: 'dense', 'contiguous' or 'masked'.
        groups: experts; 0 of a dense product.
        fp8: whether operands are FP8 with scales, else they are BF16.
        quantised: whether the result is FP8 with scales.
    """
    return _is_fused(target, kind, fp8, n, k, groups, gate, quantised)


@functools.lru_cache(maxsize=256)
def _is_fused(target: str, *call: Any) -> bool:
    # In a thread of its own: this one may record calls already, or trace a program.
    with ThreadPoolExecutor(1) as pool:
        return target in GPUS and pool.submit(_is_recorded, target, *call).result()


def _is_recorded(target: str, kind: str, fp8: bool, n: int, k: int, groups: int, gate: Gate, quantised: bool) -> bool:
    each, rows = (groups,) if kind == "masked" else (), _BLOCK

    def operand(*shape: int, block_rows: int = 1) -> Any:
        if not fp8:
            return placeholder(*shape, dtype=torch.bfloat16)
        scales = *shape[:-2], ceil_div(shape[-2], block_rows), ceil_div(k, _BLOCK)
        return placeholder(*shape, dtype=torch.float8_e4m3fn), placeholder(*scales, dtype=torch.float32)

    d: Any = placeholder(*each, rows, n // 2, dtype=torch.float8_e4m3fn if quantised else torch.bfloat16)
    if quantised:
        d = d, placeholder(*each, ceil_div(n // 2, _BLOCK), rows, dtype=torch.float32).mT
    counts = placeholder(groups if kind == "masked" else rows, dtype=torch.int32)
    groupings: dict[str, Grouping] = {"masked": Masked(counts, rows), "contiguous": Contiguous(counts), "dense": None}
    experts = () if kind == "dense" else (groups,)
    try:
        with record(target):
            gemm(
                operand(*each, rows, k),
                operand(*experts, n, k, block_rows=_BLOCK),
                d,
                grouping=groupings[kind],
                epilogue=epilogue_of(None, None, [*gate], None),
            )
    except (ValueError, TypeError, RuntimeError):
        return False
    return True


def gated_tokens(both: torch.Tensor, gate: Gated, activations: str, grouping: Grouping) -> Any | None:
    """`[.., 2 K]` gated and quantised in one pass; None where no quantise kernel does that."""
    if gate.record[1] == EIGHTS or activations not in _QUANTISED:
        return None
    if activations == "int8":
        return quantize.gated_int8(both, gate, grouping=grouping)
    return quantize.gated_fp8(both, gate, scales=scale_form(both.device), grouping=grouping)


def gated_in_torch(both: torch.Tensor, gate: Gated) -> torch.Tensor:
    """In FP32, rounded once; with gradients."""
    return gated_product(both.float(), gate.record).to(both.dtype)
