"""BF16 and FP16 operands in every layout, and the comparison of their products with FP64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from inputs import random_values, with_row_padding
from reference import BF16_TOLERANCES, assert_matches, product_nt

import deep_gemm

# Of A and B, and of D.
KINDS = [
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.float16),
    (torch.float16, torch.float16),
    (torch.float16, torch.float32),
]


def values(
    shape: Sequence[int], device: torch.device | str, seed: int, dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    return random_values(shape, device, seed).to(dtype)


def operands(
    m: int, n: int, k: int, device: torch.device, seed: int = 0, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, torch.Tensor]:
    return values((m, k), device, seed, dtype), values((n, k), device, seed + 1, dtype)


def lying(matrix: torch.Tensor, other_way: bool, padding: int = 0) -> torch.Tensor:
    """The same matrix, or its transpose, in lines that begin at multiples of 16 bytes; NaN behind each of them."""
    lines = matrix.transpose(-1, -2) if other_way else matrix
    return with_row_padding(lines, -lines.shape[-1] % 8 + padding)


def call(layout: str, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, padding: int = 0, **more) -> None:
    """`a` is [M, K] and `b` [N, K], whatever the layout."""
    # In the names, the second letter says how B lies where it is written as [K, N].
    a, b = lying(a, layout[0] == "t", padding), lying(b, layout[1] == "n", padding)
    getattr(deep_gemm, f"bf16_gemm_{layout}")(a, b, d, **more)


def matches(d: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None, what: str = "") -> None:
    assert_matches(d, product_nt(a, b, c), what or f"K={a.shape[1]}", BF16_TOLERANCES)
