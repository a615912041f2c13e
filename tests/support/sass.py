"""What a cubin's machine code tells without a disassembler. Opcodes were read off nvdisasm's listing (CUDA 13.0)."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from field_calls import kernel_of

from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

INSTRUCTION_BYTES = 16
OPCODE, PREDICATE, ALWAYS = 0xFFF, 0xF000, 0x7000  # bits of an instruction's first word; of no predicate
WGMMA = (0x9F3, 0x9F0, 0x9F1)  # of FP8, BF16 and integers, both operands in shared memory
R2UR, BRANCH, FSEL = 0x2CA, 0x947, 0x208  # move to a uniform register, jump, select
WGMMA_REGISTERS = (0xDF0, 0xDF1, 0xDF3)  # the same with A in registers: of TF32 and BF16, integers, FP8
WARPGROUP, EXIT = 0x9C5, 0x94D  # the fence of wgmma, and its wait
WAITS = 1 << 47  # of WARPGROUP: the wait
LDS, SYNCS_ARRIVE = 0x984, 0x9A7  # load from shared memory, arrival at a barrier
LDL = 0x983  # load from local memory
SYNCS_INIT, SYNCS_WAIT, BAR = 0x5B2, 0x5A7, 0xB1D  # a barrier is initialised, waited for; one of all threads
BAR_BY_REGISTER = 0x51D  # a named barrier, whose number a register holds
CLUSTER_ARRIVE, CLUSTER_WAIT = 0x9C7, 0xDC7  # UCGABAR_ARV, UCGABAR_WAIT: the barrier of a cluster
MEMBAR, BEYOND_CTA = 0x992, 1 << 77  # a thread waits for its memory accesses; not only as far as its CTA sees them
UTMALDG, UTMAPF = 0x5B4, 0x5B8  # copy of a box; the L2 is asked for one
FFMA, NO_YIELD = 0x223, 1 << 109  # of four registers; the scheduler need not turn to another warp
# Without the bits that tell kinds of operands: LD, LDG, LDC, LDL, LDS; CS2R and IMAD.WIDE; what is no plain arithmetic
# (conversions, MUFU, POPC ...), S2R, SHFL.
LOADS, PAIRS, OTHER_WRITERS = range(0x180, 0x185), (0x05, 0x25), (*range(0x100, 0x10A), 0x119, 0x189)
UNIFORM = range(0x80, 0xC0)  # arithmetic of uniform registers


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


def entry(text: str) -> str:
    """The name of the kernel in a source text."""
    return re.search(r"(\w+)\(const __grid_constant__", text)[1]


def cubin_of(grouping: str, fields: dict[str, int], target: str) -> bytes:
    """The image of the kernel that a problem gets: fields as kernel_of takes them."""
    kernel = kernel_of(grouping, fields, target)
    return bytes(C.jit_compile(kernel["name"], kernel["text"], target, "cubin"))


def of_problem(grouping: str, fields: dict[str, int]) -> list[int]:
    """The instructions of Hopper's."""
    return instructions(cubin_of(grouping, {"num_sms": HOPPER_SMS, **fields}, HOPPER_TARGET))


def target(index: int, branch: int) -> int:
    """The instruction that the branch at `index` goes to: its distance in units of 4 bytes is a byte at bit 16 and,
    above it, 48 signed bits at bit 34."""
    high = branch >> 34 & (1 << 48) - 1
    high -= high >> 47 << 48
    return index + 1 + (high * 256 + (branch >> 16 & 0xFF)) * 4 // INSTRUCTION_BYTES


def wgmma_loops(instructions: list[int]) -> list[range]:
    """The innermost loops that multiply."""
    return loops_with(instructions, *WGMMA)


def loops_with(instructions: list[int], *opcodes: int) -> list[range]:
    """The innermost loops with one of these: the shortest first, none that overlaps one before."""
    back = [
        range(target(index, word), index + 1)
        for index, word in enumerate(instructions)
        if word & OPCODE == BRANCH and target(index, word) <= index
    ]
    loops: list[range] = []
    for loop in sorted(back, key=len):
        apart = all(loop.stop <= other.start or other.stop <= loop.start for other in loops)
        if apart and any(instructions[index] & OPCODE in opcodes for index in loop):
            loops.append(loop)
    return loops


def written(instruction: int) -> range:
    """The registers that an instruction writes, or more: of a load as many as may start there. None for those of wgmma,
    whose order ptxas sees to."""
    kind, first = instruction & 0x1FF, instruction >> 16 & 0xFF
    if kind in LOADS:
        return range(first, first + (4 if first % 4 == 0 else 2 if first % 2 == 0 else 1))
    if kind in PAIRS:
        return range(first, first + 2)
    return range(first, first + 1) if kind < 0x80 or kind in OTHER_WRITERS else range(0)


def overwritten_operands(instructions: list[int]) -> list[int]:
    """Instructions that write a register which a wgmma under way still reads. ptxas takes no notice of such reads.

    A wait leaves the newest groups of wgmma under way, as many as it says (3 bits at bit 72). The last wgmma of a group
    names a scoreboard (3 bits at bit 84, 0), the others none (7).
    """
    found: set[int] = set()
    for start, wgmma in enumerate(instructions):
        if wgmma & OPCODE in WGMMA_REGISTERS:
            first = wgmma >> 24 & 0xFF
            found |= _writes_under_way(instructions, start, set(range(first, first + 4)))
    return sorted(found)


def _writes_under_way(instructions: list[int], start: int, registers: set[int]) -> set[int]:
    """Instructions that write one of these registers before the wgmma at `start` is over."""
    found = set()
    ways, seen = [(start + 1, int(_ends_group(instructions[start])))], set()
    while ways:
        index, groups = ways.pop()  # begun by its own, and ended
        word = instructions[index]
        is_wait = word & OPCODE == WARPGROUP and word & WAITS
        if (index, groups) in seen or (is_wait and groups > word >> 72 & 7):
            continue
        seen.add((index, groups))
        if set(written(word)) & registers:
            found.add(index)
        groups = min(groups + _ends_group(word), 7)
        ways += [(way, groups) for way in successors(instructions, index)]
    return found


def _ends_group(word: int) -> bool:
    return word & OPCODE in (*WGMMA, *WGMMA_REGISTERS) and word >> 84 & 7 == 0


def yields(instruction: int) -> bool:
    return not instruction & NO_YIELD


def successors(instructions: list[int], index: int) -> list[int]:
    word = instructions[index]
    ways = [target(index, word)] if word & OPCODE == BRANCH else []
    if word & OPCODE not in (BRANCH, EXIT) or word & PREDICATE != ALWAYS:
        ways.append(index + 1)
    return [way for way in ways if way < len(instructions)]


def early_arrivals(instructions: list[int]) -> list[int]:
    """Arrivals at a barrier of warps that may still be reading the stage which they let go.

    The hardware does not order the two: behind other warps' loads, one from shared memory may take longer than it takes
    the copy engine to be told and to overwrite what is read. A load names a scoreboard (3 bits at bit 110; there are
    six), and who needs the value waits for it (a mask at bit 116). A stage is let go when its wgmma are over: so loads
    from before the oldest group of wgmma that may be under way must have come, and, where none is, loads from behind
    the wait for the last one, too. (Those from between its begin and that wait are of the next stage. A second wait
    without wgmma in between is on a way that cannot be: the loop goes on though there was nothing more to multiply.)
    """
    boards, ahead, now, one, two = 63, 0, 6, 12, 18  # masks of scoreboards, one above the other
    known: dict[tuple[int, int | None], int] = {}  # loads under way by instruction and groups; None: no group yet
    found = set()
    ways: list[tuple[int, int | None, int]] = [(0, None, 0)]
    while ways:
        index, groups, loads = ways.pop()
        before = known.get((index, groups), -1)
        if before >= 0 and loads | before == before:
            continue
        loads = known[index, groups] = loads | max(before, 0)
        word = instructions[index]
        awaited = word >> 116 & boards
        loads &= ~(awaited << ahead | awaited << now | awaited << one | awaited << two)
        if word & OPCODE == WARPGROUP and word & WAITS:
            groups = min(groups or 0, word >> 72 & 7)
            loads |= (loads >> now & boards) << ahead
            loads &= ~(boards << now)
        elif word & OPCODE == WARPGROUP:
            groups = min((groups or 0) + 1, 2)
            older = loads >> one & boards | loads >> two
            loads = ((loads >> ahead | loads >> now) & boards) << one | older << two
        elif word & OPCODE == SYNCS_ARRIVE and groups is not None:
            if loads >> (now, two, two + 6)[groups]:
                found.add(index)
        elif word & OPCODE == LDS and word >> 110 & 7 < 6:
            loads |= 1 << (word >> 110 & 7) << (ahead if groups else now)
        ways += [(way, groups, loads) for way in successors(instructions, index)]
    return sorted(found)


class LoopsOverK(NamedTuple):
    """What stands in the loops over K.

    wgmma; parts of their descriptors that come from moves into uniform registers (R2UR) behind another wgmma, with
    no branch in between: the next one waits for them; and selects of FP32 values, which a branch taken in one round may
    have become in all of them.
    """

    wgmma: int
    moves: int
    selects: int


def loops_over_k(found: list[int]) -> LoopsOverK:
    wgmma = moves = selects = 0
    for loop in wgmma_loops(found):
        after_wgmma = False
        moved: set[int] = set()  # uniform registers that a move behind the last wgmma decides
        for word in (found[index] for index in loop):
            opcode, target_register = word & OPCODE, word >> 16 & 0xFF
            if opcode in WGMMA:
                descriptor = word >> 24 & 0xFF
                wgmma += 1
                moves += len(moved & set(range(descriptor, descriptor + 4))) if after_wgmma else 0
                after_wgmma, moved = True, set()
            elif opcode == BRANCH:
                after_wgmma = False
            elif opcode == R2UR:
                moved.add(target_register)
            elif opcode & 0x1FF in UNIFORM:
                reads = {word >> shift & 0xFF for shift in (24, 32, 64)}
                (moved.add if reads & moved else moved.discard)(target_register)
            elif opcode == FSEL:
                selects += 1
    return LoopsOverK(wgmma, moves, selects)
