"""The forms in which scales that are powers of two are handed over: how they are written, and how they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from inputs import mn_major, with_awkward_strides

Value = TypeVar("Value")

E8M0 = torch.float8_e8m0fnu
EXPONENT_BIAS = 127
WRITTEN = ("words", "fp32", "e8m0")  # words: int32 of four exponents that follow each other along K
# And of E4M3: as it is ("e4m3"), or in words likewise ("e4m3 words").
BYTES = {"e8m0": E8M0, "e4m3": torch.float8_e4m3fn}
LYING = ("mn_major", "rows", "apart")


@dataclass(frozen=True)
class Form:
    written: str = "fp32"
    lying: str = "rows"

    def __str__(self) -> str:
        return f"{self.written}/{self.lying}"


def draw(choices: tuple[Value, ...], generator: torch.Generator) -> Value:
    return choices[int(torch.randint(len(choices), (), generator=generator))]


def drawn_form(generator: torch.Generator, written: tuple[str, ...] = WRITTEN) -> Form:
    return Form(draw(written, generator), draw(LYING, generator))


def exponents(scales: torch.Tensor) -> torch.Tensor:
    """uint8 of FP32 powers of two, and of NaN."""
    return (torch.log2(scales).round() + EXPONENT_BIAS).nan_to_num(nan=0xFF).to(torch.uint8)


def words(scales: torch.Tensor) -> torch.Tensor:
    """int32 [..., rows, ceil(blocks / 4)] of FP32 powers of two [..., rows, blocks]; the lowest K in the low byte."""
    return words_of(exponents(scales))


def words_of(parts: torch.Tensor) -> torch.Tensor:
    filled = torch.nn.functional.pad(parts, (0, -parts.shape[-1] % 4))
    if filled.numel() == 0:  # torch views no empty bytes as words
        return torch.empty((*filled.shape[:-1], filled.shape[-1] // 4), dtype=torch.int32, device=parts.device)
    return filled.contiguous().view(torch.int32)


def written(scales: torch.Tensor, form: Form) -> torch.Tensor:
    """E8M0 and E4M3 as bytes: they are joined with others before `laid_out` gives them their type."""
    if form.written.startswith("e4m3"):
        parts = scales.to(torch.float8_e4m3fn).view(torch.uint8)
        return words_of(parts) if form.written == "e4m3 words" else parts
    if form.written == "words":
        return words(scales)
    return exponents(scales) if form.written == "e8m0" else scales


def laid_out(scales: torch.Tensor, form: Form) -> torch.Tensor:
    """What was `written`, [..., rows, columns], in such strides; what lies between its elements is no scale."""
    if form.lying == "mn_major":
        scales = mn_major(scales)
    elif form.lying == "apart":
        scales = with_awkward_strides(scales)
    return scales.view(BYTES[form.written]) if form.written in BYTES else scales
