"""What a cubin's machine code tells without a disassembler. Opcodes were read off nvdisasm's listing (CUDA 13.0)."""

from __future__ import annotations

import struct
from typing import NamedTuple

INSTRUCTION_BYTES = 16
OPCODE = 0xFFF  # bits of an instruction's first word
QGMMA, R2UR, BRANCH, FSEL = 0x9F3, 0x2CA, 0x947, 0x208  # wgmma of FP8, move to a uniform register, jump, select


def code(cubin: bytes) -> bytes:
    """The machine code of a cubin's only kernel: an ELF file's section .text.NAME."""
    (headers,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, headers + index * size) for index in range(count)]
    names_at = sections[names][4]
    (text,) = (
        cubin[section[4] : section[4] + section[5]]
        for section in sections
        if cubin[names_at + section[0] :].startswith(b".text.")
    )
    return text


def instructions(cubin: bytes) -> list[int]:
    """A number of 128 bits each."""
    return [first | second << 64 for first, second in struct.iter_unpack("<QQ", code(cubin))]


def target(index: int, branch: int) -> int:
    """The instruction that the branch at `index` goes to: its distance in units of 4 bytes is a byte at bit 16 and,
    above it, 48 signed bits at bit 34."""
    high = branch >> 34 & (1 << 48) - 1
    high -= high >> 47 << 48
    return index + 1 + (high * 256 + (branch >> 16 & 0xFF)) * 4 // INSTRUCTION_BYTES


def wgmma_loops(instructions: list[int]) -> list[range]:
    """The innermost loops that multiply: the shortest first, none that overlaps one before."""
    back = [
        range(target(index, word), index + 1)
        for index, word in enumerate(instructions)
        if word & OPCODE == BRANCH and target(index, word) <= index
    ]
    loops: list[range] = []
    for loop in sorted(back, key=len):
        apart = all(loop.stop <= other.start or other.stop <= loop.start for other in loops)
        if apart and any(instructions[index] & OPCODE == QGMMA for index in loop):
            loops.append(loop)
    return loops


class LoopsOverK(NamedTuple):
    """What stands in the loops over K.

    FP8 wgmma; moves into uniform registers (R2UR) between two of them with no branch in between, each of which makes
    the next wgmma wait for its descriptor; and selects of FP32 values, which a branch taken in one round may have
    become in all of them.
    """

    wgmma: int
    moves: int
    selects: int


def loops_over_k(cubin: bytes) -> LoopsOverK:
    found = instructions(cubin)
    wgmma = moves = selects = 0
    for loop in wgmma_loops(found):
        after_wgmma, pending = False, 0
        for opcode in (found[index] & OPCODE for index in loop):
            if opcode == QGMMA:
                wgmma += 1
                moves += pending if after_wgmma else 0
                after_wgmma, pending = True, 0
            elif opcode == BRANCH:
                after_wgmma = False
            elif opcode == R2UR:
                pending += 1
            elif opcode == FSEL:
                selects += 1
    return LoopsOverK(wgmma, moves, selects)
