"""The first product of experts or of an MLP, and its gate: rows as the second product takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._gates import Gated
from .._gemm import Contiguous, Masked, gemm
from ..epilogue import Chain
from ..weights import PackedWeights
from .gates import fusing_pays, gate_is_fused, gated_in_torch, gated_tokens, quantising_pays
from .master import MasterWeights
from .numbers import Grouping, fp8_rows, is_batch_invariant, joined, scale_form, target_of
from .stored import StoredWeights

Part = MasterWeights | StoredWeights
SCALE_COLUMNS = 128


def operand_of(part: Part) -> Any:
    """What products multiply."""
    if isinstance(part, StoredWeights):
        return part.operand()
    data, scales, _, _ = part.operands(False)
    return joined(data, scales)


def tokens_for(part: Part, x: torch.Tensor, grouping: Grouping) -> Any:
    """x as these weights want it."""
    if isinstance(part, StoredWeights):
        return part.tokens(x, grouping)
    return fp8_rows(x, grouping) if part.precision == "fp8" else x


def gated_rows(
    rows: Any,
    gate_up: Part,
    down: Part,
    gate: Gated,
    bias: torch.Tensor | None,
    grouping: Grouping,
    shape: Sequence[int],
    dtype: torch.dtype,
    expected_rows: int,
    as_trained: bool = False,
) -> Any:
    """`gate(rows @ gate_up.T + bias)`, `[*shape, inner]`, as `down` takes it.

    Args:
        expected_rows: of each expert: it decides how much of this is one kernel.
        as_trained: the gate in torch.
    """
    operand, activations = operand_of(gate_up), down.precision if isinstance(down, MasterWeights) else down.activations
    data = rows[0] if isinstance(rows, (tuple, list)) else rows
    half = dtype if dtype in (torch.bfloat16, torch.float16) else torch.bfloat16
    inner = down.shape[-1]
    permuted = isinstance(down, StoredWeights) and down.operand() is not down.weights
    if as_trained and isinstance(operand, PackedWeights) and operand.gate_up is not None:
        raise RuntimeError(
            "as_trained wants the gate behind the first product, but these weights are packed for one within it "
            f"(gate_up={operand.gate_up!r}): pack them without gate_up"
        )
    call = operand, gate_up.shape, gate, grouping, data.device, activations, expected_rows
    if not as_trained and activations == "fp8" and not permuted and _fuses(*call, quantised=True):
        q = data.new_empty((*shape, inner), dtype=torch.float8_e4m3fn)
        s = _scales_of(q)
        gemm(rows, operand, (q, s), grouping=grouping, bias=bias, epilogue=Chain(gate))
        return q, s
    if not as_trained and _fuses(*call, quantised=False):
        product = data.new_empty((*shape, inner), dtype=half)
        gemm(rows, operand, product, grouping=grouping, bias=bias, epilogue=Chain(gate))
        return tokens_for(down, product, grouping)
    both = data.new_empty((*shape, 2 * inner), dtype=half)
    gemm(rows, operand, both, grouping=grouping, bias=bias)
    quantised = None if permuted or as_trained else gated_tokens(both, gate, activations, grouping)
    return tokens_for(down, gated_in_torch(both, gate), grouping) if quantised is None else quantised


def _fuses(
    operand: Any,
    shape: tuple[int, ...],
    gate: Gated,
    grouping: Grouping,
    device: torch.device,
    activations: str,
    expected_rows: int,
    quantised: bool,
) -> bool:
    packed = isinstance(operand, PackedWeights)
    experts, n, k = shape if len(shape) == 3 else (0, *shape)
    kind = "masked" if isinstance(grouping, Masked) else "contiguous" if isinstance(grouping, Contiguous) else "dense"
    invariant = is_batch_invariant(device)
    if quantised and (scale_form(device) != "fp32" or not quantising_pays(kind, packed, expected_rows, invariant)):
        return False
    if packed:  # those packed so are multiplied no other way
        return operand.gate_up is not None and not (quantised and n % (2 * SCALE_COLUMNS))
    if not fusing_pays(kind, activations, expected_rows, invariant):
        return False
    return gate_is_fused(target_of(device), kind, isinstance(operand, tuple), n, k, experts, gate.record, quantised)


def _scales_of(q: torch.Tensor) -> torch.Tensor:
    """float32 of each row and 128 columns, as the next product takes them."""
    *lead, rows, columns = q.shape
    padded = -(-rows // 4) * 4
    memory = q.new_empty((*lead, -(-columns // SCALE_COLUMNS), padded), dtype=torch.float32)
    return memory.transpose(-1, -2)[..., :rows, :]
