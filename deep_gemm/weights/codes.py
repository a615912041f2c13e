"""Where each 4-bit code lies in a packed matrix.

A block of 64 rows and 128 of K is 4096 bytes. A thread of a warpgroup that multiplies it reads 16 bytes for each 64 of
K, and finds in each of their words what one register of wgmma's A operand wants of row r (converted from the "first"
codes) and of row r + 8 (from the "second"):

    row = 64 block + 16 warp + 8 half + r                         warp 0..3, half 0..1, r 0..7
    k   = 128 k_block + 64 v + 32 s + 16 h + 4 quad + byte        v, s, h 0..1, quad and byte 0..3
    at    2048 v + 16 (32 warp + 4 r + quad) + 8 s + 4 h + byte   half 0 is the first code there, half 1 the second

Two's complement, and E2M1: the first code in the low nibble, the second in the high one. Sign and magnitude: the first
one's sign in bit 7 and magnitude in bits 0 to 2; the second one's sign in bit 3, and its magnitude in bits 4 to 6 of
the byte before it in the word (of byte 3 for byte 0), so that the word rotated left by 4 has it where the first's is.
Unsigned, where zero points are subtracted: as two's complement, of values that are 8 more.

E2M1 that is looked up: the magnitudes of a word's first codes are nibbles of bytes 0 and 1, those of the second ones
of bytes 2 and 3; signs are bits 7 and 3 as above.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..utils.math import align
from .packings import K_BLOCK

BLOCK_ROWS = 64
BLOCK_BYTES = BLOCK_ROWS * K_BLOCK // 2
PADDED_ROWS = 128  # the smallest tile of weights has so many rows

UNSIGNED = 0x88  # two's complement with these bits turned over is the code of a value that is 8 more

_VALUES_AT_ONCE = 1 << 24

# The dimensions of `[rows, K]` as row and k above name them, and the order in which they are stored.
_ROW_AND_K = (-1, 4, 2, 8), (2, 2, 2, 4, 4)
_STORED = (2, 0, 4, 5, 1, 3, 8, 6, 7, 9)  # half, block | k_block, v, warp, r, quad, s, h, byte
_NATURAL = tuple(_STORED.index(dimension) for dimension in range(len(_STORED)))


# What the codes of E2M1 are, by the code.
E2M1 = torch.tensor([sign * value for sign in (1, -1) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)])


def row_chunks(n: int, k: int) -> Iterator[tuple[int, int]]:
    """The first and the last row (exclusive) of parts of a matrix that are small enough to lie unpacked."""
    step = max(PADDED_ROWS, _VALUES_AT_ONCE // max(k, 1) // PADDED_ROWS * PADDED_ROWS)
    for first in range(0, n, step):
        yield first, min(first + step, n)


def to_blocks(values: torch.Tensor) -> torch.Tensor:
    """int8 `[N, K]` of -8..7, N and K multiples of a block's -> uint8 `[N / 64, K / 128, 4096]`, two's complement."""
    k_blocks = values.shape[1] // K_BLOCK
    rows, columns = _ROW_AND_K
    halves = values.contiguous().view(torch.uint8).view(*rows, k_blocks, *columns).permute(_STORED)
    return ((halves[0] & 15) | (halves[1] << 4)).reshape(-1, k_blocks, BLOCK_BYTES)


def from_blocks(codes: torch.Tensor) -> torch.Tensor:
    """The inverse of `to_blocks`."""
    blocks, k_blocks, _ = codes.shape
    rows, columns = _ROW_AND_K
    _, warps, _, r = rows
    v, s, h, quads, byte = columns
    pairs = codes.reshape(blocks, k_blocks, v, warps, r, quads, s, h, byte).view(torch.int8)
    halves = torch.stack((pairs << 4, pairs)) >> 4
    return halves.permute(_NATURAL).reshape(blocks * BLOCK_ROWS, k_blocks * K_BLOCK)


def to_sign_magnitude(codes: torch.Tensor) -> torch.Tensor:
    """Codes in two's complement, none of which is -8 -> the same ones as sign and magnitude."""
    first_sign, first = _magnitude(codes & 15)
    second_sign, second = _magnitude(codes >> 4)
    return first_sign << 7 | first | second_sign << 3 | _turned(second, -1) << 4


def from_sign_magnitude(codes: torch.Tensor) -> torch.Tensor:
    """The inverse of `to_sign_magnitude`."""
    first = _nibble(codes >> 7, codes & 7)
    second = _nibble(codes >> 3 & 1, _turned(codes >> 4 & 7, 1))
    return first | second << 4


def to_lookup(codes: torch.Tensor) -> torch.Tensor:
    """Codes of E2M1, in nibbles -> the same ones as they are looked up."""
    words = codes.reshape(-1, 4)
    first, second = words & 15, words >> 4
    magnitudes = torch.cat((first, second), 1) & 7
    return (magnitudes[:, 0::2] | magnitudes[:, 1::2] << 4 | (first & 8) << 4 | second & 8).view(codes.shape)


def from_lookup(codes: torch.Tensor) -> torch.Tensor:
    """The inverse of `to_lookup`."""
    words = codes.reshape(-1, 4)
    magnitudes = torch.stack((words & 7, words >> 4 & 7), 2).flatten(1)
    first, second = magnitudes[:, :4] | words >> 4 & 8, magnitudes[:, 4:] | words & 8
    return (first | second << 4).view(codes.shape)


def used_groups(codes: torch.Tensor) -> torch.Tensor:
    """Of one matrix of E2M1, in nibbles: bool `[K / 32, rows]`, whether one of the 32 is not zero."""
    blocks, k_blocks, _ = codes.shape
    v, s, h, quads, byte = _ROW_AND_K[1]
    parts = codes.reshape(blocks, k_blocks, v, *_ROW_AND_K[0][1:2], _ROW_AND_K[0][3], quads, s, h * byte)
    halves = torch.stack(((parts & 0x07).amax((5, 7)), (parts & 0x70).amax((5, 7))))
    half, block, k_block, v, warp, r, s = range(7)
    return halves.permute(k_block, v, s, block, warp, half, r).reshape(k_blocks * 4, blocks * BLOCK_ROWS) != 0


def _magnitude(nibbles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sign = nibbles >> 3
    return sign, ((nibbles ^ sign * 15) + sign) & 7


def _nibble(sign: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    return ((magnitude ^ sign * 15) + sign) & 15


def _turned(values: torch.Tensor, bytes_up: int) -> torch.Tensor:
    """Each byte of a word moved to that many bytes above."""
    return values.reshape(-1, 4).roll(bytes_up, 1).view(values.shape)


def padded_shape(n: int, k: int) -> tuple[int, int]:
    return align(n, PADDED_ROWS), align(k, K_BLOCK)
