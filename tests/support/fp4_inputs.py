"""Operands of FP8 by FP4 as the public API has them, and what they stand for in FP64."""

from __future__ import annotations

import torch
from inputs import ceil_div
from matrix import decoded, packed

NAN = 0xFF


def _exponents(shape: tuple[int, ...], group: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 exponents [..., ceil(K / group)], and the scale of each element in FP64."""
    *rows, k = shape
    exponents = torch.randint(120, 131, (*rows, ceil_div(k, group)), generator=generator, dtype=torch.uint8)
    return exponents, torch.exp2(exponents.double() - 127).repeat_interleave(group, -1)[..., :k]


def _written(exponents: torch.Tensor, form: str) -> torch.Tensor:
    """FP32, or int32 words that are NaN behind the last exponent."""
    if form == "fp32":
        return torch.exp2(exponents.float() - 127)
    return torch.nn.functional.pad(exponents, (0, -exponents.shape[-1] % 4), value=NAN).view(torch.int32)


class Fp8Rows:
    """E4M3 [..., K] with scales of powers of two."""

    def __init__(self, shape: tuple[int, ...], form: str = "fp32", group: int = 128) -> None:
        generator = torch.Generator().manual_seed(sum(shape))
        data = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
        exponents, every = _exponents(shape, group, generator)
        self.pair = data, _written(exponents, form)
        self.exact = data.double() * every


class Fp4Rows:
    """Codes of E2M1, two a byte, likewise."""

    def __init__(
        self, shape: tuple[int, ...], form: str = "fp32", group: int = 32, codes: torch.Tensor | None = None
    ) -> None:
        generator = torch.Generator().manual_seed(sum(shape) + 1)
        drawn = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        self.codes = drawn if codes is None else codes
        exponents, every = _exponents(shape, group, generator)
        self.scales = _written(exponents, form)
        self.exact = decoded("e2m1r", self.codes) * every

    @property
    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        return packed(self.codes), self.scales

    @property
    def along_n(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[..., N / 2, K]: two neighbours along N a byte."""
        return packed(self.codes.mT).mT, self.scales

    def placed(self, offset: int, gap: int, along_n: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The first byte so far behind an aligned address, lines so much further apart, other codes between them."""
        lines = packed(self.codes.mT if along_n else self.codes)
        count, length = lines.shape
        room = torch.full((offset + count * (length + gap) + 64,), -1, dtype=torch.int8)
        view = room.as_strided(lines.shape, (length + gap, 1), offset)
        view.copy_(lines)
        return view.T if along_n else view, self.scales


def matches(d: torch.Tensor, a: Fp8Rows, w: Fp4Rows) -> None:
    expected, magnitude = a.exact @ w.exact.mT, a.exact.abs() @ w.exact.abs().mT
    assert (d.double() - expected).abs().le(1e-6 * magnitude).all()
