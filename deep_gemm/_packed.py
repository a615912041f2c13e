"""What calls with packed weights have in common, whatever their formats: Python's checks, and the runtime's calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ._extension import C
from ._gates import EIGHTS, ROWS, Gate
from ._numbers import NO_NUMBER, fp32_bits, integer
from ._output import Output, data_of
from .epilogue import Epilogue, scale_rows, step_arguments
from .fp8 import _NT, _write_empty_product
from .grouped import _hint, _write_empty_experts, _write_empty_masked_product
from .utils.math import ceil_div
from .weights import PackedWeights
from .weights.packings import ELEMENT_NUMBERS, K_BLOCK

ScaledTokens = tuple[torch.Tensor, torch.Tensor | float]
Activations = ScaledTokens | tuple[torch.Tensor, torch.Tensor | float, torch.Tensor | int]
Tokens = torch.Tensor | Activations  # without scales for exact sums

NO_ZERO = 1 << 32
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
    alpha: int | None = None  # bits of the factor of complete sums
    row_scale: torch.Tensor | None = None  # numbers of D's rows
    gate: Gate | None = None

    def without_k(self) -> OperandOptions:
        """Of a call whose sums are zero, whatever is said of its operands."""
        return OperandOptions(row_scale=self.row_scale, gate=self.gate)

    def gate_beside(self, w: PackedWeights | Unpacked) -> Gate | None:
        """As the runtime takes it: rows of packed weights lie in another order than those of C and bias."""
        packed = w.gate_up if isinstance(w, PackedWeights) else None
        if self.gate is None:
            if packed is not None:
                raise ValueError(
                    f"w is packed with gate_up={packed!r}, for a gated activation: epilogue must have SwiGLU or GeGLU"
                )
            return None
        kind, rows, *numbers = self.gate
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
    others = None, None, None

    def record(self) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
        """As the runtime takes them, without a's scale."""
        n, k = (*self.codes.shape[-2:], 0, 0)[:2]
        return self.codes, self.scales, (ELEMENT_NUMBERS["e2m1"], n, 2 * k, self.group_size)

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
    others = None, None, None

    def record(self) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
        if self.values.dtype != torch.float8_e4m3fn:
            dtype = str(self.values.dtype).removeprefix("torch.")
            raise TypeError(f"w must be PackedWeights or float8_e4m3fn with scales, got {dtype}")
        n, k = (*self.values.shape[-2:], 0, 0)[:2]
        return self.values, self.scales, (ELEMENT_NUMBERS["e4m3p"], n, k, K_BLOCK)

    def with_k(self, n: int) -> UnpackedFp8:
        groups = self.values.shape[:-2]
        scales = torch.ones((*groups, ceil_div(n, K_BLOCK), 1), device=self.values.device)
        return UnpackedFp8(self.values.new_zeros((*groups, n, _SOME_K)), scales)


Unpacked = UnpackedFp4 | UnpackedFp8
Rows = tuple[bool, bool, int | None]  # use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
_USUAL = OperandOptions()


def with_epilogue(epilogue: Epilogue | None) -> OperandOptions:
    """Of calls that say nothing else."""
    return _USUAL if epilogue is None else OperandOptions(0, 0, *step_arguments(None, epilogue))


def run(
    a: Activations | torch.Tensor,
    w: PackedWeights | Unpacked,
    d: Output,
    c: torch.Tensor | None,
    bias: torch.Tensor | None,
    compiled_dims: str,
    takes: AcceptedWeights,
    asked: OperandOptions = _USUAL,
) -> None:
    codes, scales, record, data, data_scales, zeros = _record(a, w, takes, asked)
    layout = _NT[compiled_dims] | asked.layout
    steps = asked.alpha, asked.row_scale, asked.gate_beside(w)
    if C.packed_gemm(data, data_scales, codes, scales, d, c, bias, zeros, *w.others, record, layout, *steps):
        return
    if bias is None:
        _write_empty_product(d, c, asked.gate)
        scale_rows(d, asked.row_scale)
    else:
        run(*_with_k(data, w, takes, d, asked), d, c, bias, compiled_dims, takes, asked.without_k())


def run_contiguous(
    a: Activations | torch.Tensor,
    w: PackedWeights | Unpacked,
    d: Output,
    grouped_layout: torch.Tensor,
    compiled_dims: str,
    rows: Rows,
    takes: AcceptedWeights,
    bias: torch.Tensor | None = None,
    asked: OperandOptions = _USUAL,
) -> None:
    codes, scales, record, data, data_scales, zeros = _record(a, w, takes, asked)
    use_psum_layout, ensure_zero_padding, expected_m = rows
    if C.packed_m_grouped_gemm_contiguous(
        data,
        data_scales,
        codes,
        scales,
        d,
        grouped_layout,
        bias,
        zeros,
        *w.others,
        record,
        _NT[compiled_dims] | asked.layout,
        use_psum_layout,
        ensure_zero_padding,
        _hint(expected_m),
        asked.alpha,
        asked.row_scale,
        asked.gate_beside(w),
    ):
        return
    if bias is None or len(bias) == 0:
        _write_empty_experts(d, grouped_layout, use_psum_layout, codes.shape[0])
    else:
        run_contiguous(
            *_with_k(data, w, takes, d, asked), d, grouped_layout, compiled_dims, rows, takes, bias, asked.without_k()
        )


def run_masked(
    a: Activations | torch.Tensor,
    w: PackedWeights | Unpacked,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str,
    takes: AcceptedWeights,
    bias: torch.Tensor | None = None,
    asked: OperandOptions = _USUAL,
) -> None:
    codes, scales, record, data, data_scales, zeros = _record(a, w, takes, asked)
    expected_m = integer("expected_m", expected_m)
    layout = _NT[compiled_dims] | asked.layout
    if C.packed_m_grouped_gemm_masked(
        data,
        data_scales,
        codes,
        scales,
        d,
        masked_m,
        bias,
        zeros,
        *w.others,
        expected_m,
        record,
        layout,
        asked.alpha,
        asked.row_scale,
        asked.gate_beside(w),
    ):
        return
    if bias is None:
        _write_empty_masked_product(d, masked_m)
    else:
        run_masked(
            *_with_k(data, w, takes, d, asked), d, masked_m, expected_m, compiled_dims, takes, bias, asked.without_k()
        )


def _with_k(
    data: torch.Tensor, w: PackedWeights | Unpacked, takes: AcceptedWeights, d: Output, asked: OperandOptions
) -> tuple[Any, Unpacked]:
    """Both operands of no K with some, which is zero, K behind d's rows and columns. (Nothing is packed without K.)"""
    assert not isinstance(w, PackedWeights)
    *rows, columns = data_of(d).shape
    zeros, scales = data.new_zeros((*rows, _SOME_K)), torch.ones((*rows, 1), device=data.device)
    return zeros if takes.activations == "bf16" else (zeros, scales), w.with_k(
        columns if asked.gate is None else 2 * columns
    )


Record = tuple[torch.Tensor, torch.Tensor, Sequence[int], torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def _record(
    a: Activations | torch.Tensor, w: PackedWeights | Unpacked, takes: AcceptedWeights, asked: OperandOptions
) -> Record:
    """What the runtime takes: the weights' codes and scales, numbers about them, a's data, scales and zero points."""
    codes, scales, numbers, zeros_k = _packed_record(w, takes) if isinstance(w, PackedWeights) else (*w.record(), 0)
    exact = takes.activations in ("int8", "int4") and isinstance(a, torch.Tensor)  # sums, which no scale multiplies
    pair: Any = (a, 1.0) if takes.activations == "bf16" else (a, None) if exact else a
    data, given = pair[0], pair[1]
    zeros, zero = zero_points(pair)
    # The runtime goes by a's dtype, and codes packed for other activations would mean other weights.
    if data.dtype not in _DTYPES[takes.activations]:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES[takes.activations])
        raise TypeError(f"a must be {wanted}, got {str(data.dtype).removeprefix('torch.')}")
    data_scales = given if isinstance(given, torch.Tensor) else None
    number = NO_NUMBER if data_scales is not None or given is None else fp32_bits("a's scale", given)
    record = (*numbers, number, zero, int(takes.activations == "int4"), zeros_k, asked.tokens_k)
    return codes, scales, record, data, data_scales, zeros


def _packed_record(w: PackedWeights, takes: AcceptedWeights) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...], int]:
    activations = takes.activations
    if w.activations != activations:
        raise ValueError(
            f"w is packed for {w.activations!r} activations, but this function has {activations!r} ones: pack it anew "
            f"with pack_weights(..., activations={activations!r})"
        )
    if w.element not in takes.elements:
        raise ValueError(f"w must be {' or '.join(takes.elements)}, got {w.element}")
    w.require_inputs_in_order()
    n, k = w.shape[-2:]
    numbers = (ELEMENT_NUMBERS[w.converted_from], n, k, w.scale_group or 0)
    return w.codes.view(w.experts, -1), w.scales, numbers, w.zero_group or 0


def zero_points(a: Any) -> tuple[torch.Tensor | None, int]:
    """Zero points of activations, if they have some: a tensor, or one number."""
    if isinstance(a, torch.Tensor) or len(a) < 3:
        return None, NO_ZERO
    zeros = a[2]
    if not isinstance(zeros, torch.Tensor):
        return None, _zero("a's zeros", zeros)
    if zeros.ndim == 0 and zeros.device != a[0].device and zeros.device.type == "cpu":
        return None, _zero("a's zeros", zeros.item())  # as torch's own operators mix them
    return zeros, NO_ZERO


def _zero(name: str, number: Any) -> int:
    zero = integer(name, number)
    if not -(2**31) <= zero < 2**31:
        raise ValueError(f"{name} must be int32, or a number that int32 can hold, got {number}")
    return zero
