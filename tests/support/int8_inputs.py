"""INT8 operands with scales, and what their products are, computed without the library."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from inputs import random_values

Scale = torch.Tensor | float


def values(shape: Sequence[int], device: torch.device | str, seed: int) -> torch.Tensor:
    """Every value, -128 too."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randint(-128, 128, tuple(shape), dtype=torch.int8, device=device, generator=generator)


def operands(m: int, n: int, k: int, device: torch.device, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return values((m, k), device, seed), values((n, k), device, seed + 1)


def scales(rows: int, device: torch.device, seed: int) -> torch.Tensor:
    return random_values((rows,), device, seed).abs() + 0.01


def exact(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """int64. (FP64 holds these sums exactly, and is fast on a GPU too.)"""
    return (a.double() @ b.double().T).long()


def wanted(
    a: torch.Tensor,
    scale_a: Scale,
    b: torch.Tensor,
    scale_b: Scale,
    dtype: torch.dtype,
    bias: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
) -> torch.Tensor:
    """What int8_gemm_nt says that it computes, bit by bit: each operation rounds to FP32."""
    along_m, along_n = (
        torch.as_tensor(scale, dtype=torch.float32, device=a.device).reshape(shape)
        for scale, shape in ((scale_a, (-1, 1)), (scale_b, (1, -1)))
    )
    result = exact(a, b).float() * along_m * along_n
    for more in (bias, c):
        result = result if more is None else result + more.float()
    return result.to(dtype)
