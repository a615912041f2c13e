"""What happens to sums, drawn: a factor, a gated activation, and how D takes the results. And what they must be."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from inputs import GuardedOutput, ceil_div

from deep_gemm._gates import gated_product
from deep_gemm.epilogue import Alpha, Chain, Epilogue, GeGLU, RowScale, SwiGLU

GATED_N = [16, 64, 144, 512, 544]  # of these 512 also in halves beside scales of 128 rows
QUANTISED_N = [512, 544, 768]
PARTIAL_N = [26, 150, 522]  # N / 2 is no multiple of 8
FP8 = torch.float8_e4m3fn


@dataclass
class Steps:
    alpha: float | None = None
    gate: SwiGLU | GeGLU | None = None
    scales: str | None = None  # of a quantised D: "fp32" or "words"
    row_weights: torch.Tensor | None = None  # of a batch's D, on its device

    @property
    def is_plain(self) -> bool:
        return self.alpha is None and self.gate is None and self.row_weights is None

    def epilogue(self) -> Epilogue | None:
        steps: list[Epilogue] = [] if self.alpha is None else [Alpha(self.alpha)]
        steps += [] if self.gate is None else [self.gate]
        steps += [] if self.row_weights is None else [RowScale(self.row_weights)]
        return None if not steps else steps[0] if len(steps) == 1 else Chain(*steps)

    def for_function(self, function: Callable[..., None], more: dict[str, Any]) -> Steps:
        """Without a factor where the function takes none, or has one already."""
        takes = "epilogue" in inspect.signature(function).parameters and "alpha" not in more
        return self if takes or self.alpha is None else Steps(None, self.gate, self.scales)

    def factor(self, value: torch.Tensor, size: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.alpha is None:
            return value, size
        alpha = torch.tensor(self.alpha, dtype=torch.float32).double()
        return value * alpha, size * alpha.abs()

    def columns(self, n: int) -> int:
        return n if self.gate is None else n // 2

    def of_sums(self, value: torch.Tensor, size: torch.Tensor, tolerance: float) -> tuple[torch.Tensor, torch.Tensor]:
        """The results in FP64; and by what `tolerance` is multiplied to bound their error, as `size` does that of sums.

        A gate's slope is 1.13 at most, an activated gate no larger than the gate; FP32's own rounding adds a little.
        """
        if self.gate is None:
            return value, size
        halves = self.gate.layout == "halves"

        def parts(x: torch.Tensor) -> Sequence[torch.Tensor]:
            return x.chunk(2, -1) if halves else (x[..., ::2], x[..., 1::2])

        (gates, ups), (size_g, size_u) = parts(value), parts(size)
        expected = gated_product(value, self.gate.record)
        ups = ups.abs() + tolerance * size_u + 1
        bound = 1.15 * ups * size_g + gates.abs() * size_u
        return expected, bound + 1e-5 / tolerance * expected.abs()

    def rounding(self, expected: torch.Tensor) -> torch.Tensor | float:
        """Of a quantised D: half a step of E4M3, normal or not, with scales up to twice as large as they must be."""
        if self.scales is None:
            return 0.0
        return expected.abs() * 2**-4 * 1.05 + expected.abs().amax(-1, keepdim=True) / 448 * 2**-8 + 2**-24

    def __str__(self) -> str:
        scales = "" if self.scales is None else f" quantised with {self.scales}"
        return f"{self.epilogue()}{scales}"


class Out:
    """D, or q and its scales, with guards around them."""

    def __init__(self, d: GuardedOutput, steps: Steps) -> None:
        self.d, self.s = d, None
        self.given: Any = d.tensor
        if steps.scales is not None:
            *groups, rows, columns = d.tensor.shape
            words = steps.scales == "words"
            self.unit = 32 if words else 128
            entries = ceil_div(columns, self.unit * (4 if words else 1))
            dtype = torch.int32 if words else torch.float32
            self.s = GuardedOutput((*groups, entries, ceil_div(rows, 4) * 4), dtype, d.tensor.device)
            self.given = d.tensor, self.s.tensor[..., :rows].transpose(-1, -2)

    def check(self, complete: bool) -> None:
        self.d.check(complete=complete)
        if self.s is not None:
            self.s.check(complete=False)

    def values(self) -> torch.Tensor:
        """On the CPU; of q times its scales, NaN where nobody wrote."""
        if self.s is None:
            return self.d.tensor.cpu()
        q, s = (part.cpu() for part in self.given)
        if s.dtype == torch.int32:
            exponents = s.contiguous().view(torch.uint8).int()
            s = (exponents << 23).view(torch.float32)
        return q.float() * s.repeat_interleave(self.unit, -1)[..., : q.shape[-1]]


def drawn_gate(r: random.Random) -> SwiGLU | GeGLU:
    layout = r.choice(["halves", "interleaved"])
    return r.choice(
        [
            SwiGLU(layout=layout),
            SwiGLU(limit=7.0, alpha=1.702, up_shift=1.0, layout=layout),
            GeGLU(layout),
            GeGLU(layout, approximate="none"),
        ]
    )


def drawn_steps(r: random.Random, gate: SwiGLU | GeGLU | None, columns: int, packed: bool) -> Steps:
    """`columns` of D. Beside packed weights a scale of 128 columns wants whole blocks."""
    alpha = r.uniform(-2, 2) if r.random() < 0.15 else None
    scales = None
    if gate is not None and columns > 128 and r.random() < 0.6:
        scales = "words" if packed and columns % 128 else r.choice(["fp32", "words"])
    return Steps(alpha, gate, scales)
