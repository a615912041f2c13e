"""What a cubin's machine code tells without a disassembler. Opcodes were read off nvdisasm's listing (CUDA 13.0)."""

from __future__ import annotations

import struct

INSTRUCTION_BYTES = 16
OPCODE = 0xFFF  # bits of an instruction's first word
QGMMA, R2UR, BRANCH = 0x9F3, 0x2CA, 0x947


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


def opcodes(cubin: bytes) -> list[int]:
    words = struct.iter_unpack("<QQ", code(cubin))
    return [first & OPCODE for first, _ in words]


def moves_between_wgmma(cubin: bytes) -> tuple[int, int]:
    """FP8 wgmma instructions, and moves into uniform registers (R2UR) between two of them with no branch in between:
    each makes the next wgmma wait for its descriptor."""
    multiplies = moves = pending = 0
    after_wgmma = False
    for opcode in opcodes(cubin):
        if opcode == QGMMA:
            multiplies += 1
            moves += pending if after_wgmma else 0
            after_wgmma, pending = True, 0
        elif opcode == BRANCH:
            after_wgmma = False
        elif opcode == R2UR:
            pending += 1
    return multiplies, moves
