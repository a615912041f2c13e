"""What calls with packed weights have in common, whatever their formats: Python's checks, and the runtime's calls."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ._extension import C
from ._numbers import integer
from .gemm import _NT, _write_empty_product
from .weights import PackedWeights

Activations = tuple[torch.Tensor, torch.Tensor | float]

_ELEMENTS = {name: number for number, name in enumerate(C.element_names().split())}
_NO_NUMBER = -1
_DTYPES = {
    "fp8": (torch.float8_e4m3fn,),
    "int8": (torch.int8,),
    "bf16": (torch.bfloat16, torch.float16),
}
_MOST_EXACT_K = 131071  # products of any values then add up within s32


@dataclass(frozen=True)
class Takes:
    """The packed weights that a function multiplies."""

    activations: str
    elements: tuple[str, ...]


def run(
    a: Activations | torch.Tensor,
    w: PackedWeights,
    d: torch.Tensor,
    c: torch.Tensor | None,
    bias: torch.Tensor | None,
    compiled_dims: str,
    takes: Takes,
) -> None:
    codes, scales, second, told, data, data_scales = _told(a, w, takes)
    if not C.packed_gemm(data, data_scales, codes, scales, d, second, c, bias, told, _NT[compiled_dims]):
        _write_empty_product(d, c)


def run_contiguous(
    a: Activations | torch.Tensor,
    w: PackedWeights,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str,
    use_psum_layout: bool,
    ensure_zero_padding: bool,
    expected_m_for_psum_layout: int | None,
    takes: Takes,
) -> None:
    codes, scales, second, told, data, data_scales = _told(a, w, takes)
    hint = (
        0 if expected_m_for_psum_layout is None else integer("expected_m_for_psum_layout", expected_m_for_psum_layout)
    )
    if not C.packed_m_grouped_gemm_contiguous(
        data,
        data_scales,
        codes,
        scales,
        d,
        second,
        grouped_layout,
        told,
        _NT[compiled_dims],
        use_psum_layout,
        ensure_zero_padding,
        hint,
    ):
        d.zero_()


def run_masked(
    a: Activations | torch.Tensor,
    w: PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str,
    takes: Takes,
) -> None:
    codes, scales, second, told, data, data_scales = _told(a, w, takes)
    expected_m = integer("expected_m", expected_m)
    if not C.packed_m_grouped_gemm_masked(
        data, data_scales, codes, scales, d, second, masked_m, expected_m, told, _NT[compiled_dims]
    ):
        d.zero_()


Told = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, Sequence[int], torch.Tensor, torch.Tensor | None]


def _told(a: Activations | torch.Tensor, w: PackedWeights, takes: Takes) -> Told:
    """What the runtime takes: the weights' tensors, five numbers about them, a's data and scales."""
    activations = takes.activations
    if w.activations != activations:
        raise ValueError(
            f"w is packed for {w.activations!r} activations, but this function has {activations!r} ones: pack it anew "
            f"with pack_weights(..., activations={activations!r})"
        )
    if w.element not in takes.elements:
        raise ValueError(f"w must be of {' or '.join(takes.elements)}, but is of {w.element}")
    if w.needs_zeros:
        raise NotImplementedError("weights with zero points are not multiplied yet: pack symmetric ones")
    if activations == "int8" and w.group_size is not None:
        raise NotImplementedError(
            f"w has scales for groups of {w.group_size} of K, but INT8 activations want one scale a channel as yet: "
            "pack with group_size=None, or for 'fp8' activations"
        )
    if activations == "int8" and w.shape[-1] > _MOST_EXACT_K:
        raise NotImplementedError(f"K must be at most {_MOST_EXACT_K} with INT8 activations, but is {w.shape[-1]}")
    pair: Any = (a, 1.0) if activations == "bf16" else a
    data, given = pair
    if data.dtype not in _DTYPES[activations]:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES[activations])
        raise TypeError(f"a must be {wanted}, but is {str(data.dtype).removeprefix('torch.')}")
    data_scales = given if isinstance(given, torch.Tensor) else None
    number = _NO_NUMBER if data_scales is not None else _fp32_bits(given)
    n, k = w.shape[-2:]
    return (
        w.codes.view(w.experts, -1),
        w.scales,
        w.second_scales,
        (_ELEMENTS[_element_of(w)], n, k, w.scale_group or 0, number),
        data,
        data_scales,
    )


def _element_of(w: PackedWeights) -> str:
    """The element that kernels convert from, as the element table names it."""
    if w.element in ("e2m1", "e4m3"):
        return "e2m1" if w.element == "e2m1" else "e4m3p"
    if w.activations == "bf16":
        return "s4b"
    return "s4" if w.activations == "int8" or w.holds_minus_eight else "s4m"


def _fp32_bits(number: Any) -> int:
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", number))[0]
    except OverflowError:
        raise ValueError(f"a's scale must be a number that FP32 can hold, but is {number}") from None
    return bits
