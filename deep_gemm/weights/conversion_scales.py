"""Scales that kernels multiply into weights when they convert them, exactly.

A byte is an unsigned float: five bits of exponent, biased by 15, and three of mantissa; it is never 0. The largest
scale of a row has the largest exponent, and a power of two for the row, which sums are multiplied by, makes up for
that. So scales of three bits of mantissa and fewer fit, E4M3 and powers of two among them, as far as FP16 holds their
products with codes of E2M1.
"""

from __future__ import annotations

import torch

from ..utils.math import _FP32_MANTISSA_BITS

FACTOR = 2.0**14  # products lie by so much below code times scale
SCALES_A_WORD = 4

_MANTISSA_BITS = 3
_BIAS, _LARGEST_EXPONENT = 15, 15
_LEAST = 2.0**-9  # what scales are multiples of: times 0.5 and 2^-14, FP16's least number


def to_bytes(scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """FP32 `[N, groups]` -> bytes, and what each row's are to be multiplied by in FP64 `[N]`; or None: they do not fit.

    The byte of a scale of 0 means nothing.
    """
    if not bool(((scales >= 0) & scales.isfinite()).all()):
        return None
    exact = scales.double()
    largest, exponents = torch.frexp(exact.amax(1))  # the mantissa lies below 1
    shifts = torch.where(largest > 0, exponents - 1 - _LARGEST_EXPONENT, 0).double()
    relative = exact * torch.exp2(-shifts).unsqueeze(1)
    mantissas, exponents = torch.frexp(relative)
    steps = mantissas * 2 ** (_MANTISSA_BITS + 1)
    multiples = relative / _LEAST
    if not bool(((steps == steps.round()) & (multiples == multiples.round())).all()):
        return None
    fields = (exponents - 1 + _BIAS << _MANTISSA_BITS) + steps.int() - (1 << _MANTISSA_BITS)
    return fields.masked_fill(exact == 0, 0).to(torch.uint8), torch.exp2(shifts)


def from_bytes(fields: torch.Tensor) -> torch.Tensor:
    """Bytes -> FP32."""
    bits = fields.int() << _FP32_MANTISSA_BITS - _MANTISSA_BITS
    return (bits + (127 - _BIAS << _FP32_MANTISSA_BITS)).view(torch.float32)


def to_words(fields: torch.Tensor) -> torch.Tensor:
    """`[words of K, N]` of bytes `[groups, N]`, the lowest K in the lowest byte."""
    groups, rows = fields.shape
    quads = fields.view(groups // SCALES_A_WORD, SCALES_A_WORD, rows).transpose(1, 2).contiguous()
    return quads.view(torch.int32).squeeze(-1)


def from_words(words: torch.Tensor) -> torch.Tensor:
    """The inverse of `to_words`."""
    count, rows = words.shape
    quads = words.contiguous().view(torch.uint8).view(count, rows, SCALES_A_WORD)
    return quads.transpose(1, 2).reshape(-1, rows)
