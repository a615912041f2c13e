"""What is packed: matrices that are read some rows at a time, and how callers give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..utils.math import _unpack_codes
from ..utils.quantize import unpack_int4

Tensors = torch.Tensor | Sequence[torch.Tensor]


@dataclass(frozen=True)
class Matrix:
    """One matrix to be packed: its values are read some rows at a time, in whatever form they lie."""

    n: int
    k: int
    read: Callable[[int, int], torch.Tensor]  # first and last row (exclusive) -> int8 or uint8 [rows, K]
    scales: torch.Tensor  # [N, groups]
    zeros: torch.Tensor | None = None  # likewise
    input_permutation: torch.Tensor | None = None  # [K]
    second_scales: torch.Tensor | None = None  # of which `scales` are factors: [N], or one
    scaled_zeros: torch.Tensor | None = None  # [N, groups], in the place of zeros: times integer scales, modulo 256
    # The same codes where they lie two a byte, the first one in the low nibble: rows -> int8 or uint8 [rows, K / 2].
    read_pairs: Callable[[int, int], torch.Tensor] | None = None


def is_stack_of(values: Tensors) -> bool:
    if not isinstance(values, torch.Tensor):
        return True
    if values.dim() not in (2, 3):
        raise ValueError(f"values must be [N, K] or [G, N, K], got shape {[*values.shape]}")
    return values.dim() == 3


def second_scales_of(
    second_scales: Tensors | float | None, device: torch.device, is_stack: bool, count: int
) -> Sequence[torch.Tensor | None]:
    """One or [N] of each matrix."""
    if second_scales is None:
        return [None] * count
    if isinstance(second_scales, (int, float)):
        second_scales = torch.tensor(float(second_scales), device=device)
    if isinstance(second_scales, torch.Tensor) and second_scales.numel() == 1:
        return [second_scales.reshape(1)] * count
    return experts_of("second_scales", second_scales, is_stack, count)


def experts_of(name: str, tensors: Tensors, is_stack: bool, count: int | None = None) -> list[torch.Tensor]:
    """A tensor for each matrix."""
    experts = [tensors] if isinstance(tensors, torch.Tensor) and not is_stack else list(tensors)
    if not experts or (count is not None and len(experts) != count):
        wanted = "at least one" if count is None else str(count)
        raise ValueError(f"{name} must be those of {wanted} matrices, but are of {len(experts)}")
    for expert in experts:
        if not isinstance(expert, torch.Tensor):
            raise TypeError(f"{name} must be a tensor or a sequence of tensors, but hold {type(expert).__name__}")
    return experts


def _dtypes(element: str, packed: bool) -> tuple[torch.dtype, ...]:
    if element == "uint8":
        return (torch.uint8,)
    return (torch.int8,) if element == "int8" or (element == "int4" and not packed) else (torch.int8, torch.uint8)


def matrix_of(
    values: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    second_scales: torch.Tensor | None,
    element: str,
    packed: bool,
) -> Matrix:
    if values.dim() != 2 or values.numel() == 0:
        raise ValueError(f"values of a matrix must be [N, K], neither of them 0, got shape {[*values.shape]}")
    if element == "e4m3":
        if values.dtype != torch.float8_e4m3fn:
            raise TypeError(f"values of 'e4m3' must be torch.float8_e4m3fn, got {values.dtype}")
    elif values.dtype not in _dtypes(element, packed):
        wanted = " or ".join(str(dtype) for dtype in _dtypes(element, packed))
        raise TypeError(f"values of {element!r} must be {wanted}, got {values.dtype}")
    for name, tensor in (("scales", scales), ("zeros", zeros), ("second_scales", second_scales)):
        if tensor is not None and tensor.device != values.device:
            raise ValueError(f"{name} must be on {values.device}, where the values are, but are on {tensor.device}")
    n, k = values.shape
    if not packed:
        return Matrix(n, k, lambda first, last: values[first:last], scales, zeros, second_scales=second_scales)
    unpack = unpack_int4 if element == "int4" else _unpack_codes
    return Matrix(
        n,
        2 * k,
        lambda first, last: unpack(values[first:last]),
        scales,
        zeros,
        second_scales=second_scales,
        read_pairs=lambda first, last: values[first:last],
    )


def stored_permutations(matrices: Sequence[Matrix], is_stack: bool) -> torch.Tensor | None:
    """None where every matrix has its K in order."""
    if all(matrix.input_permutation is None for matrix in matrices):
        return None
    in_order = torch.arange(matrices[0].k, device=matrices[0].scales.device)
    given = [in_order if matrix.input_permutation is None else matrix.input_permutation for matrix in matrices]
    return torch.stack(given) if is_stack else given[0]
