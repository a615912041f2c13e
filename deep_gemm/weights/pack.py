"""Packing: from values and scales to `PackedWeights`, a part of one matrix at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import codes as code
from .gate_rows import checked_rows, in_gate_order
from .groups import Groups, checked_group
from .matrix import (
    Matrix,
    Tensors,
    experts_of,
    is_stack_of,
    matrix_of,
    second_scales_of,
    stored_permutations,
)
from .packed import PackedWeights
from .packings import FOLDED, K_BLOCK, ROWS, SMALLEST_GROUP, TWO_LEVELS, Packing, packing_of
from .rows import are_multiplied_on, pack_rows
from .stored_scales import (
    all_scales,
    conversion_scales,
    folded_scales,
    have_even_scales,
    have_near_scales,
    without_scale,
)
from .write_codes import write_codes
from .zeros import steps_of_matrices, stored_words


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
    gate_up: str | None = None,
) -> PackedWeights:
    """Pack weights of few bits, once, for products with one kind of activations.

    A weight is `scale * (q - zero)`, or `second_scale * (scale * (q - zero))` with integer scales. Nothing is rounded:
    `dequantize()` of the result gives these values back. At most a few thousand rows lie unpacked beside the input and
    the result.

    They lie as kernels of the device read them where `values` are (of CPU tensors, those of the simulator's target):
    weights of 'e2m1' for 'fp8' activations on Blackwell (SM100) in other ways than elsewhere, and products of the one
    refuse what was packed for the other.

    Args:
        values: the q: int8 `[N, K]` or `[G, N, K]`, -8..7 for 'int4', 0..15 for 'uint4' and codes 0..15 for 'e2m1'
            (both also uint8), any for 'int8'; uint8 for 'uint8', float8_e4m3fn for 'e4m3'; or a sequence of `[N, K]`,
            one for each expert. Any N and K.
        scales: `[N, ceil(K / group_size)]`, or `[N]` where `group_size` is None; with G in front, or a sequence, as
            `values`. Finite: FP32, BF16, FP16 or E4M3, or UE8M0 (`float8_e8m0fnu`, or uint8 exponents); int8 with
            `second_scales` beside 'int8' activations. Powers of two of 'e2m1' for 'fp8' on Blackwell.
        zeros: int32, int8 or uint8, shaped as `scales`; 'uint4' and 'uint8' need them. Of 8 bits, values that q may
            have; of 4 bits between -128 and 255, and such that q - zero is within -16..16 for 'fp8', -240..240 for
            'bf16', and, times an integer scale, within -128..127 for 'int8'.
        element: 'int4', 'uint4', 'e2m1', and for 'bf16' activations 'int8', 'uint8' or 'e4m3'.
        activations: 'int8', 'int4', 'fp8' or 'bf16' (BF16 or FP16): what kind of activations will be multiplied.
        group_size: the K that shares a scale: 32, 64, or a larger multiple of 32; 16 of 'e2m1' with 'bf16' (NVFP4).
            K's last group may be a part of one: there are `ceil(K / group_size)`. None: all of K.
        second_scales: of all of K: `[N]` (`[G, N]`, or a sequence) or a number, of the types that scales have. For
            'int8' activations, where `scales` are then integers (QoQ's), which kernels multiply codes by, exactly; and
            for 'e2m1' with 'bf16' activations in groups of 16 or 32 (NVFP4's global scale).
        packed: `values` holds two values a byte, int8 or uint8 `[..., N, K / 2]`, the first one in the low nibble
            (`pack_int4`), and is read without being unpacked as a whole.
        gate_up: None; or for products with a gated activation (`deep_gemm.epilogue`), which take no others: how gates
            and ups lie among the rows of the weights, 'halves' or 'interleaved', as the activation's `layout`. N is a
            multiple of 16 then.

    Raises:
        ValueError, TypeError: an argument cannot be right, or a value or scale is not one that can be packed.
        NotImplementedError: weights of this element are not served for these activations yet.
    """
    packing_of(element, activations)
    if element in ("e2m1", "e4m3") and zeros is not None:
        raise ValueError(f"weights of {element!r} have no zeros")
    if element in ("e4m3", "int8", "uint8") and packed:
        raise ValueError(f"values of {element!r} are a byte each: packed must be False")
    if element in ("uint4", "uint8") and zeros is None:
        raise ValueError(f"weights of {element!r} need zeros: the value is scale * (q - zero)")
    is_stack = is_stack_of(values)
    all_values = experts_of("values", values, is_stack)
    all_scales = experts_of("scales", scales, is_stack, len(all_values))
    count = len(all_values)
    all_zeros = [None] * count if zeros is None else experts_of("zeros", zeros, is_stack, count)
    all_seconds = second_scales_of(second_scales, all_values[0].device, is_stack, count)
    parts = zip(all_values, all_scales, all_zeros, all_seconds, strict=True)
    return pack_matrices(
        [matrix_of(*part, element, packed) for part in parts],
        is_stack=is_stack,
        element=element,
        activations=activations,
        group_size=group_size,
        gate_up=gate_up,
    )


def pack_matrices(
    matrices: Sequence[Matrix],
    *,
    is_stack: bool,
    element: str,
    activations: str,
    group_size: int | None,
    gate_up: str | None = None,
) -> PackedWeights:
    """`pack_weights` of matrices in any form."""
    packing = packing_of(element, activations)
    n, k = matrices[0].n, matrices[0].k
    has_second = matrices[0].second_scales is not None
    if has_second and not packing.two_levels and packing.converted_group == 0:
        raise NotImplementedError(
            f"second_scales are not served for weights of {element} and {activations!r} activations: they are for int4 "
            "and uint4 beside 'int8' ones, and for e2m1 beside 'bf16' ones"
        )
    group_size = checked_group(group_size, packing)
    for matrix in matrices:
        if (matrix.n, matrix.k) != (n, k):
            raise ValueError(f"matrices of one stack must have one size, got {[n, k]} and {[matrix.n, matrix.k]}")
    checked_rows(gate_up, n)
    if gate_up is not None:
        matrices = [in_gate_order(matrix, gate_up) for matrix in matrices]
    if packing.in_rows and are_multiplied_on(matrices[0].scales):
        rows, words_of_rows = pack_rows(matrices, packing, element, group_size)
        return PackedWeights(
            codes=rows,
            scales=words_of_rows,
            zeros=None,
            input_permutation=stored_permutations(matrices, is_stack),
            shape=(len(matrices), n, k) if is_stack else (n, k),
            element=element,
            group_size=group_size,
            activations=activations,
            order=ROWS,
            gate_up=gate_up,
        )
    groups = Groups(n, k, group_size, packing.scale_group(group_size))
    words = conversion_scales(matrices, groups, packing)
    wants_words = has_second and not packing.two_levels
    if words is None and (wants_words or groups.kept == packing.smallest_group < SMALLEST_GROUP):
        raise ValueError(
            "second_scales and groups of 16 want scales that weights are multiplied by exactly: at least 0, of three "
            "bits of mantissa (E4M3, or powers of two), and those of a row no further apart than 2^24"
        )
    if words is not None:
        matrices = [without_scale(matrix, groups) for matrix in matrices]
    codes = _empty_blocks(matrices, packing)
    steps = None if packing.converted_group > 0 else steps_of_matrices(matrices, groups, packing)
    order = write_codes(codes, matrices, packing, element, packing.orders if steps is None else (packing.zeros_order,))
    folded = folded_scales(codes, matrices, groups) if packing.folds_exponents else None
    if folded is not None:
        order = write_codes(codes, matrices, packing, element, (FOLDED,))
    scales = folded if words is None else words[0]
    near = activations == "bf16" and scales is None and have_near_scales(matrices, groups)
    if scales is None:
        scales = all_scales(matrices, groups, packing.factor(order))
    if activations == "fp8":
        near = have_even_scales(scales, groups, order == FOLDED)
    made = PackedWeights(
        codes=codes,
        scales=scales,
        second_scales=None if words is None else words[1],
        zeros=None if steps is None else stored_words(steps, matrices, groups, packing, activations),
        input_permutation=stored_permutations(matrices, is_stack),
        shape=(len(matrices), n, k) if is_stack else (n, k),
        element=element,
        group_size=group_size,
        activations=activations,
        order=TWO_LEVELS if has_second and packing.two_levels else order,
        gate_up=gate_up,
        near_scales=near,
    )
    return made.with_sums() if packing.integer_activations else made


def _empty_blocks(matrices: Sequence[Matrix], packing: Packing) -> torch.Tensor:
    rows, columns = code.padded_shape(matrices[0].n, matrices[0].k)
    blocks = (len(matrices), rows // code.BLOCK_ROWS, columns // K_BLOCK, packing.block_bytes)
    return torch.empty(blocks, dtype=torch.uint8, device=matrices[0].scales.device)
