"""Packing of exponents, as SM100 multiplies them: MN-major and in blocks of rows, against torch; odd sizes."""

from __future__ import annotations

import pytest
import torch
from devices import FEW
from inputs import ceil_div, with_awkward_strides

from deep_gemm._extension import C

E8M0 = torch.float8_e8m0fnu
BLOCK = 128
SHAPES = [(1, 1), (5, 4), (33, 5), (128, 3), (130, 17), (300, 66)]
NAN = 255


def exponents(shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(0, 255, shape, generator=generator, dtype=torch.uint8).to(device)


def words_of(exponent: torch.Tensor) -> torch.Tensor:
    """uint8 [groups, rows, k] -> int32 [groups, rows, words], the lowest K in the low byte, then zeros."""
    groups, rows, k = exponent.shape
    padded = torch.zeros((groups, rows, ceil_div(k, 4) * 4), dtype=torch.uint8, device=exponent.device)
    padded[..., :k] = exponent
    return padded.view(torch.int32)


def expected(exponent: torch.Tensor, rows: int, granularity: int, in_blocks: bool) -> torch.Tensor:
    words = words_of(exponent.repeat_interleave(granularity, 1)[:, :rows])
    padded_rows = ceil_div(rows, BLOCK) * BLOCK if in_blocks else ceil_div(rows, 4) * 4
    padded = torch.zeros((len(words), padded_rows, words.shape[2]), dtype=torch.int32, device=words.device)
    padded[:, :rows] = words
    if not in_blocks:
        return padded.transpose(1, 2)
    place = torch.tensor([row % 32 * 4 + row // 32 for row in range(BLOCK)], device=words.device)
    blocks = torch.empty_like(padded).view(len(words), -1, BLOCK, words.shape[2])
    blocks[:, :, place] = padded.view(blocks.shape)
    return blocks.transpose(2, 3)


def as_scales(exponent: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "float32":
        return (exponent.int() << 23).view(torch.float32)
    return exponent.view(E8M0) if kind == "e8m0" else words_of(exponent)


def laid_out(scales: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "row_major":
        return scales
    if layout == "mn_major":
        return scales.transpose(1, 2).contiguous().transpose(1, 2)
    plain = {1: torch.uint8, 4: torch.int32}[scales.element_size()]
    gaps = with_awkward_strides(scales.view(plain).float())  # only for its strides
    room = torch.full((gaps.untyped_storage().nbytes() // 4,), 3, dtype=plain, device=scales.device)
    apart = room.as_strided(gaps.shape, gaps.stride(), gaps.storage_offset())
    apart.copy_(scales.view(plain))
    return apart.view(scales.dtype)


def pack(scales: torch.Tensor, rows: int, granularity: int, in_blocks: bool) -> torch.Tensor:
    groups, words = len(scales), scales.shape[2] if scales.dtype == torch.int32 else ceil_div(scales.shape[2], 4)
    shape = (groups, ceil_div(rows, BLOCK), words, BLOCK) if in_blocks else (groups, words, ceil_div(rows, 4) * 4)
    out = torch.full(shape, -1, dtype=torch.int32, device=scales.device)
    C.scale_layout_pack(scales, out, rows, granularity)
    return out


@pytest.mark.sampled(60)
@pytest.mark.parametrize("in_blocks", [False, True], ids=["mn_major", "blocks"])
@pytest.mark.parametrize("layout", ["row_major", "mn_major", "apart"])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("granularity", [1, 128])
@pytest.mark.parametrize("kind", ["float32", "e8m0", "int32"])
@pytest.mark.parametrize(("rows", "k"), SHAPES)
@pytest.mark.parametrize("device", FEW, indirect=True)
def test_packed(device, rows, k, kind, granularity, groups, layout, in_blocks) -> None:
    exponent = exponents((groups, ceil_div(rows, granularity), k), device)
    result = pack(laid_out(as_scales(exponent, kind), layout), rows, granularity, in_blocks)
    assert torch.equal(result, expected(exponent, rows, granularity, in_blocks))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("in_blocks", [False, True], ids=["mn_major", "blocks"])
def test_what_is_no_power_of_two_becomes_nan(device, in_blocks) -> None:
    scales = torch.ones((1, 130, 6), device=device)
    exponent = torch.full((1, 130, 6), 127, dtype=torch.uint8, device=device)
    for (row, k), wrong in {(0, 0): 1.5, (31, 3): -1.0, (32, 4): float("nan"), (129, 5): 1e-40}.items():
        scales[0, row, k], exponent[0, row, k] = wrong, NAN
    assert torch.equal(pack(scales, 130, 1, in_blocks), expected(exponent, 130, 1, in_blocks))
