"""What a product writes: a tensor, or one of few bits with the scales that the kernel finds for it, `(q, s)`."""

from __future__ import annotations

from typing import Any

import torch

from ._gates import Gate, gated_product

Output = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


class Counted(tuple[torch.Tensor, torch.Tensor, torch.Tensor]):
    """A pair of these, and an int32 to which the kernel adds how many values it has bounded."""


# Scales of zeros, which deep_gemm.utils makes too: of FP32 that of 1e-4, and four bytes of its exponent rounded up.
_OF_ZEROS = 1e-4 / 448.0
_WORD_OF_ZEROS, _WORD_OF_ONES = 0x69696969, 0x7F7F7F7F


def data_of(d: Output) -> torch.Tensor:
    return d if isinstance(d, torch.Tensor) else d[0]


def write_empty(
    d: Output,
    c: torch.Tensor | None = None,
    steps: tuple[int | None, torch.Tensor | None, Gate | None] = (None, None, None),
) -> None:
    """K = 0: D becomes C, or zero; or what the epilogue's steps make of that."""
    _, row_scale, gate = steps
    if not isinstance(d, torch.Tensor):
        data_of(d).zero_()
        d[1].fill_(_scale_of(d[1], padding=False))
        return
    if c is None:
        d.zero_()
    elif gate is not None:
        d.copy_(gated_product(c.float(), gate))
    elif c is not d:
        d.copy_(c)
    if row_scale is not None:
        d.mul_(row_scale.unsqueeze(-1))


def write_empty_rows(d: Output, written: torch.Tensor, padding: torch.Tensor | None = None) -> None:
    """Some rows become zero; scales of those that are padding are one. Masks have D's shape without columns."""
    if isinstance(d, torch.Tensor):
        d.masked_fill_(written[..., None], 0)
        return
    d[0].view(torch.uint8).masked_fill_(written[..., None], 0)  # torch fills no FP8
    d[1].masked_fill_(written[..., None], _scale_of(d[1], padding=False))
    if padding is not None:
        d[1].masked_fill_((written & padding)[..., None], _scale_of(d[1], padding=True))


def _scale_of(scales: torch.Tensor, padding: bool) -> Any:
    if scales.dtype == torch.int32:
        return _WORD_OF_ONES if padding else _WORD_OF_ZEROS
    return 1.0 if padding else _OF_ZEROS
