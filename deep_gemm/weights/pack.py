"""Packing: from values and scales to `PackedWeights`, a part of one matrix at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from .._numbers import integer
from ..utils.math import _FP32_MANTISSA_BITS, _unpack_codes, align, ceil_div
from ..utils.quantize import unpack_int4
from . import codes as code
from .conversion_scales import FACTOR, to_bytes, to_words
from .formats import K_BLOCK, SMALLEST_GROUP, Packing, packing_of
from .packed import PackedWeights
from .words import to_words as to_code_words

Tensors = torch.Tensor | Sequence[torch.Tensor]

_MINUS_EIGHT = -8
_SMALLEST_ZERO, _LARGEST_ZERO = -128, 255
_SMALLEST_EXPONENT_BITS = 0x00400000  # 2^-127, a subnormal number
_FLOAT_SCALES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)


@dataclass(frozen=True)
class Matrix:
    """One matrix to be packed: its values are read some rows at a time, in whatever form they lie."""

    n: int
    k: int
    read: Callable[[int, int], torch.Tensor]  # first and last row (exclusive) -> int8 or uint8 [rows, K]
    scales: torch.Tensor  # [N, groups]
    zeros: torch.Tensor | None = None  # likewise
    input_permutation: torch.Tensor | None = None  # [K]


def pack_weights(
    values: Tensors,
    scales: Tensors,
    zeros: Tensors | None = None,
    *,
    element: str,
    activations: str,
    group_size: int | None = None,
    second_scales: Tensors | float | None = None,
    packed: bool = False,
) -> PackedWeights:
    """Pack weights of few bits, once, for products with one kind of activations.

    A weight is `scale * (q - zero)`. Nothing is rounded: `dequantize()` of the result gives these values back. At most
    a few thousand rows lie unpacked beside the input and the result.

    Args:
        values: the q: int8 `[N, K]` or `[G, N, K]`, -8..7 for 'int4', 0..15 for 'uint4' and codes 0..15 for 'e2m1'
            (both also uint8), or float8_e4m3fn for 'e4m3'; or a sequence of `[N, K]`, one for each expert. Any N and K.
        scales: `[N, K / group_size]`, or `[N]` where `group_size` is None; with G in front, or a sequence, as `values`.
            FP32, BF16, FP16 or E4M3, or UE8M0 (`float8_e8m0fnu`, or uint8 exponents).
        zeros: int32, int8 or uint8, shaped as `scales`; 'uint4' needs them. Between -128 and 255.
        element: 'int4', 'uint4', 'e2m1' or 'e4m3'.
        activations: 'int8', 'fp8' or 'bf16' (BF16 or FP16): what kind of activations will be multiplied.
        group_size: the K that shares a scale: 32, 64, or a larger multiple of 32, that divides K; 16 of 'e2m1' with
            'bf16' (NVFP4); of 'e4m3' a multiple of 128 need not divide K. None: all of K.
        second_scales: FP32, multiplies all scales of a matrix, or those of a row: a number, one element, or `[N]`; with
            G in front, or a sequence, as `values`. For 'e2m1' with 'bf16' activations in groups of 16 or 32 (NVFP4's
            global scale).
        packed: `values` holds two values a byte, int8 or uint8 `[..., N, K / 2]`, the first one in the low nibble
            (`pack_int4`), and is read without being unpacked as a whole.

    Raises:
        ValueError, TypeError: an argument cannot be right, or a value or scale is not one that can be packed.
        NotImplementedError: weights of this element are not served for these activations yet.
    """
    packing = packing_of(element, activations)
    if second_scales is not None and packing.converted_group == 0:
        raise NotImplementedError(f"second_scales are not served yet for weights of {element} with {activations}")
    if element in ("e2m1", "e4m3") and zeros is not None:
        raise ValueError(f"weights of {element!r} have no zeros")
    if element == "e4m3" and packed:
        raise ValueError("values of 'e4m3' are a byte each: packed must be False")
    if element == "uint4" and zeros is None:
        raise ValueError("weights of 'uint4' need zeros: the value is scale * (q - zero)")
    is_stack = _is_stack(values)
    all_values = _experts("values", values, is_stack)
    all_scales = _experts("scales", scales, is_stack, len(all_values))
    all_zeros = [None] * len(all_values) if zeros is None else _experts("zeros", zeros, is_stack, len(all_values))
    return pack_matrices(
        [_matrix(*parts, element, packed) for parts in zip(all_values, all_scales, all_zeros, strict=True)],
        is_stack=is_stack,
        element=element,
        activations=activations,
        group_size=group_size,
        second_scales=_second_scales(second_scales, is_stack, len(all_values)),
    )


def pack_matrices(
    matrices: Sequence[Matrix],
    *,
    is_stack: bool,
    element: str,
    activations: str,
    group_size: int | None,
    second_scales: Sequence[torch.Tensor] | None = None,
) -> PackedWeights:
    """`pack_weights` of matrices in any form, with second scales of one element or `[N]` for each."""
    packing = packing_of(element, activations)
    n, k, device = matrices[0].n, matrices[0].k, matrices[0].scales.device
    group_size = _checked_group(group_size, k, packing)
    for matrix in matrices:
        if (matrix.n, matrix.k) != (n, k):
            raise ValueError(f"matrices of one stack must have one size, but are {[n, k]} and {[matrix.n, matrix.k]}")
    groups = _Groups(n, k, group_size, packing.scale_group(group_size))
    words = _conversion_scales(matrices, groups, packing, second_scales)
    if words is None and (second_scales is not None or groups.kept == packing.smallest_group < SMALLEST_GROUP):
        raise ValueError(
            "second_scales and groups of 16 want scales that weights are multiplied by exactly: at least 0, of three "
            "bits of mantissa (E4M3, or powers of two), and those of a row no further apart than 2^24"
        )
    if words is not None:
        matrices = [_without_scale(matrix, groups) for matrix in matrices]
    rows, columns = code.padded_shape(n, k)
    blocks = (len(matrices), rows // code.BLOCK_ROWS, columns // K_BLOCK, packing.block_bytes)
    codes = torch.empty(blocks, dtype=torch.uint8, device=device)
    smallest, largest = _write_codes(codes, matrices, packing, element == "e4m3")
    if smallest < packing.smallest or largest > packing.largest:
        wrong = smallest if smallest < packing.smallest else largest
        raise ValueError(
            f"values of {element!r} must lie within {packing.smallest}..{packing.largest}, but one is {wrong}"
        )
    factor, holds_minus_eight = packing.scale_factor, False
    if packing.sign_magnitude_factor is not None:
        holds_minus_eight = smallest - packing.offset == _MINUS_EIGHT
        if not holds_minus_eight:
            factor = packing.sign_magnitude_factor
            _turn_into_sign_magnitude(codes, columns)
    return PackedWeights(
        codes=codes,
        scales=words[0]
        if words is not None
        else torch.stack(
            [groups.stored(_times(groups.checked("scales", matrix.scales), factor)) for matrix in matrices]
        ),
        second_scales=None if words is None else words[1],
        zeros=_stored_zeros(matrices, groups, packing.offset),
        input_permutation=_stored_permutations(matrices, is_stack),
        shape=(len(matrices), n, k) if is_stack else (n, k),
        element=element,
        group_size=group_size,
        activations=activations,
        holds_minus_eight=holds_minus_eight,
    )


def exact_scales(scales: torch.Tensor) -> torch.Tensor:
    """Scales of any type that holds them, in FP32; UE8M0's NaN becomes infinite."""
    if scales.dtype == torch.uint8 or str(scales.dtype) == "torch.float8_e8m0fnu":
        exponents = scales.contiguous().view(torch.uint8).to(torch.int32)
        bits = (exponents << _FP32_MANTISSA_BITS).masked_fill(exponents == 0, _SMALLEST_EXPONENT_BITS)
        return bits.view(torch.float32)
    if scales.dtype not in _FLOAT_SCALES:
        raise TypeError(
            f"scales must be float32, bfloat16, float16, float8_e4m3fn, float8_e8m0fnu or uint8, but are {scales.dtype}"
        )
    return scales.float()


@dataclass(frozen=True)
class _Groups:
    """How what is given for groups of K, `[N, groups]`, is stored: `[stored groups, padded N]`."""

    n: int
    k: int
    given: int | None  # K of a group; None: all of it
    kept: int | None  # the same of a stored one

    def checked(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """`[N, groups]`, given as that or, of one group, as `[N]`."""
        wanted = (self.n, 1 if self.given is None else ceil_div(self.k, self.given))
        if self.given is None and tensor.dim() == 1:
            tensor = tensor.unsqueeze(1)
        if tuple(tensor.shape) != wanted:
            what = (
                "one for each row, because group_size is None" if self.given is None else f"one for {self.given} of K"
            )
            raise ValueError(f"{name} must have the shape {[*wanted]} ({what}), but have {[*tensor.shape]}")
        return tensor

    def stored(self, tensor: torch.Tensor) -> torch.Tensor:
        rows, columns = code.padded_shape(self.n, self.k)
        kept = columns if self.kept is None else self.kept
        given = columns if self.given is None else self.given
        spread = tensor.repeat_interleave(given // kept, 1)
        padding = (0, columns // kept - spread.shape[1], 0, rows - self.n)
        return torch.nn.functional.pad(spread, padding).T.contiguous()


def _is_stack(values: Tensors) -> bool:
    if not isinstance(values, torch.Tensor):
        return True
    if values.dim() not in (2, 3):
        raise ValueError(f"values must be [N, K] or [G, N, K], but the shape is {[*values.shape]}")
    return values.dim() == 3


def _experts(name: str, tensors: Tensors, is_stack: bool, count: int | None = None) -> list[torch.Tensor]:
    """A tensor for each matrix."""
    experts = [tensors] if isinstance(tensors, torch.Tensor) and not is_stack else list(tensors)
    if not experts or (count is not None and len(experts) != count):
        wanted = "at least one" if count is None else str(count)
        raise ValueError(f"{name} must be those of {wanted} matrices, but are of {len(experts)}")
    for expert in experts:
        if not isinstance(expert, torch.Tensor):
            raise TypeError(f"{name} must be a tensor or a sequence of tensors, but hold {type(expert).__name__}")
    return experts


def _matrix(
    values: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, element: str, packed: bool
) -> Matrix:
    if values.dim() != 2 or values.numel() == 0:
        raise ValueError(f"values of a matrix must be [N, K], neither of them 0, but the shape is {[*values.shape]}")
    if element == "e4m3":
        if values.dtype != torch.float8_e4m3fn:
            raise TypeError(f"values of 'e4m3' must be torch.float8_e4m3fn, but are {values.dtype}")
    elif values.dtype != torch.int8 and not (values.dtype == torch.uint8 and (packed or element != "int4")):
        raise TypeError(f"values of {element!r} must be torch.int8, but are {values.dtype}")
    for name, tensor in (("scales", scales), ("zeros", zeros)):
        if tensor is not None and tensor.device != values.device:
            raise ValueError(f"{name} must be on {values.device}, where the values are, but are on {tensor.device}")
    n, k = values.shape
    if not packed:
        return Matrix(n, k, lambda first, last: values[first:last], scales, zeros)
    unpack = unpack_int4 if element == "int4" else _unpack_codes
    return Matrix(n, 2 * k, lambda first, last: unpack(values[first:last]), scales, zeros)


def _checked_group(group_size: int | None, k: int, packing: Packing) -> int | None:
    if group_size is None:
        return None
    group_size = integer("group_size", group_size)
    least = packing.smallest_group
    if group_size != least and (group_size < SMALLEST_GROUP or group_size % SMALLEST_GROUP != 0):
        wanted = f"{least}, " if least != SMALLEST_GROUP else ""
        raise ValueError(f"group_size must be {wanted}a multiple of {SMALLEST_GROUP} or None, but is {group_size}")
    if k % group_size != 0 and not (packing.partial_group and group_size % K_BLOCK == 0):
        raise ValueError(f"K must be a multiple of group_size={group_size}, but is {k}")
    return group_size


def _conversion_scales(
    matrices: Sequence[Matrix], groups: _Groups, packing: Packing, second_scales: Sequence[torch.Tensor] | None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Words of scales that are multiplied into weights, and second scales; None where scales are not of that kind."""
    if groups.kept is None or groups.kept > packing.converted_group:
        return None
    words, seconds = [], []
    for i, matrix in enumerate(matrices):
        scales = exact_scales(groups.checked("scales", matrix.scales))
        found = to_bytes(scales)
        if found is None:  # unless scales of zeros alone are far from the others
            found = to_bytes(scales.masked_fill(~_in_use(matrix, groups), 0))
        if found is None:
            return None
        fields, factors = found
        second = torch.ones((), device=scales.device) if second_scales is None else second_scales[i].float()
        if second.numel() != 1 and second.shape != (groups.n,):
            raise ValueError(f"second_scales must be one, or [N] = [{groups.n}], but are {[*second.shape]}")
        exact = second.double().flatten() * factors * FACTOR
        if not bool(((exact.float().double() == exact) & exact.float().isfinite()).all()):
            raise ValueError("scales times second_scales must be finite, and small and large enough for FP32")
        words.append(to_words(groups.stored(fields)))
        seconds.append(torch.nn.functional.pad(exact.float(), (0, code.padded_shape(groups.n, groups.k)[0] - groups.n)))
    return torch.stack(words), torch.stack(seconds)


def _in_use(matrix: Matrix, groups: _Groups) -> torch.Tensor:
    """Which groups of codes of E2M1, `[N, groups]`, are not all zeros."""
    parts = [
        (matrix.read(first, last) & 7 != 0).unflatten(1, (-1, groups.given or matrix.k)).any(-1)
        for first, last in code.row_chunks(matrix.n, matrix.k)
    ]
    return torch.cat(parts)


def _without_scale(matrix: Matrix, groups: _Groups) -> Matrix:
    """The same, with codes of 0 where scales are 0."""
    zero = exact_scales(groups.checked("scales", matrix.scales)) == 0
    if not bool(zero.any()):
        return matrix

    def read(first: int, last: int) -> torch.Tensor:
        return matrix.read(first, last).masked_fill(zero[first:last].repeat_interleave(groups.given or matrix.k, 1), 0)

    return replace(matrix, read=read)


def _second_scales(given: Tensors | float | None, is_stack: bool, count: int) -> list[torch.Tensor] | None:
    """One for each matrix."""
    if given is None:
        return None
    if isinstance(given, (int, float)):
        given = torch.tensor(float(given))
    if isinstance(given, torch.Tensor) and (not is_stack or given.numel() == 1):
        return [given] * count
    return _experts("second_scales", given, is_stack, count)


def _write_codes(codes: torch.Tensor, matrices: Sequence[Matrix], packing: Packing, is_e4m3: bool) -> tuple[int, int]:
    """Fills `codes` in two's complement, and returns the smallest and the largest value that was read."""
    columns = codes.shape[2] * K_BLOCK
    extremes = []
    for expert, matrix in enumerate(matrices):
        for first, last in code.row_chunks(matrix.n, matrix.k):
            values = matrix.read(first, last)
            if is_e4m3:
                values = values.view(torch.uint8)
                if bool((values & 0x7F == 0x7F).any()):
                    raise ValueError("values of 'e4m3' must not be NaN")
            extremes.append(torch.stack(torch.aminmax(values)).to(torch.int32))
            values = values.to(torch.int8) - packing.offset
            rows = align(last - first, code.PADDED_ROWS)
            padded = torch.nn.functional.pad(values, (0, columns - matrix.k, 0, rows - (last - first)))
            blocks = slice(first // code.BLOCK_ROWS, (first + rows) // code.BLOCK_ROWS)
            codes[expert, blocks] = (
                code.to_blocks(padded)
                if packing.places is None
                else to_code_words((padded + packing.added).view(torch.uint8), packing.places)
            )
    smallest, largest = torch.stack(extremes).T
    return int(smallest.min()), int(largest.max())


def _turn_into_sign_magnitude(codes: torch.Tensor, columns: int) -> None:
    for expert in codes:
        for first, last in code.row_chunks(expert.shape[0] * code.BLOCK_ROWS, columns):
            blocks = expert[first // code.BLOCK_ROWS : last // code.BLOCK_ROWS]
            blocks.copy_(code.to_sign_magnitude(blocks))


def _times(scales: torch.Tensor, factor: float) -> torch.Tensor:
    """Scales as kernels read them, from which the given ones can be told exactly."""
    given = exact_scales(scales)
    stored = given * factor
    if not bool(((stored / factor == given) & stored.isfinite()).all()):
        raise ValueError(
            f"scales must be finite, and small and large enough for FP32 to hold them exactly times {factor:g}"
        )
    return stored


def _stored_zeros(matrices: Sequence[Matrix], groups: _Groups, offset: int) -> torch.Tensor | None:
    """None where no weight has a zero point."""
    given = [_shifted_zeros(matrix, groups, offset) for matrix in matrices]
    if not any(bool(zeros.any()) for zeros in given):
        return None
    return torch.stack([groups.stored(zeros) for zeros in given])


def _shifted_zeros(matrix: Matrix, groups: _Groups, offset: int) -> torch.Tensor:
    if matrix.zeros is None:
        return torch.full_like(matrix.scales, -offset, dtype=torch.int32)
    if matrix.zeros.dtype not in (torch.int32, torch.int8, torch.uint8):
        raise TypeError(f"zeros must be torch.int32, torch.int8 or torch.uint8, but are {matrix.zeros.dtype}")
    zeros = groups.checked("zeros", matrix.zeros).to(torch.int32)
    if bool(((zeros < _SMALLEST_ZERO) | (zeros > _LARGEST_ZERO)).any()):
        raise ValueError(f"zeros must lie within {_SMALLEST_ZERO}..{_LARGEST_ZERO}")
    return zeros - offset


def _stored_permutations(matrices: Sequence[Matrix], is_stack: bool) -> torch.Tensor | None:
    """None where every matrix has its K in order."""
    if all(matrix.input_permutation is None for matrix in matrices):
        return None
    in_order = torch.arange(matrices[0].k, device=matrices[0].scales.device)
    given = [in_order if matrix.input_permutation is None else matrix.input_permutation for matrix in matrices]
    return torch.stack(given) if is_stack else given[0]
