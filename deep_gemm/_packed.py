"""What calls with packed weights have in common, whatever their formats: Python's checks, and the runtime's calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ._call import INT4_PAIRS, NT, Rows, contiguous_fields, run, write_empty_experts, write_empty_masked
from ._gates import EIGHTS, ROWS, Gate
from ._numbers import fp32_bits, integer
from ._output import Output, data_of, write_empty
from .epilogue import NO_STEPS, Epilogue, StepFields, step_arguments
from .utils.math import ceil_div
from .weights import PackedWeights
from .weights.packings import ELEMENT_NUMBERS, K_BLOCK

ScaledTokens = tuple[torch.Tensor, torch.Tensor | float]
Activations = ScaledTokens | tuple[torch.Tensor, torch.Tensor | float, torch.Tensor | int]
Tokens = torch.Tensor | Activations  # without scales for exact sums

_SOME_K = 128
_DTYPES = {
    "fp8": (torch.float8_e4m3fn,),
    "int8": (torch.int8,),
    "int4": (torch.int8,),
    "bf16": (torch.bfloat16, torch.float16),
}


@dataclass(frozen=True)
class AcceptedWeights:
    """The packed weights that a function multiplies."""

    activations: str
    elements: tuple[str, ...]


@dataclass(frozen=True)
class OperandOptions:
    """What calls say beside `compiled_dims`."""

    tokens_k: int = 0  # of K that shares a scale of a; 0: as is usual
    layout: int = 0  # operands that lie the other way round, and float32 scales as they are
    steps: StepFields = NO_STEPS

    def without_k(self) -> OperandOptions:
        """Of a call whose sums are zero, whatever is said of its operands."""
        return OperandOptions(steps=(None, *self.steps[1:]))

    def fields(self, w: PackedWeights | Unpacked) -> dict[str, Any]:
        """Fields of the record. Rows of packed weights lie in another order than those of C and bias."""
        alpha_bits, row_scale, gate = self.steps
        return {"alpha_bits": alpha_bits, "row_scale": row_scale, "gate": gate_beside(w, gate)}


def gate_beside(w: PackedWeights | Unpacked, gate: Gate | None) -> Gate | None:
    packed = w.gate_up if isinstance(w, PackedWeights) else None
    if gate is None:
        if packed is not None:
            raise ValueError(f"w is packed with gate_up={packed!r}: epilogue must have a gated activation")
        return None
    kind, rows, *numbers = gate
    if isinstance(w, PackedWeights):
        if rows == EIGHTS:
            raise ValueError(
                "the gated activation's layout must be as gate_up of the packed weights, "
                f"{' or '.join(map(repr, ROWS))}, got 'eights'"
            )
        if packed != ROWS[rows]:
            raise ValueError(
                f"w must be packed with gate_up={ROWS[rows]!r} for a gated activation with this layout, got "
                f"gate_up={packed!r}: pack it anew with pack_weights(..., gate_up={ROWS[rows]!r})"
            )
        rows += len(ROWS)
    return kind, rows, *numbers


@dataclass(frozen=True)
class UnpackedFp4:
    """MXFP4 weights as the public API has them. Before Blackwell each call packs them into a workspace."""

    codes: torch.Tensor  # int8 [N, K / 2] or [G, N, K / 2]
    scales: torch.Tensor
    group_size: int

    @property
    def data(self) -> torch.Tensor:
        return self.codes

    def fields(self) -> dict[str, Any]:
        """Of the record."""
        n, k = (*self.codes.shape[-2:], 0, 0)[:2]
        return _weights_fields(self.codes, self.scales, "e2m1", (n, 2 * k), self.group_size)

    def with_k(self, n: int) -> UnpackedFp4:
        """Weights of no K with some, which is zero: their products are the same."""
        rows = (*self.codes.shape[:-2], n)
        scales = torch.ones((*rows, 1), device=self.codes.device)
        return UnpackedFp4(self.codes.new_zeros((*rows, _SOME_K // 2)), scales, _SOME_K)


@dataclass(frozen=True)
class UnpackedFp8:
    """E4M3 weights with scales of 128x128 blocks, which each call packs likewise."""

    values: torch.Tensor  # float8_e4m3fn [N, K] or [G, N, K]
    scales: torch.Tensor

    @property
    def data(self) -> torch.Tensor:
        return self.values

    def fields(self) -> dict[str, Any]:
        if self.values.dtype != torch.float8_e4m3fn:
            dtype = str(self.values.dtype).removeprefix("torch.")
            raise TypeError(f"w must be PackedWeights or float8_e4m3fn with scales, got {dtype}")
        n, k = (*self.values.shape[-2:], 0, 0)[:2]
        return _weights_fields(self.values, self.scales, "e4m3p", (n, k), K_BLOCK)

    def with_k(self, n: int) -> UnpackedFp8:
        groups = self.values.shape[:-2]
        scales = torch.ones((*groups, ceil_div(n, K_BLOCK), 1), device=self.values.device)
        return UnpackedFp8(self.values.new_zeros((*groups, n, _SOME_K)), scales)


Unpacked = UnpackedFp4 | UnpackedFp8
_USUAL = OperandOptions()


def _weights_fields(
    codes: torch.Tensor, scales: torch.Tensor, element: str, shape: tuple[int, int], group_k: int
) -> dict[str, Any]:
    return {
        "b": codes,
        "b_scales": scales,
        "b_element": ELEMENT_NUMBERS[element],
        "b_rows": shape[0],
        "b_k": shape[1],
        "b_group_k": group_k,
    }


def with_epilogue(epilogue: Epilogue | None) -> OperandOptions:
    """Of calls that say nothing else."""
    return _USUAL if epilogue is None else OperandOptions(steps=step_arguments(None, epilogue))


def run_dense(
    a: Activations | torch.Tensor,
    w: PackedWeights | Unpacked,
    d: Output,
    c: torch.Tensor | None,
    bias: torch.Tensor | None,
    compiled_dims: str,
    accepted: AcceptedWeights,
    options: OperandOptions = _USUAL,
) -> None:
    operands, layout = _operands(a, w, accepted, options), NT[compiled_dims] | options.layout
    if run(**operands, **options.fields(w), d=d, c=c, bias=bias, layout=layout):
        return
    if bias is None:
        write_empty(d, c, options.steps)
    else:
        run_dense(
            *_with_k(operands["a"], w, accepted, d, options), d, c, bias, compiled_dims, accepted, options.without_k()
        )


def run_contiguous(
    a: Activations | torch.Tensor,
    w: PackedWeights | Unpacked,
    d: Output,
    grouped_layout: torch.Tensor,
    compiled_dims: str,
    rows: Rows,
    accepted: AcceptedWeights,
    bias: torch.Tensor | None = None,
    options: OperandOptions = _USUAL,
) -> None:
    operands, layout = _operands(a, w, accepted, options), NT[compiled_dims] | options.layout
    groups = contiguous_fields(grouped_layout, rows)
    if run(**operands, **groups, **options.fields(w), d=d, bias=bias, layout=layout):
        return
    if bias is None or len(bias) == 0:
        write_empty_experts(d, grouped_layout, rows[0], operands["b"].shape[0])
    else:
        some_k = _with_k(operands["a"], w, accepted, d, options)
        run_contiguous(*some_k, d, grouped_layout, compiled_dims, rows, accepted, bias, options.without_k())


def run_masked(
    a: Activations | torch.Tensor,
    w: PackedWeights | Unpacked,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str,
    accepted: AcceptedWeights,
    bias: torch.Tensor | None = None,
    options: OperandOptions = _USUAL,
) -> None:
    operands, layout = _operands(a, w, accepted, options), NT[compiled_dims] | options.layout
    groups: dict[str, Any] = {"masked_m": masked_m, "expected_m": integer("expected_m", expected_m)}
    if run(**operands, **groups, **options.fields(w), d=d, bias=bias, layout=layout):
        return
    if bias is None:
        write_empty_masked(d, masked_m)
    else:
        some_k = _with_k(operands["a"], w, accepted, d, options)
        run_masked(*some_k, d, masked_m, expected_m, compiled_dims, accepted, bias, options.without_k())


def _with_k(
    data: torch.Tensor, w: PackedWeights | Unpacked, accepted: AcceptedWeights, d: Output, options: OperandOptions
) -> tuple[Any, Unpacked]:
    """Both operands of no K with some, which is zero, K behind d's rows and columns. (Nothing is packed without K.)"""
    assert not isinstance(w, PackedWeights)
    *rows, columns = data_of(d).shape
    zeros, scales = data.new_zeros((*rows, _SOME_K)), torch.ones((*rows, 1), device=data.device)
    return zeros if accepted.activations == "bf16" else (zeros, scales), w.with_k(
        columns if options.steps[2] is None else 2 * columns
    )


def _operands(
    a: Activations | torch.Tensor, w: PackedWeights | Unpacked, accepted: AcceptedWeights, options: OperandOptions
) -> dict[str, Any]:
    """Fields of the record."""
    weights = _packed_fields(w, accepted) if isinstance(w, PackedWeights) else w.fields()
    exact = accepted.activations in ("int8", "int4") and isinstance(a, torch.Tensor)  # sums, which no scale multiplies
    pair: Any = (a, 1.0) if accepted.activations == "bf16" else (a, None) if exact else a
    data, given = pair[0], pair[1]
    zeros, zero = zero_points(pair)
    # The runtime goes by a's dtype, and codes packed for other activations would mean other weights.
    if data.dtype not in _DTYPES[accepted.activations]:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES[accepted.activations])
        raise TypeError(f"a must be {wanted}, got {str(data.dtype).removeprefix('torch.')}")
    scales = given if isinstance(given, torch.Tensor) else None
    return {
        **weights,
        "a": data,
        "a_scales": scales,
        "a_scale": None if scales is not None or given is None else fp32_bits("a's scale", given),
        "a_zeros": zeros,
        "a_zero": zero,
        "a_element": INT4_PAIRS if accepted.activations == "int4" else None,
        "a_group_k": options.tokens_k,
    }


def _packed_fields(w: PackedWeights, accepted: AcceptedWeights) -> dict[str, Any]:
    activations = accepted.activations
    if w.activations != activations:
        raise ValueError(
            f"w is packed for {w.activations!r} activations, but this function has {activations!r} ones: pack it anew "
            f"with pack_weights(..., activations={activations!r})"
        )
    if w.element not in accepted.elements:
        raise ValueError(f"w must be {' or '.join(accepted.elements)}, got {w.element}")
    w.require_inputs_in_order()
    return {
        **w.record_numbers,
        "b": w.codes,
        "b_scales": w.scales,
        "b_zeros": w.zeros,
        "b_second_scales": w.second_scales,
        "b_sums": w.sums,
    }


def zero_points(a: Any) -> tuple[torch.Tensor | None, int | None]:
    """Zero points of activations, if they have some: a tensor, or one number."""
    if isinstance(a, torch.Tensor) or len(a) < 3:
        return None, None
    zeros = a[2]
    if not isinstance(zeros, torch.Tensor):
        return None, _zero("a's zeros", zeros)
    if zeros.ndim == 0 and zeros.device != a[0].device and zeros.device.type == "cpu":
        return None, _zero("a's zeros", zeros.item())  # as torch's own operators mix them
    return zeros, None


def _zero(name: str, number: Any) -> int:
    zero = integer(name, number)
    if not -(2**31) <= zero < 2**31:
        raise ValueError(f"{name} must be int32, or a number that int32 can hold, got {number}")
    return zero
