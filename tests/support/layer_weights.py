"""Weights of a MoE layer's experts in each form that `fp8_mega_moe` takes, and what they stand for."""

from __future__ import annotations

from typing import Any

import torch
from inputs import random_values

import deep_gemm
from deep_gemm.utils import per_block_cast_to_fp8

Made = tuple[Any, torch.Tensor]


def made(kind: str, experts: int, hidden: int, inner: int, device: torch.device) -> tuple[Made, Made]:
    """Of gates and ups, and of `down`. `kind`: fp8, or the element of packed weights."""
    shapes = (experts, 2 * inner, hidden), (experts, hidden, inner)
    if kind == "fp8":
        l1, l2 = (_blocks(shape, device, seed) for seed, shape in enumerate(shapes))
    else:
        l1, l2 = (_packed(shape, device, kind, rows) for shape, rows in zip(shapes, ("halves", None), strict=True))
    return l1, l2


def experts_of(weights: Any, first: int, count: int) -> Any:
    chosen = slice(first, first + count)
    return tuple(part[chosen] for part in weights) if isinstance(weights, tuple) else weights[chosen]


def _blocks(shape: tuple[int, ...], device: torch.device, seed: int) -> Made:
    """Blocks have scales of many sizes."""
    values = random_values(shape, device, seed)
    cast = [per_block_cast_to_fp8(each, False) for each in values]
    data, scales = (torch.stack(part) for part in zip(*cast, strict=True))
    scales *= torch.exp2(-torch.arange(scales.numel(), device=device) % 3).view(scales.shape) / 16
    wide = scales.repeat_interleave(128, 1).repeat_interleave(128, 2)
    return (data, scales), data.double() * wide.double()


def _packed(shape: tuple[int, ...], device: torch.device, element: str, gate_up: str | None) -> Made:
    group, low, high = {"e2m1": (32, 0, 16), "uint4": (128, 0, 16), "int4": (128, -8, 8)}[element]
    generator = torch.Generator().manual_seed(shape[1])
    codes = torch.randint(low, high, shape, dtype=torch.int8, generator=generator).to(device)
    scales = torch.exp2(-torch.arange(codes.numel() // group, device=device) % 4 - 5.0).view(*shape[:2], -1)
    zeros = torch.arange(scales.numel(), dtype=torch.int32, device=device).view(scales.shape) % 16
    weights = deep_gemm.pack_weights(
        codes,
        scales,
        zeros if element == "uint4" else None,
        element=element,
        activations="fp8",
        group_size=group,
        gate_up=gate_up,
    )
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64, device=device)
    numbers = torch.cat((table, -table))[codes.long()] if element == "e2m1" else codes.double()
    if element == "uint4":
        numbers -= zeros.repeat_interleave(group, 2)
    return weights, numbers * scales.double().repeat_interleave(group, 2)
