"""Packing: from values and scales to `PackedWeights`, a part of one matrix at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from .._extension import C
from .._numbers import integer
from ..utils.math import _FP32_MANTISSA_BITS, _unpack_codes, align, ceil_div
from ..utils.quantize import unpack_int4
from . import codes as code
from .conversion_scales import FACTOR, to_bytes, to_words
from .exponents import fold
from .formats import ELEMENT_NUMBERS, K_BLOCK, SMALLEST_GROUP, Packing, packing_of
from .packed import PackedWeights
from .words import to_words as to_code_words
from .zeros import Steps

Tensors = torch.Tensor | Sequence[torch.Tensor]

_OUT_OF_RANGE, _MINUS_EIGHT = 1, 2  # bits of what packing finds, as csrc/api/pack_weights.hpp has them
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
    second_scales: torch.Tensor | None = None  # of which `scales` are factors: [N], or one
    scaled_zeros: torch.Tensor | None = None  # [N, groups], in the place of zeros: times integer scales, modulo 256
    # The same codes where they lie two a byte, the first one in the low nibble: rows -> int8 or uint8 [rows, K / 2].
    read_pairs: Callable[[int, int], torch.Tensor] | None = None


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

    A weight is `scale * (q - zero)`, or `second_scale * (scale * (q - zero))` with integer scales. Nothing is rounded:
    `dequantize()` of the result gives these values back. At most a few thousand rows lie unpacked beside the input and
    the result.

    Args:
        values: the q: int8 `[N, K]` or `[G, N, K]`, -8..7 for 'int4', 0..15 for 'uint4' and codes 0..15 for 'e2m1'
            (both also uint8), or float8_e4m3fn for 'e4m3'; or a sequence of `[N, K]`, one for each expert. Any N and K.
        scales: `[N, K / group_size]`, or `[N]` where `group_size` is None; with G in front, or a sequence, as `values`.
            FP32, BF16, FP16 or E4M3, or UE8M0 (`float8_e8m0fnu`, or uint8 exponents); int8 with `second_scales` beside
            'int8' activations.
        zeros: int32, int8 or uint8, shaped as `scales`; 'uint4' needs them. Between -128 and 255, and such that
            q - zero is within -16..16 for 'fp8', -240..240 for 'bf16', and, times an integer scale, within -128..127
            for 'int8'.
        element: 'int4', 'uint4', 'e2m1' or 'e4m3'.
        activations: 'int8', 'int4', 'fp8' or 'bf16' (BF16 or FP16): what kind of activations will be multiplied.
        group_size: the K that shares a scale: 32, 64, or a larger multiple of 32, that divides K; 16 of 'e2m1' with
            'bf16' (NVFP4); of 'e4m3' a multiple of 128 need not divide K. None: all of K.
        second_scales: of all of K: `[N]` (`[G, N]`, or a sequence) or a number, of the types that scales have. For
            'int8' activations, where `scales` are then integers (QoQ's), which kernels multiply codes by, exactly; and
            for 'e2m1' with 'bf16' activations in groups of 16 or 32 (NVFP4's global scale).
        packed: `values` holds two values a byte, int8 or uint8 `[..., N, K / 2]`, the first one in the low nibble
            (`pack_int4`), and is read without being unpacked as a whole.

    Raises:
        ValueError, TypeError: an argument cannot be right, or a value or scale is not one that can be packed.
        NotImplementedError: weights of this element are not served for these activations yet.
    """
    packing_of(element, activations)
    if element in ("e2m1", "e4m3") and zeros is not None:
        raise ValueError(f"weights of {element!r} have no zeros")
    if element == "e4m3" and packed:
        raise ValueError("values of 'e4m3' are a byte each: packed must be False")
    if element == "uint4" and zeros is None:
        raise ValueError("weights of 'uint4' need zeros: the value is scale * (q - zero)")
    is_stack = _is_stack(values)
    all_values = _experts("values", values, is_stack)
    all_scales = _experts("scales", scales, is_stack, len(all_values))
    count = len(all_values)
    all_zeros = [None] * count if zeros is None else _experts("zeros", zeros, is_stack, count)
    all_seconds = _second_scales(second_scales, all_values[0].device, is_stack, count)
    parts = zip(all_values, all_scales, all_zeros, all_seconds, strict=True)
    return pack_matrices(
        [_matrix(*part, element, packed) for part in parts],
        is_stack=is_stack,
        element=element,
        activations=activations,
        group_size=group_size,
    )


def pack_matrices(
    matrices: Sequence[Matrix], *, is_stack: bool, element: str, activations: str, group_size: int | None
) -> PackedWeights:
    """`pack_weights` of matrices in any form."""
    packing = packing_of(element, activations)
    has_second = matrices[0].second_scales is not None
    if has_second and not packing.two_levels and packing.converted_group == 0:
        raise NotImplementedError(
            f"second_scales are not served for weights of {element} and {activations!r} activations: they are for int4 "
            "and uint4 beside 'int8' ones, and for e2m1 beside 'bf16' ones"
        )
    n, k, device = matrices[0].n, matrices[0].k, matrices[0].scales.device
    group_size = _checked_group(group_size, k, packing)
    for matrix in matrices:
        if (matrix.n, matrix.k) != (n, k):
            raise ValueError(f"matrices of one stack must have one size, but are {[n, k]} and {[matrix.n, matrix.k]}")
    groups = _Groups(n, k, group_size, packing.scale_group(group_size))
    words = _conversion_scales(matrices, groups, packing)
    wants_words = has_second and not packing.two_levels
    if words is None and (wants_words or groups.kept == packing.smallest_group < SMALLEST_GROUP):
        raise ValueError(
            "second_scales and groups of 16 want scales that weights are multiplied by exactly: at least 0, of three "
            "bits of mantissa (E4M3, or powers of two), and those of a row no further apart than 2^24"
        )
    if words is not None:
        matrices = [_without_scale(matrix, groups) for matrix in matrices]
    rows, columns = code.padded_shape(n, k)
    blocks = (len(matrices), rows // code.BLOCK_ROWS, columns // K_BLOCK, packing.block_bytes)
    codes = torch.empty(blocks, dtype=torch.uint8, device=device)
    steps = None if packing.converted_group > 0 else _steps(matrices, groups, packing)
    factor, zeros = packing.factor(steps is not None), None
    if steps is None:
        holds_minus_eight = _write_codes(codes, matrices, packing, element, packing.orders)
    else:
        holds_minus_eight = False
        _write_codes(codes, matrices, packing, element, packing.orders[-1:])
        if packing.places is None:
            codes.bitwise_xor_(code.UNSIGNED)
        zero_words = [
            _words(matrix, step, groups.extreme_codes(matrix, packing), activations)
            for matrix, step in zip(matrices, steps, strict=True)
        ]
        zeros = torch.stack(list(map(groups.stored, zero_words)))
    folded = _folded_scales(codes, matrices, groups) if packing.folds_exponents else None
    if folded is not None:
        _rewrite(codes, columns, code.to_lookup)
    scales = words[0] if words is not None else folded
    made = PackedWeights(
        codes=codes,
        scales=_all_scales(matrices, groups, factor) if scales is None else scales,
        second_scales=None if words is None else words[1],
        zeros=zeros,
        input_permutation=_stored_permutations(matrices, is_stack),
        shape=(len(matrices), n, k) if is_stack else (n, k),
        element=element,
        group_size=group_size,
        activations=activations,
        holds_minus_eight=holds_minus_eight,
        two_levels=has_second and packing.two_levels,
        folds_exponents=folded is not None,
    )
    return made.with_sums() if packing.integer_activations else made


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

    def extreme_codes(self, matrix: Matrix, packing: Packing) -> tuple[torch.Tensor, torch.Tensor]:
        """The smallest and the largest unsigned code of each row and group."""
        parts = []
        for first, last in code.row_chunks(self.n, self.k):
            codes = (matrix.read(first, last).to(torch.int8) - packing.smallest).reshape(last - first, -1, self.size)
            parts.append(torch.stack(torch.aminmax(codes, dim=2)))
        smallest, largest = torch.cat(parts, 1)
        return smallest, largest

    @property
    def size(self) -> int:
        return self.k if self.given is None else self.given

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


def _second_scales(
    second_scales: Tensors | float | None, device: torch.device, is_stack: bool, count: int
) -> Sequence[torch.Tensor | None]:
    """One or [N] of each matrix."""
    if second_scales is None:
        return [None] * count
    if isinstance(second_scales, (int, float)):
        second_scales = torch.tensor(float(second_scales), device=device)
    if isinstance(second_scales, torch.Tensor) and second_scales.numel() == 1:
        return [second_scales.reshape(1)] * count
    return _experts("second_scales", second_scales, is_stack, count)


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
    values: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    second_scales: torch.Tensor | None,
    element: str,
    packed: bool,
) -> Matrix:
    if values.dim() != 2 or values.numel() == 0:
        raise ValueError(f"values of a matrix must be [N, K], neither of them 0, but the shape is {[*values.shape]}")
    if element == "e4m3":
        if values.dtype != torch.float8_e4m3fn:
            raise TypeError(f"values of 'e4m3' must be torch.float8_e4m3fn, but are {values.dtype}")
    elif values.dtype != torch.int8 and not (values.dtype == torch.uint8 and (packed or element != "int4")):
        raise TypeError(f"values of {element!r} must be torch.int8, but are {values.dtype}")
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
    matrices: Sequence[Matrix], groups: _Groups, packing: Packing
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


def _write_codes(
    codes: torch.Tensor, matrices: Sequence[Matrix], packing: Packing, element: str, orders: Sequence[str]
) -> bool:
    """Fills `codes`. Returns whether they hold -8 and lie in two's complement for it."""
    write = _write_with_kernel if codes.is_cuda and packing.places is None else _write_with_torch
    for order in orders:
        found = write(codes, matrices, packing, order)
        if found & _OUT_OF_RANGE:
            smallest, largest = _extremes(matrices)
            wrong = smallest if smallest < packing.smallest else largest
            raise ValueError(
                f"values of {element!r} must lie within {packing.smallest}..{packing.largest}, but one is {wrong}"
            )
        if not found & _MINUS_EIGHT:
            return order != orders[0]
    raise AssertionError("the last order holds all codes")


def _write_with_kernel(codes: torch.Tensor, matrices: Sequence[Matrix], packing: Packing, order: str) -> int:
    """Fills `codes`. Returns what was found: `_OUT_OF_RANGE`, or `_MINUS_EIGHT` where the order has none."""
    found = torch.zeros(1, dtype=torch.int32, device=codes.device)
    for expert, matrix in enumerate(matrices):
        pairs = matrix.read_pairs is not None
        read = matrix.read_pairs or matrix.read
        for first, last in code.row_chunks(matrix.n, matrix.k):
            values = read(first, last)
            values = values if values.stride(-1) == 1 else values.contiguous()
            C.pack_codes(
                values.unsqueeze(0),
                codes[expert : expert + 1, _blocks(first, last)],
                found,
                ELEMENT_NUMBERS[order],
                packing.smallest,
                packing.offset != 0,
                pairs,
            )
    return int(found)


def _write_with_torch(codes: torch.Tensor, matrices: Sequence[Matrix], packing: Packing, order: str) -> int:
    """The same of CPU tensors, or else what keeps them from being packed so."""
    columns = codes.shape[2] * K_BLOCK
    for expert, matrix in enumerate(matrices):
        for first, last in code.row_chunks(matrix.n, matrix.k):
            values = matrix.read(first, last)
            if order == "e4m3p":
                values = values.view(torch.uint8)
                if bool((values & 0x7F == 0x7F).any()):
                    raise ValueError("values of 'e4m3' must not be NaN")
            smallest, largest = (int(extreme) for extreme in torch.aminmax(values))
            if smallest < packing.smallest or largest > packing.largest:
                return _OUT_OF_RANGE
            if order == "s4m" and smallest - packing.offset == -8:
                return _MINUS_EIGHT
            values = values.to(torch.int8) - packing.offset
            padding = (0, columns - matrix.k, 0, align(last - first, code.PADDED_ROWS) - (last - first))
            codes[expert, _blocks(first, last)] = _ordered(torch.nn.functional.pad(values, padding), packing, order)
    return 0


def _ordered(values: torch.Tensor, packing: Packing, order: str) -> torch.Tensor:
    """Blocks of values less the packing's offset."""
    if packing.places is not None:
        return to_code_words((values + packing.added).view(torch.uint8), packing.places)
    blocks = code.to_blocks(values)
    return code.to_sign_magnitude(blocks) if order == "s4m" else blocks


def _blocks(first: int, last: int) -> slice:
    """Those of a chunk of rows."""
    return slice(first // code.BLOCK_ROWS, align(last, code.PADDED_ROWS) // code.BLOCK_ROWS)


def _extremes(matrices: Sequence[Matrix]) -> tuple[int, int]:
    found = [
        torch.stack(torch.aminmax(matrix.read(first, last))).tolist()
        for matrix in matrices
        for first, last in code.row_chunks(matrix.n, matrix.k)
    ]
    return min(smallest for smallest, _ in found), max(largest for _, largest in found)


def _rewrite(codes: torch.Tensor, columns: int, order: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Bring codes that lie as two's complement does into another order, a part at a time."""
    for expert in codes:
        for first, last in code.row_chunks(expert.shape[0] * code.BLOCK_ROWS, columns):
            blocks = expert[first // code.BLOCK_ROWS : last // code.BLOCK_ROWS]
            blocks.copy_(order(blocks))


def _all_scales(matrices: Sequence[Matrix], groups: _Groups, factor: float) -> torch.Tensor:
    return torch.stack([_stored_scales(matrix, groups, factor) for matrix in matrices])


def _folded_scales(codes: torch.Tensor, matrices: Sequence[Matrix], groups: _Groups) -> torch.Tensor | None:
    """None where exponents of one of the matrices cannot be multiplied in: then those of none are."""
    folded = []
    for matrix, own_codes in zip(matrices, codes, strict=True):
        scales = groups.stored(exact_scales(groups.checked("scales", matrix.scales)))
        found = fold(scales, code.used_groups(own_codes))
        if found is None:
            return None
        folded.append(found)
    return torch.stack(folded)


def _times(scales: torch.Tensor, factor: float) -> torch.Tensor:
    """Scales as kernels read them, from which the given ones can be told exactly."""
    given = exact_scales(scales)
    stored = given * factor
    if not bool(((stored / factor == given) & stored.isfinite()).all()):
        raise ValueError(
            f"scales must be finite, and small and large enough for FP32 to hold them exactly times {factor:g}"
        )
    return stored


def _stored_scales(matrix: Matrix, groups: _Groups, factor: float) -> torch.Tensor:
    if matrix.second_scales is None:
        return groups.stored(_times(groups.checked("scales", matrix.scales), factor))
    whole = _Groups(groups.n, groups.k, None, None)
    second = matrix.second_scales.expand(groups.n) if matrix.second_scales.numel() == 1 else matrix.second_scales
    return whole.stored(_times(whole.checked("second_scales", second), factor))


def _steps(matrices: Sequence[Matrix], groups: _Groups, packing: Packing) -> list[Steps] | None:
    """What kernels do to unsigned codes; None where that is what they do to signed ones."""
    found = [_steps_of(matrix, groups, packing) for matrix in matrices]
    middle = packing.offset - packing.smallest
    if matrices[0].second_scales is None and all(bool((steps.offsets == middle).all()) for steps in found):
        return None
    return found


def _steps_of(matrix: Matrix, groups: _Groups, packing: Packing) -> Steps:
    given = groups.checked("scales", matrix.scales)
    if matrix.second_scales is not None and given.dtype != torch.int8:
        raise TypeError(f"scales must be torch.int8 where there are second_scales, but are {given.dtype}")
    factors = torch.ones_like(given, dtype=torch.int32) if matrix.second_scales is None else given.to(torch.int32)
    if matrix.scaled_zeros is not None:
        return Steps(factors, groups.checked("scaled zeros", matrix.scaled_zeros).to(torch.int32))
    if matrix.zeros is None:
        return Steps(factors, -packing.smallest * factors)
    if matrix.zeros.dtype not in (torch.int32, torch.int8, torch.uint8):
        raise TypeError(f"zeros must be torch.int32, torch.int8 or torch.uint8, but are {matrix.zeros.dtype}")
    zeros = groups.checked("zeros", matrix.zeros).to(torch.int32)
    if bool(((zeros < _SMALLEST_ZERO) | (zeros > _LARGEST_ZERO)).any()):
        raise ValueError(f"zeros must lie within {_SMALLEST_ZERO}..{_LARGEST_ZERO}")
    return Steps(factors, factors * (zeros - packing.smallest))


def _words(
    matrix: Matrix, steps: Steps, extreme_codes: tuple[torch.Tensor, torch.Tensor], activations: str
) -> torch.Tensor:
    if matrix.scaled_zeros is not None:
        steps = steps.unwrapped(extreme_codes[0])
    steps.check(*extreme_codes, activations)
    return steps.words(activations)


def _stored_permutations(matrices: Sequence[Matrix], is_stack: bool) -> torch.Tensor | None:
    """None where every matrix has its K in order."""
    if all(matrix.input_permutation is None for matrix in matrices):
        return None
    in_order = torch.arange(matrices[0].k, device=matrices[0].scales.device)
    given = [in_order if matrix.input_permutation is None else matrix.input_permutation for matrix in matrices]
    return torch.stack(given) if is_stack else given[0]
