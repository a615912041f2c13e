"""DeepEP's buffers between processes of `GroupedExperts`, instead of collectives: each token travels once to each
process that has an expert of its, and that process's results are added up before they travel back.

By the interface of `deep_ep.Buffer` in version 2.1.0: get_dispatch_layout, dispatch, combine.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from .numbers import Scaled

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from .experts import GroupedExperts

_SCALE_COLUMNS = 128  # of FP8 rows, as DeepEP has them
_PIECE = 8  # columns of BF16 that it copies at once
_made: WeakKeyDictionary[ProcessGroup, tuple[int, Any]] = WeakKeyDictionary()  # with how many columns fit


def buffer_of(layer: GroupedExperts, group: ProcessGroup, x: torch.Tensor) -> Any:
    """What brings the rows of this call: `layer.deep_ep`, or a buffer that is made; None: collectives do."""
    if layer.deep_ep is False:
        return None
    fits = x.dtype == torch.bfloat16 and layer.hidden % _PIECE == 0
    if layer.deep_ep is not None:
        if not fits:
            raise TypeError(
                f"x must be bfloat16 with a multiple of {_PIECE} columns for DeepEP's buffer (layer.deep_ep), got "
                f"{str(x.dtype).removeprefix('torch.')} with {layer.hidden}"
            )
        return layer.deep_ep
    return made_buffer(group, layer.hidden) if fits and x.is_cuda and group.size() > 1 else None


def made_buffer(group: ProcessGroup, hidden: int) -> Any:
    """One of a group, for all its layers; None where there is no DeepEP, or none for so many processes."""
    columns, buffer = _made.get(group, (0, None))
    if columns >= hidden:
        return buffer
    deep_ep = module()
    if deep_ep is None:
        return None
    try:
        ways = deep_ep.Buffer.get_dispatch_config(group.size()), deep_ep.Buffer.get_combine_config(group.size())
    except AssertionError:  # it has settings for 2, 4, 8, .. processes
        return None
    sizes = 2 * hidden, group.size()
    nvlink = max(way.get_nvl_buffer_size_hint(*sizes) for way in ways)
    network = max(way.get_rdma_buffer_size_hint(*sizes) for way in ways)
    _made[group] = hidden, deep_ep.Buffer(group, nvlink, network)
    return _made[group][1]


@cache
def module() -> Any:
    """`deep_ep`, or None."""
    if importlib.util.find_spec("deep_ep") is None:
        return None
    try:
        return importlib.import_module("deep_ep")
    except (ImportError, OSError) as error:
        warnings.warn(f"deep_ep is installed and cannot be imported, so collectives are used: {error}", stacklevel=2)
        return None


class Trip:
    """Of a call's tokens, to their experts and back."""

    def __init__(self, buffer: Any, ids: torch.Tensor, num_experts: int) -> None:
        self.buffer, self.num_experts = buffer, num_experts
        kind = getattr(module(), "topk_idx_t", torch.int64)  # which older versions do not say
        self.ids = torch.where((ids >= 0) & (ids < num_experts), ids, -1).to(kind)
        self.handle: Any = None

    def there(self, x: torch.Tensor | Scaled, weights: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Rows that came, the experts of this process that each has chosen (-1: another's), and their weights."""
        of_rank, of_node, of_expert, goes, _ = self.buffer.get_dispatch_layout(self.ids, self.num_experts)
        rows, ids, factors, _, self.handle, _ = self.buffer.dispatch(
            x,
            num_tokens_per_rank=of_rank,
            num_tokens_per_rdma_rank=of_node,
            is_token_in_rank=goes,
            num_tokens_per_expert=of_expert,
            topk_idx=self.ids,
            topk_weights=weights,
        )
        return rows, ids, factors

    def there_again(self, x: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.buffer.dispatch(x.contiguous(), handle=self.handle)[0]
        return rows

    def back(self, y: torch.Tensor, weights: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over the processes to which each token went."""
        sums, factors, _ = self.buffer.combine(y.contiguous(), self.handle, topk_weights=weights)
        return sums, factors


def forward_by_deep_ep(
    layer: GroupedExperts, buffer: Any, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, trains: bool
) -> torch.Tensor:
    """`GroupedExperts.forward` of this process's tokens, by all processes' experts. All of the group call it."""
    trip = Trip(buffer, ids, layer.num_experts)
    if trains:
        rows, own, factors = _dispatch(x.contiguous(), weights.contiguous(), trip)
        summed: torch.Tensor = _combine(layer.trained(rows, own, factors), trip)
        return summed
    tokens = layer.tokens(x)
    quantised = _has_scales_of_columns(tokens, layer.hidden)
    sent = (tokens[0], tokens[1].contiguous()) if quantised else x.contiguous()
    rows, own, factors = trip.there(sent, weights.contiguous())
    masked = own.shape[0] <= layer.masked_up_to
    y = layer.served(rows if quantised else layer.tokens(rows), x, own, factors, masked)
    return trip.back(y)[0]


def _has_scales_of_columns(tokens: Any, hidden: int) -> bool:
    """Others travel in BF16, and are quantised where they come: a row by itself, so to the same bits."""
    if isinstance(tokens, torch.Tensor):
        return False
    q, s = tokens[:2]
    of_columns = s.dim() == 2 and s.shape[1] * _SCALE_COLUMNS == hidden
    return bool(q.dtype == torch.float8_e4m3fn and s.dtype == torch.float32 and of_columns)


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weights: torch.Tensor, trip: Trip
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ctx.trip = trip
        rows, ids, factors = trip.there(x, weights)
        ctx.mark_non_differentiable(ids)
        return rows, ids, factors

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return *ctx.trip.back(gradients[0], gradients[2].contiguous()), None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, trip: Trip) -> torch.Tensor:
        ctx.trip = trip
        return trip.back(y)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.trip.there_again(gradients[0]), None


_dispatch: Any = _Dispatch.apply
_combine: Any = _Combine.apply
