"""Where each code lies in a matrix that is packed for 16-bit activations.

A block has 64 rows and 128 of K. A thread of a warpgroup that multiplies it reads 16 bytes at a time, for 64 of K where
codes have 4 bits and for 32 where they have 8. A word is for two or four registers of wgmma's A operand, which are two
values of K each; its halves hold the codes of the first and of the second:

    row  = 64 block + 16 warp + 8 half + r                   warp 0..3, half 0..1, r 0..7
    k    = 128 k_block + 16 step + 8 h + 2 quad + e          step 0..7, h 0..1, quad 0..3, e 0..1
    unit = step / 4 (4 bits) or step / 2 (8 bits), and its word is step % 4, or 2 (step % 2) + h
    at     2048 unit + 16 (32 warp + 4 r + quad) + 4 word, bits 16 e and up

`Places` says where in those 16 bits each bit of a code is, for each register of the word: half and h count them.
"""

from __future__ import annotations

import torch

from .packings import K_BLOCK, Places

_BLOCK_ROWS = 64
_UNIT_WORDS = 4
_STEPS = K_BLOCK // 16

# Dimensions of [rows, K]: block, warp, half, r | k_block, unit, step, h, quad, e; without half, h and e as they lie.
_AS_THEY_LIE = (0, 3, 4, 1, 2, 6, 5)  # block, k_block, unit, warp, r, quad, step
_NATURAL = tuple(_AS_THEY_LIE.index(dimension) for dimension in range(len(_AS_THEY_LIE)))


def to_words(codes: torch.Tensor, places: Places) -> torch.Tensor:
    """uint8 `[N, K]`, N and K multiples of a block's -> uint8 `[N / 64, K / 128, bytes of a block]`."""
    step_words = 4 // len(places)
    k_blocks, steps = codes.shape[1] // K_BLOCK, _UNIT_WORDS // step_words
    split = codes.reshape(-1, 4, 2, 8, k_blocks, _STEPS // steps, steps, 2, 4, 2)
    words = [torch.zeros((), dtype=torch.int32, device=codes.device)] * step_words
    for register in range(4):
        half, h = register % 2, register // 2
        table = _table(places[register % len(places)], codes.device)
        for e in range(2):
            part = split[:, :, half, ..., h, :, e].permute(_AS_THEY_LIE)
            words[register // len(places)] = words[register // len(places)] | table[part.int()] << 16 * e
    return torch.stack(words, -1).view(torch.uint8).reshape(codes.shape[0] // _BLOCK_ROWS, k_blocks, -1)


def from_words(packed: torch.Tensor, places: Places) -> torch.Tensor:
    """The inverse of `to_words`."""
    blocks, k_blocks, _ = packed.shape
    step_words = 4 // len(places)
    steps = _UNIT_WORDS // step_words
    words = packed.contiguous().view(torch.int32).reshape(blocks, k_blocks, -1, 4, 8, 4, steps, step_words)
    codes = torch.empty(
        (blocks, 4, 2, 8, k_blocks, _STEPS // steps, steps, 2, 4, 2), dtype=torch.uint8, device=packed.device
    )
    for register in range(4):
        half, h = register % 2, register // 2
        word = words[..., register // len(places)].permute(_NATURAL)
        for e in range(2):
            code = torch.zeros_like(word)
            for bit, place in enumerate(places[register % len(places)]):
                code |= (word >> 16 * e + place & 1) << bit
            codes[:, :, half, ..., h, :, e] = code.to(torch.uint8)
    return codes.view(blocks * _BLOCK_ROWS, k_blocks * K_BLOCK)


def _table(places: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """What each code is among the 16 bits."""
    codes = torch.arange(1 << len(places), dtype=torch.int32)
    bits = [(codes >> bit & 1) << place for bit, place in enumerate(places)]
    return torch.stack(bits).sum(0, dtype=torch.int32).to(device)
