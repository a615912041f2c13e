"""Tokens to the rows of their experts, and results back: on the device, without a host read, the same each time.

    weights, ids = scores.topk(8)
    routing = deep_gemm.routing.route(ids, num_experts=256)
    rows = deep_gemm.routing.gather(deep_gemm.quantize.fp8(x), routing)
    deep_gemm.gemm(rows, experts, y, grouping=routing.grouping())
    out = deep_gemm.routing.combine(y, routing, weights)

A *choice* is a slot of a token: `ids[token, slot]`. Each choice of an expert gets a row of that expert, in the order of
tokens and slots; choices of no expert (-1, or any number that is none of `num_experts`) get none. Shapes do not depend
on the ids, so all of it can be captured in a CUDA graph.

Raises ValueError or TypeError where an argument cannot be right.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from . import _routing
from ._compiled import alignment_now
from ._gemm import Contiguous, Masked
from ._numbers import integer
from .layout import get_tma_aligned_size

__all__ = ["Routing", "combine", "gather", "route"]

KINDS = ("indices", "psum", "masked")
Rows = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


class Routing(NamedTuple):
    """Where each choice lies, and what lies in each row."""

    kind: str  # 'indices', 'psum' or 'masked'
    row_of: torch.Tensor  # int32 [tokens, choices]: the row of a choice; of 'masked' expert * max_m + row; -1: none
    source: torch.Tensor  # int32 [rows], of 'masked' [G, max_m]: token * choices + slot; -1: a row of no token
    counts: torch.Tensor  # int32 [G]: how many choices are of an expert, those for which no row was left too
    ends: torch.Tensor  # int32 [G]: where its rows end (the psum layout); of 'masked' how many it has
    indices: torch.Tensor | None  # of 'indices': int32 [rows], the expert of each row, -1 where it is none
    row_weights: torch.Tensor | None  # float32 as `source`, where there are weights: for `epilogue.RowScale`

    @property
    def num_experts(self) -> int:
        return self.ends.shape[0]

    @property
    def choices(self) -> int:
        """Of a token."""
        return self.row_of.shape[1]

    def grouping(self, expected_m: int | None = None) -> Contiguous | Masked:
        """What `deep_gemm.gemm` and `deep_gemm.quantize` take. `expected_m`: how many rows an expert is likely to have,
        a hint; by default the choices divided by the experts."""
        if expected_m is None:
            expected_m = max(-(-self.row_of.shape[0] * self.choices // self.num_experts), 1)
        if self.kind == "masked":
            return Masked(self.ends, expected_m)
        if self.kind == "psum":
            return Contiguous(self.ends, psum=True, expected_m=expected_m)
        assert self.indices is not None
        return Contiguous(self.indices)


def route(
    ids: torch.Tensor,
    num_experts: int,
    *,
    kind: str = "indices",
    weights: torch.Tensor | None = None,
    rows: int | None = None,
    max_m: int | None = None,
    alignment: int | None = None,
) -> Routing:
    """Give each choice a row.

    Args:
        ids: int32 or int64 `[tokens, choices]`: experts, or numbers that are none.
        num_experts: at most 1024.
        kind: 'indices' or 'psum', experts' rows behind each other, as contiguous products take them; or 'masked', a
            matrix for each expert.
        weights: float32, shaped as ids: also written to where their choices lie, `row_weights`.
        rows: of all experts, a multiple of the alignment; by default as many as any ids may need. Choices for which no
            row is left get none; `counts` tells.
        max_m: rows of each expert of 'masked'; by default the number of tokens, which suffices where no token chooses
            an expert twice. Likewise.
        alignment: what experts' rows begin at multiples of; by default `get_mk_alignment_for_contiguous_layout()`.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be {', '.join(map(repr, KINDS[:-1]))} or {KINDS[-1]!r}, got {kind!r}")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[1] < 1:
        raise ValueError(f"ids must be [tokens, choices], got {getattr(ids, 'shape', ids)}")
    experts = integer("num_experts", num_experts, smallest=1)
    step = alignment_now() if alignment is None else integer("alignment", alignment, smallest=1)
    tokens, choices = ids.shape
    masked = kind == "masked"
    if masked and rows is not None:
        raise ValueError("rows must be None with kind='masked': max_m says how many each expert has")
    if not masked and max_m is not None:
        raise ValueError(f"max_m must be None with kind={kind!r}: rows says how many there are")
    if masked:
        shape: tuple[int, ...] = (experts, tokens if max_m is None else integer("max_m", max_m, smallest=0))
    else:
        count = most_rows(tokens * choices, experts, step) if rows is None else integer("rows", rows, smallest=0)
        shape = (count,)
    if weights is not None and weights.shape != ids.shape:
        raise ValueError(f"weights must have the shape of ids, {[*ids.shape]}, got {[*weights.shape]}")
    row_of = ids.new_empty((tokens, choices), dtype=torch.int32)
    source = ids.new_empty(shape, dtype=torch.int32)
    ends, counts = (ids.new_empty((experts,), dtype=torch.int32) for _ in range(2))
    indices = ids.new_empty(shape, dtype=torch.int32) if kind == "indices" else None
    given, row_weights = None, None
    if weights is not None:
        given, row_weights = weights.detach().contiguous(), ids.new_empty(shape, dtype=torch.float32)
    _routing.launch_route(ids.contiguous(), given, row_of, source, ends, counts, indices, row_weights, masked, step)
    return Routing(kind, row_of, source, counts, ends, indices, row_weights)


def most_rows(choices: int, experts: int, alignment: int) -> int:
    """That experts' rows, each rounded up, can take."""
    return (choices + min(choices, experts) * (alignment - 1)) // alignment * alignment


def gather(x: Rows, routing: Routing, *, clear: bool = False) -> Rows:
    """Each choice's row of x: `[tokens, K]` -> `[rows, K]`, or of 'masked' `[G, max_m, K]`.

    Args:
        x: of any dtype, K contiguous; or `(q, s)`, quantised, with scales `[tokens, groups]` of 4 bytes: those of the
            result are MN-major, as products take them. Gradients are those of tensors of BF16, FP16 and FP32.
        routing: of as many tokens.
        clear: whether rows of no token become zeros; else they stay as the memory was.
    """
    data = x[0] if isinstance(x, (tuple, list)) else x
    if not isinstance(data, torch.Tensor) or data.dim() != 2 or data.shape[0] != routing.row_of.shape[0]:
        raise ValueError(f"x must be [{routing.row_of.shape[0]}, K], got {getattr(data, 'shape', data)}")
    if isinstance(x, torch.Tensor):
        if torch.is_grad_enabled() and x.requires_grad:
            gathered: torch.Tensor = _routing.gather_recorded(x, routing.source, routing.row_of, clear)
            return gathered
        return _routing.gathered(x, routing.source, routing.choices, clear)
    scales = x[1]
    out = data.new_empty((*routing.source.shape, data.shape[1]))
    *lead, m = routing.source.shape
    padded = get_tma_aligned_size(m, scales.dtype.itemsize)
    memory = scales.new_empty((*lead, scales.shape[1], padded))
    out_scales = memory.transpose(-1, -2)[..., :m, :]
    flat = out.view(-1, data.shape[1])
    _routing.launch_gather(data, scales, routing.source.view(-1), flat, out_scales, routing.choices, clear)
    return out, out_scales


def combine(
    y: torch.Tensor, routing: Routing, weights: torch.Tensor | None = None, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The sum of each token's rows, times their weights: `[rows, N]` or `[G, max_m, N]` -> `[tokens, N]`.

    In FP32 and in the order of slots, a fused multiply-add each, so equal bits each time; rounded once. Choices without
    a row add nothing. Has gradients.

    Args:
        y: bfloat16, float16 or float32, contiguous.
        routing: as of `gather`.
        weights: float32 `[tokens, choices]`; None: all are 1 (where `RowScale` has multiplied rows).
        dtype: of the result; by default y's.
    """
    if y.shape[:-1] != routing.source.shape:
        raise ValueError(f"y must be {[*routing.source.shape, 'N']}, got {[*y.shape]}")
    if weights is not None and weights.shape != routing.row_of.shape:
        raise ValueError(f"weights must be {[*routing.row_of.shape]}, got {[*weights.shape]}")
    given = None if weights is None else weights.contiguous()
    y = y.contiguous()
    if torch.is_grad_enabled() and (y.requires_grad or (given is not None and given.requires_grad)):
        combined: torch.Tensor = _routing.combine_recorded(y, given, routing.source, routing.row_of, dtype)
        return combined
    return _routing.combined(y, routing.row_of, given, dtype)
