"""What is subtracted from unsigned codes in a kernel's registers: a word for each row and group of K.

A weight is the scale times an integer, which is made of the code (the value less its element's smallest one, 0..15, or
0..255 for 'bf16'):

    for integers  factor * code - offset, within -128..127      the word is factor << 16 | (128 - offset & 0xffff)
    for 'fp8'     code - offset, within -16..16                 four times the offset, each in a signed byte
    for 'bf16'    code - offset, within -240..240 or -255..255  -offset times 2^-9, as BF16 below and as FP16 above

The factor is 1 but where there are two levels of scales; the offset is factor times the zero point of codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .groups import Groups
from .matrix import Matrix
from .packings import Packing

_SMALLEST_ZERO, _LARGEST_ZERO = -128, 255
# What a kernel multiplies: s8, magnitudes that E4M3 has at a step of 2^-9, or eight bits of BF16's significand, which
# hold the offset of such a code, too.
_LIMITS = {"int8": (-128, 127), "int4": (-128, 127), "fp8": (-16, 16), "bf16": (-240, 240)}
_HALF = 128
_STEP = 2.0**-9  # of conversion to 16 bits


@dataclass(frozen=True)
class Steps:
    """Of each row and group of K, int32 [N, groups]: what a code is multiplied by, and what is subtracted then."""

    factors: torch.Tensor
    offsets: torch.Tensor

    def check(self, smallest: torch.Tensor, largest: torch.Tensor, activations: str) -> None:
        """Refuses integers that kernels cannot multiply, given each group's extreme codes of four bits."""
        low, high = _LIMITS[activations]
        for codes in (smallest, largest):
            integers = codes.to(torch.int32) * self.factors - self.offsets
            if bool(((integers < low) | (integers > high)).any()):
                wrong = int(integers.min() if int(integers.min()) < low else integers.max())
                raise ValueError(
                    f"a value less its zero point (times its group's integer scale, if it has one) must lie within "
                    f"{low}..{high} for {activations!r} activations, but one is {wrong}"
                )

    def unwrapped(self, smallest: torch.Tensor) -> Steps:
        """Of offsets that were given modulo 256: those that bring each group's smallest code into s8."""
        integers = smallest.to(torch.int32) * self.factors - self.offsets
        return Steps(self.factors, self.offsets + (integers + _HALF >> 8 << 8))

    def words(self, activations: str) -> torch.Tensor:
        if activations == "fp8":
            byte = self.offsets & 0xFF
            return byte | byte << 8 | byte << 16 | byte << 24
        if activations == "bf16":
            subtracted = torch.where(self.offsets == 0, 0.0, self.offsets * -_STEP)
            bf16, fp16 = (_bits(subtracted.to(dtype)) for dtype in (torch.bfloat16, torch.float16))
            return fp16 << 16 | bf16
        return self.factors << 16 | (_HALF - self.offsets & 0xFFFF)


def steps_of(words: torch.Tensor, activations: str) -> Steps:
    """The inverse of `Steps.words`, of words in any shape."""
    if activations == "fp8":
        return Steps(torch.ones_like(words), words << 24 >> 24)
    if activations == "bf16":
        subtracted = (words << 16).view(torch.float32)  # BF16 is the upper half of FP32
        return Steps(torch.ones_like(words), (subtracted / -_STEP).to(torch.int32))
    return Steps(words >> 16, _HALF - (words << 16 >> 16))


def steps_of_matrices(matrices: Sequence[Matrix], groups: Groups, packing: Packing) -> list[Steps] | None:
    """What kernels do to unsigned codes; None where that is what they do to signed ones."""
    found = [_steps_of(matrix, groups, packing) for matrix in matrices]
    if matrices[0].second_scales is None and all(bool((steps.offsets == packing.middle).all()) for steps in found):
        return None
    return found


def _steps_of(matrix: Matrix, groups: Groups, packing: Packing) -> Steps:
    given = groups.checked("scales", matrix.scales)
    if matrix.second_scales is not None and given.dtype != torch.int8:
        raise TypeError(f"scales must be torch.int8 where there are second_scales, got {given.dtype}")
    factors = torch.ones_like(given, dtype=torch.int32) if matrix.second_scales is None else given.to(torch.int32)
    if matrix.scaled_zeros is not None:
        return Steps(factors, groups.checked("scaled zeros", matrix.scaled_zeros).to(torch.int32))
    if matrix.zeros is None:
        return Steps(factors, -packing.smallest * factors)
    if matrix.zeros.dtype not in (torch.int32, torch.int8, torch.uint8):
        raise TypeError(f"zeros must be torch.int32, torch.int8 or torch.uint8, got {matrix.zeros.dtype}")
    zeros = groups.checked("zeros", matrix.zeros).to(torch.int32)
    low, high = (packing.smallest, packing.largest) if _has_bytes(packing) else (_SMALLEST_ZERO, _LARGEST_ZERO)
    if bool(((zeros < low) | (zeros > high)).any()):
        raise ValueError(f"zeros must lie within {low}..{high}, got {int(zeros.min())} to {int(zeros.max())}")
    return Steps(factors, factors * (zeros - packing.smallest))


def stored_words(
    all_steps: Sequence[Steps], matrices: Sequence[Matrix], groups: Groups, packing: Packing, activations: str
) -> torch.Tensor:
    """Words `[matrices, groups of K, N]`."""
    stored = []
    for steps, matrix in zip(all_steps, matrices, strict=True):
        smallest, largest = groups.extreme_codes(matrix, packing)
        if matrix.scaled_zeros is not None:
            steps = steps.unwrapped(smallest)
        if not _has_bytes(packing):
            steps.check(smallest, largest, activations)
        stored.append(groups.stored(steps.words(activations)))
    return torch.stack(stored)


def _has_bytes(packing: Packing) -> bool:
    """Codes of eight bits less a zero point that is one of them: BF16 holds all such differences."""
    return packing.largest_code == 255


def _bits(halves: torch.Tensor) -> torch.Tensor:
    return halves.view(torch.int16).to(torch.int32) & 0xFFFF
