"""Scales as they are stored: times what conversion leaves, folded, or as words that weights are multiplied by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..utils.math import _FP32_MANTISSA_BITS, _UE8M0_NAN, ceil_div
from . import codes as code
from .conversion_scales import FACTOR, to_bytes, to_words
from .exponents import fold
from .groups import Groups
from .matrix import Matrix
from .near_scales import are_even, are_near
from .packings import K_BLOCK, Packing

_SMALLEST_EXPONENT_BITS = 0x00400000  # 2^-127, a subnormal number
_FLOAT_SCALES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)


def all_scales(matrices: Sequence[Matrix], groups: Groups, factor: float) -> torch.Tensor:
    return torch.stack([_stored_scales(matrix, groups, factor) for matrix in matrices])


def _stored_scales(matrix: Matrix, groups: Groups, factor: float) -> torch.Tensor:
    if matrix.second_scales is None:
        return groups.stored(_times(groups.checked("scales", matrix.scales), factor))
    whole = Groups(groups.n, groups.k, None, None)
    second = matrix.second_scales.expand(groups.n) if matrix.second_scales.numel() == 1 else matrix.second_scales
    return whole.stored(_times(whole.checked("second_scales", second), factor))


def _times(scales: torch.Tensor, factor: float) -> torch.Tensor:
    """Scales as kernels read them, from which the given ones can be told exactly."""
    given = exact_scales(scales)
    stored = given * factor
    if not bool(((stored / factor == given) & stored.isfinite()).all()):
        raise ValueError(
            f"scales must be finite, and small and large enough for FP32 to hold them exactly times {factor:g}"
        )
    return stored


def folded_scales(codes: torch.Tensor, matrices: Sequence[Matrix], groups: Groups) -> torch.Tensor | None:
    """None where exponents of one of the matrices cannot be multiplied in: then those of none are."""
    folded = []
    for matrix, own_codes in zip(matrices, codes, strict=True):
        scales = groups.stored(exact_scales(groups.checked("scales", matrix.scales)))
        found = fold(scales, code.used_groups(own_codes))
        if found is None:
            return None
        folded.append(found)
    return torch.stack(folded)


def conversion_scales(
    matrices: Sequence[Matrix], groups: Groups, packing: Packing
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Words of scales that are multiplied into weights, and second scales; None where scales are not of that kind."""
    if groups.kept is None or groups.kept > packing.converted_group:
        return None
    words, seconds = [], []
    for matrix in matrices:
        scales = exact_scales(groups.checked("scales", matrix.scales))
        found = to_bytes(scales)
        if found is None:  # unless scales of zeros alone are far from the others
            found = to_bytes(scales.masked_fill(~_in_use(matrix, groups), 0))
        if found is None:
            return None
        fields, factors = found
        given = matrix.second_scales
        second = torch.ones((), device=scales.device) if given is None else given.float()
        if second.numel() != 1 and second.shape != (groups.n,):
            raise ValueError(f"second_scales must be one, or [N] = [{groups.n}], got {[*second.shape]}")
        exact = second.double().flatten() * factors * FACTOR
        if not bool(((exact.float().double() == exact) & exact.float().isfinite()).all()):
            raise ValueError("scales times second_scales must be finite, and small and large enough for FP32")
        words.append(to_words(groups.stored(fields)))
        seconds.append(torch.nn.functional.pad(exact.float(), (0, code.padded_shape(groups.n, groups.k)[0] - groups.n)))
    return torch.stack(words), torch.stack(seconds)


def _in_use(matrix: Matrix, groups: Groups) -> torch.Tensor:
    """Which groups of codes of E2M1, `[N, groups]`, are not all zeros."""
    parts = [
        groups.in_groups(matrix.read(first, last) & 7 != 0).any(-1)
        for first, last in code.row_chunks(matrix.n, matrix.k)
    ]
    return torch.cat(parts)


def without_scale(matrix: Matrix, groups: Groups) -> Matrix:
    """The same, with codes of 0 where scales are 0."""
    zero = exact_scales(groups.checked("scales", matrix.scales)) == 0
    if not bool(zero.any()):
        return matrix

    def read(first: int, last: int) -> torch.Tensor:
        return matrix.read(first, last).masked_fill(groups.along_k(zero[first:last]), 0)

    return replace(matrix, read=read, read_pairs=None)


def have_near_scales(matrices: Sequence[Matrix], groups: Groups) -> bool:
    """Whether there are some for groups of K, near each other (near_scales.py)."""
    if groups.kept is None:
        return False
    return all(are_near(exact_scales(groups.checked("scales", matrix.scales))) for matrix in matrices)


def have_even_scales(scales: torch.Tensor, groups: Groups, folded: bool) -> bool:
    """Of stored ones, of groups of 128: whether those of each row are one for all of K (near_scales.py)."""
    return (folded or groups.kept == K_BLOCK) and are_even(scales[:, : ceil_div(groups.k, K_BLOCK)], folded)


def exact_scales(scales: torch.Tensor) -> torch.Tensor:
    """Scales of any type that holds them, in FP32."""
    if scales.dtype == torch.uint8 or str(scales.dtype) == "torch.float8_e8m0fnu":
        exponents = scales.contiguous().view(torch.uint8).to(torch.int32)
        if bool((exponents == _UE8M0_NAN).any()):
            raise ValueError(f"scales must be finite, got the exponent {_UE8M0_NAN}, which is NaN in UE8M0")
        bits = (exponents << _FP32_MANTISSA_BITS).masked_fill(exponents == 0, _SMALLEST_EXPONENT_BITS)
        return bits.view(torch.float32)
    if scales.dtype not in _FLOAT_SCALES:
        raise TypeError(
            f"scales must be float32, bfloat16, float16, float8_e4m3fn, float8_e8m0fnu or uint8, got {scales.dtype}"
        )
    exact = scales.float()
    if not bool(exact.isfinite().all()):
        raise ValueError("scales must be finite, got NaN or an infinite one")
    return exact
