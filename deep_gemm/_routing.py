"""Launches of the routing kernels, also as torch's operators and with gradients. `routing.py` has the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from . import operators
from ._arguments import no_memory
from ._extension import C

_CHUNK = 1 << 24  # elements of two matrices that are multiplied at once


_OPERATORS: dict[str, Callable[..., None]] = {}


def _serve(name: str, failure: Exception, *given: Any) -> None:
    """What the runtime refused: by torch's operator where torch traces; else an error."""
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    if operators.is_traced(tensors):
        _OPERATORS[name](*given)
        return
    rejections = (no_memory("an argument", tensor, "a routing kernel") for tensor in tensors)
    raise next(filter(None, rejections), failure.with_traceback(None))


def launch_route(
    ids: torch.Tensor,
    weights: torch.Tensor | None,
    row_of: torch.Tensor,
    source: torch.Tensor,
    ends: torch.Tensor,
    counts: torch.Tensor,
    indices: torch.Tensor | None,
    row_weights: torch.Tensor | None,
    masked: bool,
    alignment: int,
) -> None:
    if is_dynamo_compiling():
        _OPERATORS["route"](ids, weights, row_of, source, ends, counts, indices, row_weights, masked, alignment)
        return
    try:
        C.route(
            ids=ids,
            weights=weights,
            row_of=row_of,
            source=source,
            ends=ends,
            counts=counts,
            indices=indices,
            row_weights=row_weights,
            masked=masked,
            alignment=alignment,
        )
        return
    except Exception as error:
        failure = error
    _serve("route", failure, ids, weights, row_of, source, ends, counts, indices, row_weights, masked, alignment)


def launch_gather(
    x: torch.Tensor,
    scales: torch.Tensor | None,
    source: torch.Tensor,
    out: torch.Tensor,
    out_scales: torch.Tensor | None,
    choices: int,
    clear: bool,
) -> None:
    if is_dynamo_compiling():
        _OPERATORS["gather_rows"](x, scales, source, out, out_scales, choices, clear)
        return
    try:
        C.gather_rows(x=x, scales=scales, source=source, out=out, out_scales=out_scales, choices=choices, clear=clear)
        return
    except Exception as error:
        failure = error
    _serve("gather_rows", failure, x, scales, source, out, out_scales, choices, clear)


def launch_combine(x: torch.Tensor, weights: torch.Tensor | None, row_of: torch.Tensor, out: torch.Tensor) -> None:
    if is_dynamo_compiling():
        _OPERATORS["combine_rows"](x, weights, row_of, out)
        return
    try:
        C.combine_rows(x=x, weights=weights, row_of=row_of, out=out)
        return
    except Exception as error:
        failure = error
    _serve("combine_rows", failure, x, weights, row_of, out)


_OPERATORS["route"] = operators.define_writer(
    "route(Tensor ids, Tensor? weights, Tensor(a!) row_of, Tensor(b!) source, Tensor(c!) ends, Tensor(d!) counts, "
    "Tensor(e!)? indices, Tensor(f!)? row_weights, bool masked, int alignment) -> ()",
    launch_route,
)
_OPERATORS["gather_rows"] = operators.define_writer(
    "gather_rows(Tensor x, Tensor? scales, Tensor source, Tensor(a!) out, Tensor(b!)? out_scales, int choices, "
    "bool clear) -> ()",
    launch_gather,
)
_OPERATORS["combine_rows"] = operators.define_writer(
    "combine_rows(Tensor x, Tensor? weights, Tensor row_of, Tensor(a!) out) -> ()", launch_combine
)


def gathered(x: torch.Tensor, source: torch.Tensor, choices: int, clear: bool) -> torch.Tensor:
    """Rows of x `[tokens, K]` by `source`, whose shape they have in front of K."""
    out = x.new_empty((*source.shape, x.shape[1]))
    launch_gather(x, None, source.view(-1), out.view(-1, x.shape[1]), None, choices, clear)
    return out


def combined(
    y: torch.Tensor, row_of: torch.Tensor, weights: torch.Tensor | None, dtype: torch.dtype | None
) -> torch.Tensor:
    out = y.new_empty((row_of.shape[0], y.shape[-1]), dtype=dtype or y.dtype)
    launch_combine(y.view(-1, y.shape[-1]), weights, row_of, out)
    return out


class Gather(torch.autograd.Function):
    """`gathered`; a token's gradient is the sum of those of its rows."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, source: torch.Tensor, row_of: torch.Tensor, clear: bool) -> torch.Tensor:
        ctx.save_for_backward(row_of)
        return gathered(x, source, row_of.shape[1], clear)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (row_of,) = ctx.saved_tensors
        return combined(gradients[0].contiguous(), row_of, None, None), None, None, None


class Combine(torch.autograd.Function):
    """`combined`; a row's gradient is its token's times its weight, a weight's the product of its row with it."""

    @staticmethod
    def forward(
        ctx: Any,
        y: torch.Tensor,
        weights: torch.Tensor | None,
        source: torch.Tensor,
        row_of: torch.Tensor,
        dtype: torch.dtype | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(y, weights, source, row_of)
        return combined(y, row_of, weights, dtype)

    @staticmethod
    def backward(
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None]:
        y, weights, source, row_of = ctx.saved_tensors
        of_rows = gathered(gradients[0].contiguous(), source, row_of.shape[1], True)
        of_weights = None
        if weights is not None and ctx.needs_input_grad[1]:
            dots = _row_dots(of_rows.view(-1, y.shape[-1]), y.view(-1, y.shape[-1]))
            found = dots[row_of.clamp(min=0).long()] if len(dots) else torch.zeros_like(weights)
            of_weights = found.where(row_of >= 0, 0.0)
        if not ctx.needs_input_grad[0]:
            return None, of_weights, None, None, None
        if weights is not None:
            factors = (
                weights.flatten()[source.clamp(min=0).long()] if weights.numel() else weights.new_zeros(source.shape)
            )
            of_rows = of_rows.float() * factors.unsqueeze(-1)
        return of_rows.to(y.dtype), of_weights, None, None, None


def _row_dots(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of equal rows, in FP32. In parts, since both are widened."""
    rows = max(_CHUNK // max(x.shape[1], 1), 1)
    return torch.cat([(a.float() * b.float()).sum(-1) for a, b in zip(x.split(rows), y.split(rows), strict=True)])


gather_recorded: Any = Gather.apply
combine_recorded: Any = Combine.apply
