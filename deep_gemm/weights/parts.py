"""Parts of packed weights: slices, experts of a stack, and writing one of them where it lies."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import torch

from .._numbers import integer
from ..utils.math import align, ceil_div
from . import codes as code
from .exponents import unfold
from .packed_tensors import PackedTensors
from .packings import K_BLOCK
from .rows import row_bytes
from .unpack import sums_of
from .zeros import Steps

Weights = TypeVar("Weights", bound=PackedTensors)


def rows_of(w: Weights, start: int, stop: int) -> Weights:
    """A copy of output channels `start` to `stop` (exclusive)."""
    n = w.shape[-2]
    if w.gate_up is not None:
        raise ValueError(
            "weights packed with gate_up cannot be cut along N, where gates and ups lie side by side: cut both first, "
            "then pack"
        )
    _require_range("N", start, stop, n, code.BLOCK_ROWS, "blocks of rows are packed together")
    rows = align(stop - start, code.PADDED_ROWS)
    if w.in_rows:
        codes = w.codes[:, start:stop].clone(memory_format=torch.contiguous_format)
    else:
        blocks = slice(start // code.BLOCK_ROWS, ceil_div(stop, code.BLOCK_ROWS))
        codes = w.codes[:, blocks]
        padding = rows // code.BLOCK_ROWS - codes.shape[1]
        codes = torch.nn.functional.pad(codes, (0, 0, 0, 0, 0, padding), value=w.packing.added * 17).contiguous()

    def columns(tensor: torch.Tensor) -> torch.Tensor:
        part = tensor[:, :, start:stop]
        return torch.nn.functional.pad(part, (0, rows - part.shape[2])).contiguous()

    return replace(
        w,
        codes=codes,
        scales=columns(w.scales),
        zeros=None if w.zeros is None else columns(w.zeros),
        sums=None if w.sums is None else columns(w.sums.unsqueeze(1)).squeeze(1),
        second_scales=None if w.second_scales is None else columns(w.second_scales.unsqueeze(1)).squeeze(1),
        shape=(*w.shape[:-2], stop - start, w.shape[-1]),
    )


def columns_of(w: Weights, start: int, stop: int) -> Weights:
    """A copy of input channels `start` to `stop` (exclusive)."""
    if w.input_permutation is not None:
        raise ValueError("weights with an input_permutation cannot be cut along K: their K is in another order")
    step = K_BLOCK if w.group_size is None else math.lcm(K_BLOCK, w.group_size)
    _require_range("K", start, stop, w.shape[-1], step, "groups and blocks of 128 stay whole")
    blocks = slice(start // K_BLOCK, ceil_div(stop, K_BLOCK))
    if w.in_rows:
        blocks = slice(row_bytes(start), row_bytes(stop))

    def rows(tensor: torch.Tensor, group: int | None) -> torch.Tensor:
        kept = tensor if group is None else tensor[:, start // group : align(stop, K_BLOCK) // group]
        return kept.clone(memory_format=torch.contiguous_format)

    part = replace(
        w,
        codes=w.codes[:, :, blocks].clone(memory_format=torch.contiguous_format),
        scales=rows(w.scales, w.entry_k),
        zeros=None if w.zeros is None else rows(w.zeros, w.zero_group),
        sums=None,
        shape=(*w.shape[:-1], stop - start),
    )
    part = replace(part, near_scales=w.near_scales or (not part.scales.is_meta and part.scales_are_near()))
    return part if w.sums is None else replace(part, sums=sums_of(part))


def experts_of(w: Weights, index: int | slice) -> Weights:
    """One expert of a stack, or a stack of neighbours, in the same memory."""
    if not w.is_stack:
        raise TypeError(f"only stacks of weights have experts to pick, got shape {[*w.shape]}")
    if isinstance(index, slice):
        first, last, step = index.indices(w.experts)
        if step != 1 or last <= first:
            raise ValueError(f"a slice of experts must take neighbours, at least one, got {index}")
    else:
        first = _expert(w, index)
        last = first + 1
    permutation = None if w.input_permutation is None else w.input_permutation[first:last]
    if not isinstance(index, slice) and permutation is not None:
        permutation = permutation[0]
    return replace(
        w,
        codes=w.codes[first:last],
        scales=w.scales[first:last],
        zeros=None if w.zeros is None else w.zeros[first:last],
        second_scales=None if w.second_scales is None else w.second_scales[first:last],
        input_permutation=permutation,
        sums=None if w.sums is None else w.sums[first:last],
        shape=(last - first, *w.shape[1:]) if isinstance(index, slice) else w.shape[1:],
    )


def write_expert(w: PackedTensors, index: int, one: PackedTensors) -> None:
    """The weights of expert `index` become those of `one`, where they lie."""
    index = _expert(w, index)
    _require_same_kind(w, one)
    codes, scales = one.codes, one.scales
    if one.order == "s4m" and w.order != "s4m":
        codes = code.from_sign_magnitude(codes)
    if one.folds_exponents and not w.folds_exponents:
        codes, scales = code.from_lookup(codes), unfold(scales[0])[None] * one.scale_factor
    if w.needs_zeros and not one.needs_zeros and w.packing.places is None:
        codes = codes ^ code.UNSIGNED
    w.codes[index].copy_(codes[0])
    if w.in_rows:
        w.scales[index].copy_(scales[0])
    elif w.second_scales is not None and one.second_scales is not None:
        w.scales[index].copy_(scales[0])
        w.second_scales[index].copy_(one.second_scales[0])
    else:
        w.scales[index].copy_(scales[0] * (w.scale_factor / one.scale_factor))
    if w.zeros is not None:
        w.zeros[index].copy_(_no_zeros(w) if one.zeros is None else one.zeros[0])
    if w.sums is not None:
        given = sums_of(one) if one.sums is None else one.sums
        exact = w.sums.dtype == torch.int32
        w.sums[index].copy_(given[0].double() * (one.scale_factor / w.scale_factor) if exact else given[0])
    if w.input_permutation is not None:
        order = one.input_permutation
        w.input_permutation.view(w.experts, -1)[index].copy_(torch.arange(w.shape[-1]) if order is None else order)


def _no_zeros(w: PackedTensors) -> torch.Tensor:
    """Words for signed codes, of which what they are more than their values is subtracted."""
    factor = torch.ones((), dtype=torch.int32)
    return Steps(factor, w.packing.middle * factor).words(w.activations)


def _expert(w: PackedTensors, index: int) -> int:
    index = integer("index", index)
    if not -w.experts <= index < w.experts:
        raise IndexError(f"index must be that of one of {w.experts} experts, got {index}")
    return index % w.experts


def _require_same_kind(w: PackedTensors, one: PackedTensors) -> None:
    if one.is_stack or one.shape != w.shape[-2:]:
        raise ValueError(f"one matrix of {[*w.shape[-2:]]} is wanted, got shape {[*one.shape]}")
    for name in ("element", "activations", "group_size", "two_levels", "gate_up"):
        if getattr(one, name) != getattr(w, name):
            raise ValueError(f"{name} must be {getattr(w, name)!r}, got {getattr(one, name)!r}")
    if one.in_rows != w.in_rows:
        lie = {True: "in rows, as Blackwell (SM100) multiplies them", False: "in blocks, as other GPUs convert them"}
        raise ValueError(f"the new weights lie {lie[one.in_rows]}, those that they replace {lie[w.in_rows]}")
    if (one.second_scales is None) != (w.second_scales is None):
        raise ValueError("the new weights' scales are not multiplied as those of the weights that they replace are")
    if one.holds_minus_eight and w.order == "s4m":
        raise ValueError("the new weights hold -8, which those they replace do not: kernels convert them otherwise")
    if w.folds_exponents and not one.folds_exponents:
        raise ValueError("the exponents of the new weights are too far apart to be multiplied in, as the old ones' are")
    if w.near_scales and not one.near_scales:
        raise ValueError(
            f"the scales of each row must be {one.near_means}, as those of the weights that these replace are "
            "(near_scales): pack the whole stack again"
        )
    for name, words in (("zeros", "zero points"), ("input_permutation", "an input_permutation")):
        if getattr(one, name) is not None and getattr(w, name) is None:
            raise ValueError(f"the new weights have {words}, which those they replace do not")


def _require_range(name: str, start: int, stop: int, size: int, step: int, reason: str) -> None:
    start, stop = integer("start", start), integer("stop", stop)
    if not 0 <= start < stop <= size:
        raise ValueError(f"start and stop must lie within {name}={size}, start first, got {start} and {stop}")
    if start % step != 0 or (stop % step != 0 and stop != size):
        raise ValueError(
            f"start and stop must be multiples of {step} (stop may be {name}={size}), because {reason}, "
            f"got {start} and {stop}"
        )
