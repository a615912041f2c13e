"""What stands in the loops over K of SM120's kernels, a K block each; prints the table of docs/architectures.md:

    PYTHONPATH=. python tests/support/sass_sm120.py

Opcodes were read off nvdisasm's listing (CUDA 13.0), as sass.py's.
"""

from __future__ import annotations

from typing import NamedTuple

from field_calls import kernel_of
from sass import BRANCH, FFMA, LDS, OPCODE, SYNCS_ARRIVE, SYNCS_WAIT, UTMALDG, instructions, target

from deep_gemm._extension import C

TARGET, SMS = "sm_120a", 170
QMMA, OMMA = 0x47A, 0x47F  # QMMA.SF multiplies bytes with scales, OMMA.SF four bits
LDSM, LDGSTS, NOP = 0x83B, 0xFAE, 0x918
KINDS = {
    "FP8, a byte for 128 of K": {"exponent_scales": 1},
    "FP8, a byte for 32 of K": {"exponent_scales": 1, "gran_k_a": 32, "gran_k_b": 32},
    "FP8 by MXFP4": {"exponent_scales": 1, "e2m1r": 1},
    "MXFP4 by MXFP4": {"fp4": 1, "gran_k_a": 32, "gran_k_b": 32},
    "NVFP4 by NVFP4": {"fp4": 1, "gran_k_a": 16, "gran_k_b": 16},
    "FP8, FP32 scales": {},
}
SIZES = {"m": 4096, "n": 4096, "k": 4096, "num_sms": SMS}, {"m": 1, "n": 4096, "k": 7168, "num_sms": SMS}


class KBlock(NamedTuple):
    """What stands in the loop of a warp that multiplies."""

    products: int
    matrices: int  # loads of operands, of four matrices of 8 rows by 16 bytes
    words: int  # loads of scales, and of a next tile's place
    promotes: int  # FFMA
    copies: int  # by threads: those of whole blocks and those that end within one
    boxes: int  # by the copy engine
    waits: int
    arrivals: int
    instructions: int


def multiplying(code: list[int]) -> KBlock:
    """The shortest loop that multiplies."""
    back = [
        code[start : index + 1]
        for index, word in enumerate(code)
        if word & OPCODE == BRANCH and (start := target(index, word)) <= index
    ]
    loops = [loop for loop in back if count(loop, QMMA, OMMA) and count(loop, LDSM)]
    assert loops, "no loop that multiplies: has an opcode changed?"
    loop = min(loops, key=len)
    each = (count(loop, kind) for kind in (LDSM, LDS, FFMA, LDGSTS, UTMALDG, SYNCS_WAIT, SYNCS_ARRIVE))
    return KBlock(count(loop, QMMA, OMMA), *each, len(loop) - count(loop, NOP))


def count(code: list[int], *opcodes: int) -> int:
    return sum(word & OPCODE in opcodes for word in code)


def of_problem(fields: dict[str, int]) -> tuple[str, KBlock]:
    """The kernel's name, and its loop."""
    kernel = kernel_of("dense", fields, TARGET)
    name = str(kernel["name"])
    return name, multiplying(instructions(bytes(C.jit_compile(name, kernel["text"], TARGET, "cubin"))))


def rows() -> list[str]:
    found = []
    for sizes in SIZES:
        for kind, fields in KINDS.items():
            name, block = of_problem({**sizes, **fields})
            tile = name.partition("_dense_")[2].replace("_k_warpgroups", ", K in ").replace("_", " ")
            found.append(f"| {kind} | {tile} | {' | '.join(map(str, block))} |")
    return found


if __name__ == "__main__":
    print("\n".join(rows()))
