"""Products with quantised output, and what it must be: to the bit deep_gemm.utils of the FP32 result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from inputs import GuardedOutput, ceil_div, random_blocks, random_rows, random_values

import deep_gemm
from deep_gemm.utils import per_token_cast_to_fp8

FP8 = torch.float8_e4m3fn
K = 256
SCALES = {"fp32": (torch.float32, 128, 1), "words of 128": (torch.int32, 128, 4), "words of 32": (torch.int32, 32, 4)}
ALIGNMENT = 64
# Rows of experts: one, none, more than a block, a whole one; then a block of nothing but padding.
COUNTS, ROWS = (1, 0, 70, 64), 320
ONE_COUNT, ONE_ROWS = (70,), 192


class QuantisedOutput:
    """q and s as the next product takes them, with guards around both."""

    def __init__(
        self, shape: tuple[int, ...], scales: str, device: torch.device, row_stride: int | None = None
    ) -> None:
        *groups, rows, columns = shape
        dtype, self.columns, per_entry = SCALES[scales]
        entries = ceil_div(columns, self.columns * per_entry)
        self.one_word = per_entry == 4 and columns <= 128
        if self.one_word:
            self.columns = 32  # and of FP8CastWithClamp only
        self.q = GuardedOutput(shape, FP8, device, row_stride)
        self.s = GuardedOutput((*groups, entries, ceil_div(rows, 4) * 4), dtype, device)
        self.words, self.rows = per_entry == 4, rows
        self.pair = self.q.tensor, self.s.tensor[..., :rows].transpose(-1, -2)

    def check(self, wanted: torch.Tensor, written: torch.Tensor, padding: torch.Tensor) -> None:
        """`wanted` in FP32; masks of rows."""
        self.q.check(complete=False)
        self.s.check(complete=False)
        q, s = self.pair
        n = q.shape[-1]
        packed = self.words
        flat = wanted.reshape(-1, n)
        cast_q, cast_s = per_token_cast_to_fp8(flat, use_ue8m0=packed, gran_k=self.columns, use_packed_ue8m0=packed)
        one = 0x7F7F7F7F if packed else 1.0
        cast_s = cast_s.view(*wanted.shape[:-1], -1)
        cast_s[padding] = one
        found, expected = q.view(torch.uint8), cast_q.view(wanted.shape).view(torch.uint8)
        assert torch.equal(found[written], expected[written])
        assert torch.equal(s[written], cast_s[written])
        assert (found[~written] == 0xFF).all(), "rows that nobody asked for were written"
        assert (s[~written].contiguous().view(torch.int32) == self.s.pattern).all()
        behind = self.s.tensor[..., self.rows :].contiguous().view(torch.int32)
        assert (behind == self.s.pattern).all(), "columns of scales were written behind their rows"


@dataclass
class Product:
    shape: tuple[int, ...]
    call: Callable[..., None]
    written: torch.Tensor  # of rows
    padding: torch.Tensor

    def check(self, scales: str, device: torch.device, row_stride: int | None = None, **more: Any) -> None:
        wide = torch.full(self.shape, float("nan"), device=device)
        out = QuantisedOutput(self.shape, scales, device, row_stride)
        self.call(wide, **more)
        if out.one_word:
            with pytest.raises(ValueError, match="one word of a row may be for 32 columns or for 128"):
                self.call(out.pair, **more)
            out.q.assert_untouched()
            out.s.assert_untouched()
            return
        self.call(out.pair, **more)
        assert wide[self.written].isfinite().all()
        out.check(wide, self.written, self.padding)


def operands(stem: str, device: torch.device, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Any, Any]:
    if stem == "bf16":
        return random_values(a, device, 1).bfloat16(), random_values(b, device, 2).bfloat16()
    if stem == "int8":
        codes = [(random_values(shape, device, shape[-2]) * 40).clamp(-128, 127).to(torch.int8) for shape in (a, b)]
        return (codes[0], random_values(a[:-1], device, 3).abs()), (codes[1], random_values(b[:-1], device, 4).abs())
    return tuple(random_rows(a, device, 1)), tuple(random_blocks(b, device, 2))


def dense(stem: str, device: torch.device, m: int, n: int, k: int = K, columns: int = 0) -> Product:
    a, b = operands(stem, device, (m, k), (n, k))
    function = getattr(deep_gemm, f"{stem}_gemm_nt")
    every = torch.ones(m, dtype=torch.bool, device=device)
    return Product((m, columns or n), lambda d, **more: function(a, b, d, **more), every, ~every)


def of_experts(
    stem: str, grouping: str, device: torch.device, n: int, k: int = K, columns: int = 0, one: bool = False
) -> Product:
    """Of `columns` columns of D, if not of N. `one`: a single expert."""
    counts, rows = (ONE_COUNT, ONE_ROWS) if one else (COUNTS, ROWS)
    columns = columns or n
    if grouping == "masked":
        of_experts = torch.tensor(counts, dtype=torch.int32, device=device)
        a, b = operands(stem, device, (len(counts), 96, k), (len(counts), n, k))
        function = getattr(deep_gemm, f"m_grouped_{stem}_gemm_nt_masked")
        written = torch.arange(96, device=device) < of_experts[:, None]
        return Product(
            (len(counts), 96, columns),
            lambda d, **more: function(a, b, d, of_experts, 32, **more),
            written,
            torch.zeros_like(written),
        )
    a, b = operands(stem, device, (rows, k), (len(counts), n, k))
    experts = torch.full((rows,), -1, dtype=torch.int32, device=device)
    ends, row = [], 0
    for expert, count in enumerate(counts):
        experts[row : row + count] = expert
        ends.append(row + count)
        row += ceil_div(count, ALIGNMENT) * ALIGNMENT
    psum = grouping == "psum"
    layout = torch.tensor(ends, dtype=torch.int32, device=device) if psum else experts
    written = torch.arange(rows, device=device) < (row if psum else rows)
    function = getattr(deep_gemm, f"m_grouped_{stem}_gemm_nt_contiguous")
    return Product(
        (rows, columns),
        lambda d, **more: function(a, b, d, layout, use_psum_layout=psum, **more),
        written,
        experts < 0,
    )
