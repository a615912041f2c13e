"""The gated activation between an expert's products: in the first one's epilogue where that has it, else behind it."""

from __future__ import annotations

import functools
import struct
from typing import Any

import torch

from .. import quantize
from .._compiled import constant_when_compiled
from .._extension import C
from .._gates import KINDS, ROWS, Gate, gated_product
from .._targets import GPUS
from ..epilogue import GeGLU, SwiGLU
from .numbers import Grouping, scale_form

Gated = SwiGLU | GeGLU
_QUANTISED_COLUMNS = 128  # that share a scale


@constant_when_compiled
def gate_is_fused(
    target: str, grouping: str, operands: str, n: int, k: int, groups: int, gate: Gate, quantised: bool
) -> bool:
    """Whether products have such an epilogue: asked of the runtime, by what it would refuse.

    Args:
        operands: how the runtime's problems name them: "bf16", or "" (FP8).
        quantised: whether the result is FP8 with scales.
    """
    return _is_fused(target, grouping, operands, n, k, groups, gate, quantised)


@functools.lru_cache(maxsize=256)
def _is_fused(
    target: str, grouping: str, operands: str, n: int, k: int, groups: int, gate: Gate, quantised: bool
) -> bool:
    fields = {"m": 128, "n": n, "k": k, "groups": groups, "num_sms": GPUS[target].sms} if target in GPUS else {}
    fields |= {"gate": gate[0], "gate_rows": gate[1]}
    if operands:
        fields[operands] = 1
    if quantised:
        fields["quantised"] = _QUANTISED_COLUMNS
    try:
        C.problem_kernel(grouping, fields, target)
    except (ValueError, TypeError, RuntimeError):
        return False
    return True


def operands_name(weights: Any) -> str:
    """Of plain weights and of pairs."""
    return "" if isinstance(weights, tuple) else "bf16"


def gated_tokens(both: torch.Tensor, gate: Gated, activations: str, grouping: Grouping) -> Any | None:
    """`[.., 2 K]` gated and quantised in one pass; None where no quantise kernel does that."""
    kind, rows = KINDS[gate.record[0]], ROWS[gate.record[1]]
    if kind == "geglu_erf" or activations not in ("fp8", "int8"):
        return None
    how: dict[str, Any] = {"layout": rows, "grouping": grouping}
    if kind == "swiglu":
        limit, alpha, up_shift = struct.unpack("<3f", struct.pack("<3I", *gate.record[2:]))
        how |= {"limit": None if limit == float("inf") else limit, "alpha": alpha, "up_shift": up_shift}
    if activations == "int8":
        return (quantize.swiglu_int8 if kind == "swiglu" else quantize.geglu_int8)(both, **how)
    form = scale_form(both.device)
    return (quantize.swiglu_fp8 if kind == "swiglu" else quantize.geglu_fp8)(both, scales=form, **how)


def gated_in_torch(both: torch.Tensor, gate: Gated) -> torch.Tensor:
    """In FP32, rounded once; with gradients."""
    return gated_product(both.float(), gate.record).to(both.dtype)
