"""Scales in many layouts, and how packed ones look."""

from __future__ import annotations

import torch
from inputs import ceil_div, with_awkward_strides

import deep_gemm


def random_scales(shape, device, powers_of_two=False, seed=0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if powers_of_two:
        scales = torch.exp2(torch.randint(-126, 128, shape, generator=generator).float())
    else:
        scales = torch.rand(shape, generator=generator) + 0.5
    return scales.to(device)


def shape_of(groups, mn, k):
    return (mn, k) if groups is None else (groups, mn, k)


def on(device, values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def psum_ends(ks, alignment) -> list[int]:
    """Where each group ends, the next one starting at that rounded up."""
    ends = []
    for k in ks:
        ends.append((ceil_div(ends[-1], alignment) * alignment if ends else 0) + k)
    return ends


def strided(scales: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "row_major":
        return scales
    if layout == "mn_major":  # without padding
        return scales.transpose(-1, -2).contiguous().transpose(-1, -2)
    return with_awkward_strides(scales)


def assert_required_strides(result: torch.Tensor) -> None:
    rows = result.shape[-2]
    padded = deep_gemm.get_tma_aligned_size(rows, 4)
    assert result.stride()[-2:] == (1, padded)
    if result.dim() == 3:
        assert result.stride(0) == padded * result.shape[-1]
    assert result.data_ptr() % 16 == 0


def with_padding(result: torch.Tensor) -> torch.Tensor:
    """The result and the padding of its rows."""
    *groups, rows, columns = result.shape
    return result.as_strided((*groups, deep_gemm.get_tma_aligned_size(rows, 4), columns), result.stride())


def packed_reference(scales: torch.Tensor) -> torch.Tensor:
    """Four exponents a word, the first in the low byte."""
    *groups, mn, k = scales.shape
    exponents = torch.zeros((*groups, mn, ceil_div(k, 4) * 4), dtype=torch.int64, device=scales.device)
    exponents[..., :k] = (scales.contiguous().view(torch.int32) >> 23).long()
    parts = exponents.view(*groups, mn, -1, 4)
    words = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16 | parts[..., 3] << 24
    return words.where(words < 1 << 31, words - (1 << 32)).to(torch.int32)
