"""Operands of FP8 and BF16 products: weights and tokens as products take them, and what columns of tokens are."""

from __future__ import annotations

from typing import Any

import torch

from .. import quantize
from .._compiled import constant_when_compiled
from .._gemm import Contiguous, Masked
from .._targets import BLACKWELL_TARGETS
from ..settings import get_batch_invariant, get_fp32_scales, get_target

Scaled = tuple[torch.Tensor, torch.Tensor]
Grouping = Contiguous | Masked | None
PRECISIONS = ("fp8", "bf16")


@constant_when_compiled
def target_of(device: torch.device) -> str:
    return get_target(device)


@constant_when_compiled
def scale_form(device: torch.device) -> str:
    """Of FP8 operands: Blackwell multiplies powers of two, unless `set_fp32_scales` says otherwise."""
    return "ue8m0" if get_target(device) in BLACKWELL_TARGETS and not get_fp32_scales(device) else "fp32"


@constant_when_compiled
def is_batch_invariant(device: torch.device) -> bool:
    """Whether a row's bits must not depend on how many others there are."""
    return get_batch_invariant(device)


def fp8_rows(x: torch.Tensor, grouping: Grouping = None) -> Scaled:
    """With a scale for each row and 128 of K."""
    return quantize.fp8(x, scales=scale_form(x.device), grouping=grouping)


def fp8_columns(x: torch.Tensor) -> Scaled:
    """`[M, K]`, and a scale for each column and 128 rows, `[ceil(M / 128), K]`: what weights' gradients multiply."""
    q, s = fp8_rows(x.t().contiguous())
    return transposed(q), s.t()


def fp8_weights(weight: torch.Tensor) -> Scaled:
    """`[.., N, K]` with a scale for each 128 x 128."""
    return quantize.fp8_blocks(weight.contiguous(), scales=scale_form(weight.device))


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The last two dimensions. As bytes: torch copies 8-bit floating types on few devices."""
    data = x.view(torch.uint8) if x.element_size() == 1 else x
    return data.transpose(-1, -2).contiguous().view(x.dtype)


def in_halves(x: torch.Tensor) -> torch.Tensor:
    """As products of 16 bits take it."""
    return x if x.dtype in (torch.bfloat16, torch.float16) else x.to(torch.bfloat16)


def as_autocast_has_it(x: torch.Tensor) -> torch.Tensor:
    if torch.is_autocast_enabled(x.device.type):
        return x.to(torch.get_autocast_dtype(x.device.type))
    return x


def operands_of(weight: torch.Tensor, precision: str, both_ways: bool) -> tuple[Any, ...]:
    """Data and scales (or None) of a weight, and with `both_ways` those of its transpose."""
    if precision == "bf16":
        data = in_halves(weight).contiguous()
        return (data, None, transposed(data), None) if both_ways else (data, None, None, None)
    q, s = fp8_weights(weight)
    # Blocks of 128 x 128 are the same ones the other way round.
    return (q, s, transposed(q), transposed(s)) if both_ways else (q, s, None, None)


def joined(data: torch.Tensor, scales: torch.Tensor | None) -> Any:
    return data if scales is None else (data, scales)
