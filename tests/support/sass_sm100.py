"""What stands in the loops of SM100's kernels. Opcodes were read off nvdisasm's listing (CUDA 12.8), as sass.py's."""

from __future__ import annotations

from typing import NamedTuple

from sass import (
    BEYOND_CTA,
    BRANCH,
    LDS,
    MEMBAR,
    OPCODE,
    SYNCS_ARRIVE,
    SYNCS_WAIT,
    UTMALDG,
    cubin_of,
    instructions,
    target,
)

from deep_gemm._targets import GPUS

TARGET = "sm_100a"
MMA = (0x5EA, 0xDEA)  # UTCHMMA, UTCQMMA, UTCOMMA; and with scales
UTCCP, UTCBAR = 0x9E7, 0x3E9  # copy to tensor memory; arrival when all that was issued is over
LDTM, LDTM_COUNT = 0x9EE, 83  # load from tensor memory; the bit from which log2 of its registers stands
STS = (0x388, 0x988)
FFMA2, FMUL2 = 0x249, 0x24A
ELECT, NOP, CCTL = 0x82F, 0x918, 0x98F  # CCTL.IVALL: what the L1 holds is forgotten
UNIFORM_BRANCH = 0x547


def of_problem(grouping: str, fields: dict[str, int]) -> list[int]:
    """The instructions of the kernel that a problem gets."""
    return instructions(cubin_of(grouping, {"num_sms": GPUS[TARGET].sms, **fields}, TARGET))


def loop_with(code: list[int], *kinds: tuple[int, ...]) -> list[int]:
    """The instructions of the shortest loop that has one of each of these kinds."""
    back = [
        code[start : index + 1]
        for index, word in enumerate(code)
        if word & OPCODE in (BRANCH, UNIFORM_BRANCH) and (start := target(index, word)) <= index
    ]
    found = [loop for loop in back if all(count(loop, *kind) for kind in kinds)]
    assert found, f"no loop with {kinds}: has an opcode changed?"
    return min(found, key=len)


def count(code: list[int], *opcodes: int) -> int:
    return sum(word & OPCODE in opcodes for word in code)


class KBlock(NamedTuple):
    """What stands in a role's loop over K. Retries of waits stand elsewhere."""

    multiplies: int
    scale_copies: int
    commits: int
    boxes: int
    waits: int
    arrivals: int
    elections: int  # of the thread that issues
    beyond_cta: int  # waits until other SMs see all writes, or the L1 forgets what it holds
    instructions: int


def k_block(loop: list[int]) -> KBlock:
    beyond = sum(word & OPCODE == MEMBAR and word & BEYOND_CTA != 0 for word in loop) + count(loop, CCTL)
    each = [count(loop, *MMA), *(count(loop, opcode) for opcode in (UTCCP, UTCBAR, UTMALDG, SYNCS_WAIT, SYNCS_ARRIVE))]
    return KBlock(*each, count(loop, ELECT), beyond, issued(loop))


def issued(loop: list[int]) -> int:
    return len(loop) - count(loop, NOP)


def multiplying(code: list[int]) -> KBlock:
    return k_block(loop_with(code, MMA, (UTCBAR,), (SYNCS_WAIT,)))


def copying(code: list[int]) -> KBlock:
    return k_block(loop_with(code, (UTMALDG,), (SYNCS_WAIT,)))


def transposing(code: list[int]) -> KBlock:
    """Only where words of exponents do not come in blocks (`transposes_words`)."""
    return k_block(loop_with(code, (LDS,), STS, (SYNCS_WAIT,)))


class Promotion(NamedTuple):
    """What stands in the loop over K of a warp that promotes sums."""

    columns: int  # that are read from tensor memory
    additions: int  # multiplied and added, two elements each
    multiplications: int  # of scales, likewise
    scale_loads: int
    waits: int
    instructions: int


def promoting(code: list[int]) -> Promotion:
    loop = loop_with(code, (LDTM,), (FFMA2,), (SYNCS_WAIT,))
    each = (count(loop, opcode) for opcode in (FFMA2, FMUL2, LDS, SYNCS_WAIT))
    return Promotion(columns_read(loop), *each, issued(loop))


def columns_read(loop: list[int]) -> int:
    return sum(1 << (word >> LDTM_COUNT & 7) for word in loop if word & OPCODE == LDTM)


def store_instructions(code: list[int]) -> float:
    """Of a store warp's loop over chunks of a tile, for each element of D that a thread has."""
    loop = loop_with(code, (LDTM,))
    return issued(loop) / columns_read(loop)
