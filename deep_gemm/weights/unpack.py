"""What packed weights stand for, some rows at a time."""

from __future__ import annotations

import torch

from ..utils.math import ceil_div
from . import codes as code
from . import conversion_scales, rows
from .exponents import unfold
from .packed_tensors import PackedTensors
from .packings import SMALLEST_GROUP
from .words import from_words
from .zeros import steps_of


def weights_of(w: PackedTensors, expert: int, first: int, last: int) -> torch.Tensor:
    """Rows `first` (a multiple of 64) to `last` of one matrix, in FP32."""
    if w.in_rows:
        codes = rows.codes_of(w.codes[expert, first:last], w.shape[-1])
        return _decoded(w, codes) * _spread(w, rows.scales_of(w.scales[expert, :, first:last]), w.scale_group)
    values = integers_of(w, expert, first, last)
    scales = w.scales[expert, :, first:last]
    if w.second_scales is not None:
        fields = conversion_scales.from_bytes(conversion_scales.from_words(scales))
        second = w.second_scales[expert, first:last] / conversion_scales.FACTOR
        return _decoded(w, values) * _spread(w, fields, w.scale_group) * second.unsqueeze(1)
    if w.element in ("e2m1", "e4m3"):
        values = _decoded(w, values)
    if w.folds_exponents:
        return values * _spread(w, unfold(scales), SMALLEST_GROUP)
    return values * _spread(w, scales / w.scale_factor, w.scale_group)


def integers_of(w: PackedTensors, expert: int, first: int, last: int) -> torch.Tensor:
    """The same of integers less their zero points, int32; of other elements, their codes."""
    codes = w.codes[expert, first // code.BLOCK_ROWS : ceil_div(last, code.BLOCK_ROWS)]
    values = _unblocked(w, codes)[: last - first, : w.shape[-1]].to(torch.int32)
    if w.zeros is not None:
        steps = steps_of(w.zeros[expert, :, first:last], w.activations)
        factors, offsets = (_spread(w, groups, w.zero_group) for groups in (steps.factors, steps.offsets))
        values = (values & w.packing.largest_code) * factors - offsets
    return values


def sums_of(w: PackedTensors) -> torch.Tensor:
    """Of each row, as `PackedTensors.sums` has them."""
    n, k = w.shape[-2:]
    exact = w.scale_group is None
    sums = w.scales.new_zeros((w.experts, w.scales.shape[2]), dtype=torch.int32 if exact else torch.float32)
    for expert in range(w.experts):
        for first, last in code.row_chunks(n, k):
            if exact:
                of_rows = integers_of(w, expert, first, last).sum(1) * round(1 / w.scale_factor)
            else:
                of_rows = weights_of(w, expert, first, last).sum(1, dtype=torch.float64)
            sums[expert, first:last] = of_rows
    return sums


def _unblocked(w: PackedTensors, codes: torch.Tensor) -> torch.Tensor:
    """int8 of some blocks' rows, as the codes are stored."""
    packing = w.packing
    if packing.places is not None:
        words = from_words(codes, packing.places).view(torch.int8)
        return words if w.needs_zeros else words - packing.added
    if w.order == "s4m":
        codes = code.from_sign_magnitude(codes)
    elif w.folds_exponents:
        codes = code.from_lookup(codes)
    return code.from_blocks(codes)


def _decoded(w: PackedTensors, values: torch.Tensor) -> torch.Tensor:
    """What codes of floating elements stand for, in FP32."""
    if w.element == "e4m3":
        return values.to(torch.int8).view(torch.float8_e4m3fn).float()
    return code.E2M1.to(values.device)[(values & 15).long()]


def _spread(w: PackedTensors, groups: torch.Tensor, group: int | None) -> torch.Tensor:
    """What is stored for groups of K, `[K groups, rows]`, for each row and K."""
    of_rows = groups.T
    return of_rows if group is None else of_rows.repeat_interleave(group, 1)[:, : w.shape[-1]]
