"""Every product that takes epilogues: the shape of its D, and how it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from inputs import random_blocks, random_rows, random_values

import deep_gemm

M, N, K, GROUPS = 48, 72, 256, 3
Call = Callable[..., None]  # with d, and alpha= or epilogue=


def fp8(device: torch.device, *shape: int, blocks: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    operand = (random_blocks if blocks else random_rows)(shape, device, len(shape))
    return operand.data, operand.scales


def bf16(device: torch.device, *shape: int) -> torch.Tensor:
    return random_values(shape, device, len(shape)).bfloat16()


def dense(stem: str, layout: str) -> Callable[[torch.device], tuple[tuple[int, ...], Call]]:
    def make(device: torch.device) -> tuple[tuple[int, ...], Call]:
        function = getattr(deep_gemm, f"{stem}_gemm_{layout}")
        if stem == "bf16":
            a, b = bf16(device, M, K), bf16(device, N, K)
            operands: Any = (a if layout[0] == "n" else a.T.contiguous(), b if layout[1] == "t" else b.T.contiguous())
        else:
            pairs = fp8(device, M, K), fp8(device, N, K, blocks=True)
            operands = tuple(
                pair if straight else tuple(part.T.contiguous() for part in pair)
                for pair, straight in zip(pairs, (layout[0] == "n", layout[1] == "t"), strict=True)
            )
        return (M, N), lambda d, **more: function(*operands, d, **more)

    return make


def of_experts(stem: str, grouping: str) -> Callable[[torch.device], tuple[tuple[int, ...], Call]]:
    def make(device: torch.device) -> tuple[tuple[int, ...], Call]:
        rows = (GROUPS, 16, K) if grouping == "masked" else (M, K)
        weights = (GROUPS, K, N) if grouping == "nn" else (GROUPS, N, K)
        if stem == "bf16":
            a, b = bf16(device, *rows), bf16(device, *weights)
        else:
            a, b = fp8(device, *rows), fp8(device, *weights, blocks=True)
        if grouping == "masked":
            counts = torch.tensor([16, 0, 5], dtype=torch.int32, device=device)
            function = getattr(deep_gemm, f"m_grouped_{stem}_gemm_nt_masked")
            return (GROUPS, 16, N), lambda d, **more: function(a, b, d, counts, 8, **more)
        psum = grouping == "psum"
        ends = torch.tensor([16, 20, 48] if psum else [0] * 16 + [-1] * 16 + [2] * 16, dtype=torch.int32, device=device)
        function = getattr(deep_gemm, f"m_grouped_{stem}_gemm_{'nn' if grouping == 'nn' else 'nt'}_contiguous")
        return (M, N), lambda d, **more: function(a, b, d, ends, use_psum_layout=psum, **more)

    return make


def of_k_groups(stem: str) -> Callable[[torch.device], tuple[tuple[int, ...], Call]]:
    def make(device: torch.device) -> tuple[tuple[int, ...], Call]:
        ks = [128, 0, 128]
        layout = torch.tensor(ks, dtype=torch.int32, device=device)
        pairs: Any = [fp8(device, rows, K) for rows in (M, N)]
        operands: Any = [(data.T.contiguous(), scales.T.contiguous()) for data, scales in pairs]
        if stem == "bf16":
            operands = [bf16(device, K, rows) for rows in (M, N)]
        function = getattr(deep_gemm, f"k_grouped_{stem}_gemm_tn_contiguous")
        return (3, M, N), lambda d, **more: function(*operands, d, ks, layout, **more)

    return make


def of_heads(device: torch.device) -> tuple[tuple[int, ...], Call]:
    a, b = bf16(device, 5, 3, 64), bf16(device, 3, 40, 64)
    return (5, 3, 40), lambda d, **more: deep_gemm.einsum("bhr,hdr->bhd", a, b, d, **more)


def of_fp8_heads(device: torch.device) -> tuple[tuple[int, ...], Call]:
    a, b = fp8(device, 5, 3, 128), fp8(device, 3, 128, 128, blocks=True)
    return (5, 3, 128), lambda d, **more: deep_gemm.fp8_einsum("bhr,hdr->bhd", a, b, d, **more)


PRODUCTS = {
    **{f"{stem}_{layout}": dense(stem, layout) for stem in ("fp8", "bf16") for layout in ("nt", "nn", "tn", "tt")},
    **{
        f"{stem} experts {grouping}": of_experts(stem, grouping)
        for stem in ("fp8", "bf16")
        for grouping in ("nt", "nn", "psum", "masked")
    },
    "fp8 K groups": of_k_groups("fp8"),
    "bf16 K groups": of_k_groups("bf16"),
    "einsum": of_heads,
    "fp8_einsum": of_fp8_heads,
}


def real_rows(product: str, d: torch.Tensor) -> torch.Tensor:
    return torch.cat([d[0], d[2, :5]]) if product.endswith("masked") else d
