"""What selection picks compiles for Hopper without spills, without waits for wgmma that ptxas put in, with wgmma's
descriptors in uniform registers, and without selects in the loops over K. No operand of wgmma is overwritten, and no
stage let go, while it may still be read. FFMA yield as often as the source asks. Nobody waits until other SMs see its
writes.

The compiler decides these, for each config anew, and speaks of none unless asked. Two of them are right results, the
others speed. The test compiles the kernels of the public cases, and of the others a choice
in which every two facts (tile and store, say) that occur together in any of them occur together. All of them,
about 7,900, take some minutes:

    PYTHONPATH=.:tests/support python3 tests/kernels/test_every_kernel.py
"""

from __future__ import annotations

import functools
import heapq
import re
import sys
from collections.abc import Iterable
from itertools import combinations

import fresh
import pytest
import sass
from every_problem import Problem, every_problem, public_problems
from field_calls import kernel_of

from deep_gemm import jit
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

PARTS = 88  # of 10 kernels


def kernels(problems: Iterable[Problem]) -> dict[str, Problem]:
    """Source text of every kernel, and the first problem that gets it."""
    found: dict[str, Problem] = {}
    for grouping, fields in problems:
        text = str(kernel_of(grouping, {"num_sms": HOPPER_SMS, **fields})["text"])
        found.setdefault(text, (grouping, fields))
    return found


def config_of(text: str) -> str:
    return " ".join(text.split("kConfig{")[1].split("};")[0].split())


def facts_of(text: str) -> set[tuple[str, str]]:
    """Every pair of facts that may decide registers and instructions together."""
    config = config_of(text)
    names = "grouping|output|cluster|last_tiles|add_c|look_ahead|kind|stream_b|group_maps"
    facts = re.findall(rf"\.(?:{names}) = (?:{{.*?}}|[\w:]+)", config)
    facts += [re.search(rf"\.{operand} = {{[^}}]*}}[^}}]*}}", config)[0] for operand in "ab"]  # scaling is inside
    facts.append(re.search(r"swap_ab = \w+, .tile = {.*?}", config)[0])
    trips = re.search(r"\.shape = {.*?(\.k = \d+)}", config)[1]  # a K that is compiled in: the main loop's trip count
    return {*combinations(facts, 2), (facts[0], trips)}


def choose(texts: list[str], chosen: list[str]) -> list[str]:
    """Those chosen and a few more, so that every pair of facts occurs that occurs in any; the most telling first."""
    facts = {text: facts_of(text) for text in texts}
    missing = set().union(*facts.values())
    for text in chosen:
        missing -= facts.pop(text)
    # What a text tells that is missing only becomes less: one at the head that still tells as much is the best of all.
    heap = [(-len(facts[text] & missing), place, text) for place, text in enumerate(facts)]
    heapq.heapify(heap)
    while missing:
        told, place, text = heap[0]
        tells = -len(facts[text] & missing)
        if tells != told:
            heapq.heapreplace(heap, (tells, place, text))
            continue
        heapq.heappop(heap)
        missing -= facts[text]
        chosen.append(text)
    return chosen


def compile_checked(texts: list[str]) -> list[str | None]:
    """Compile in a process that refuses spills and serialised wgmma; the error of each kernel, or None."""
    directory = jit.cache_dir()
    code = f"""
results = jit.compile_many({[(sass.entry(text), text) for text in texts]!r}, HOPPER_TARGET, workers=2, progress=False)
result = [result.error and str(result.error) for result in results]
"""
    where = {} if directory is None else {"DG_JIT_CACHE_DIR": directory}
    return fresh.check(code, DG_JIT_PTXAS_CHECK=1, **where).result


def adds_rows_off_16_bytes(text: str) -> bool:
    """FP8 K groups that add to an FP32 D from registers: ptxas moves descriptors in some of them. Such D are rare."""
    config = config_of(text)
    wanted = ("Grouping::k_contiguous", "Element::e4m3", "StoreKind::direct_add")
    return all(fact in config for fact in wanted)


def slow_loop(text: str, code: list[int]) -> str | None:
    loops = sass.loops_over_k(code)
    assert loops.wgmma >= 4, "no wgmma in the machine code: has its opcode changed?"
    slow = loops.selects or (loops.moves and not adds_rows_off_16_bytes(text))
    return f"in the loops over K: {loops}" if slow else None


def is_packed(text: str) -> bool:
    """Whether rows are weights that wgmma takes from registers."""
    return re.search(r"Element::(s4|s4m|e2m1|u4|e2m1x|s4b|e4m3p|s8b|u8)\b", text) is not None


def lost_operand(text: str, code: list[int]) -> str | None:
    if "wgmma_products = true" in text or is_packed(text):
        assert any(word & sass.OPCODE in sass.WGMMA_REGISTERS for word in code), "has its opcode changed?"
    lost = sass.overwritten_operands(code)
    return f"instructions {lost} write registers that a wgmma under way reads" if lost else None


def early_arrival(code: list[int]) -> str | None:
    early = sass.early_arrivals(code)
    return f"instructions {early} let a stage go that may still be read" if early else None


def wrong_yields(text: str, code: list[int]) -> str | None:
    """Promotion is most of the FFMA in the loops over K: about as many of them yield as the source asks for."""
    asked = re.search(r"// FFMA yield: (?:none|1 of (\d+))", text)
    ffma = [
        word for loop in sass.wgmma_loops(code) for index in loop if (word := code[index]) & sass.OPCODE == sass.FFMA
    ]
    if asked is None or not ffma:
        return None if asked is None else "no FFMA in the loops over K: has their opcode changed?"
    found = sum(map(sass.yields, ffma))
    wanted = len(ffma) / int(asked[1]) if asked[1] else 0
    return f"{found} of {len(ffma)} FFMA yield: {asked[0]}" if not 0.6 * wanted <= found <= wanted else None


def slow_fence(code: list[int]) -> str | None:
    """0.1 to 0.2 us at the start of a cluster, more behind the stores at its end (docs/notes/tried.md)."""
    assert any(word & sass.OPCODE == sass.MEMBAR for word in code), "has its opcode changed?"
    slow = [i for i, word in enumerate(code) if word & sass.OPCODE == sass.MEMBAR and word & sass.BEYOND_CTA]
    return f"instructions {slow} wait until other SMs see all writes" if slow else None


def local_loads(code: list[int]) -> str | None:
    """Registers that are indexed while a kernel runs, as where it reads its config then: an array is in memory."""
    found = [i for i, word in enumerate(code) if word & sass.OPCODE == sass.LDL]
    return f"instructions {found} load from local memory" if found else None


def wrong_code(text: str) -> str | None:
    code = sass.instructions(C.jit_compile(sass.entry(text), text, HOPPER_TARGET, "cubin"))
    lost = lost_operand(text, code) or early_arrival(code) or local_loads(code)
    if is_packed(text):  # loops of other opcodes
        return lost or slow_fence(code)
    return lost or slow_loop(text, code) or wrong_yields(text, code) or slow_fence(code)


def failures(found: dict[str, Problem], texts: list[str]) -> str:
    return "\n\n".join(
        f"{found[text]} gets\n{config_of(text)}\n{error}"
        for text, refused in zip(texts, compile_checked(texts), strict=True)
        if (error := refused or wrong_code(text))
    )


@functools.cache
def chosen() -> tuple[dict[str, Problem], list[str]]:
    found = kernels(every_problem())
    return found, choose(list(found), list(kernels(public_problems())))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_kernel_spills_or_keeps_wgmma_waiting(part):
    found, texts = chosen()
    failed = failures(found, texts[part::PARTS])
    assert not failed, failed


INDEXED = """
extern "C" __global__ void planted(const int* at, float* out) {
    float values[32];
    for (int i = 0; i < 32; ++i) values[at[i] & 31] = out[i];
    out[threadIdx.x] = values[at[threadIdx.x] & 31];
}
"""


def test_indexed_registers_are_found():
    assert local_loads(sass.instructions(C.jit_compile("planted", INDEXED, HOPPER_TARGET, "cubin")))


MOVED = """
#include <deep_gemm/ptx/wgmma.cuh>
using namespace deep_gemm;
// Each lane loads a descriptor: ptxas cannot know that all have the same one.
extern "C" __global__ void planted(const uint64_t* descriptors, float* out, int blocks) {
    float sums[4] = {};
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            const uint64_t descriptor = descriptors[128 * (4 * block + step) + threadIdx.x];
            ptx::Wgmma<8>::e4m3(sums, descriptor, descriptor, 1);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
    }
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = sums[i];
}
"""


def test_moved_descriptors_are_found():
    loops = sass.loops_over_k(sass.instructions(C.jit_compile("planted", MOVED, HOPPER_TARGET, "cubin")))
    assert loops.wgmma == 4
    assert loops.moves >= 3  # between each two of them at least one
    assert loops.selects == 0


# Machine code as nvdisasm lists it (CUDA 13.0), in a loop.
QGMMA = 0x026000000C1879F3  # QGMMA.64x160x32.F32.E4M3.E4M3 R24, gdesc[UR12], R24
R2UR = 0x00000000101372CA  # R2UR UR19, R16
ULOP = 0x00010000130E7892  # ULOP3.LUT UR14, UR19, 0x10000, URZ, 0xfc, !UPT


def to_start(length: int) -> int:
    """BRA to the first of `length` instructions before it."""
    words = -(length + 1) * sass.INSTRUCTION_BYTES // 4
    return 0x7947 | (words & 0xFF) << 16 | (words >> 8 & (1 << 48) - 1) << 34


@pytest.mark.parametrize(
    ("code", "moves"),
    [
        ([QGMMA, R2UR, ULOP, QGMMA], 1),
        ([QGMMA, R2UR - (6 << 16), QGMMA], 1),  # UR13, of the descriptor itself
        ([QGMMA, R2UR, QGMMA], 0),  # a scale, say: no descriptor is made of it
        ([R2UR, ULOP, QGMMA, QGMMA], 0),  # before the first one: nothing is under way that could hide it
        ([QGMMA, R2UR, ULOP, ULOP ^ (0x13 ^ 0x15) << 24, QGMMA], 0),  # UR14 of another one, UR21, in the end
    ],
)
def test_moves_count_where_a_descriptor_is_made_of_them(code, moves) -> None:
    loops = sass.loops_over_k([*code, to_start(len(code))])
    assert (loops.wgmma, loops.moves) == (2, moves)


SELECTED = """
#include <deep_gemm/ptx/wgmma.cuh>
using namespace deep_gemm;
// Sums start at zero by a branch in each round, which becomes a select of each.
extern "C" __global__ void planted(uint64_t descriptor, float* out, int blocks) {
    float sums[4], partial[4];
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        ptx::wgmma_fence();
        ptx::Wgmma<8>::e4m3(partial, descriptor, descriptor, 0);
        ptx::wgmma_commit();
        if (block == 0)
            for (int i = 0; i < 4; ++i) sums[i] = 0.0f;
        ptx::wgmma_wait<0>();
        for (int i = 0; i < 4; ++i) sums[i] += partial[i];
    }
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = sums[i];
}
"""


def test_selected_sums_are_found():
    loops = sass.loops_over_k(sass.instructions(C.jit_compile("planted", SELECTED, HOPPER_TARGET, "cubin")))
    assert loops.wgmma == 1
    assert loops.selects == 4
    assert loops.moves == 0


# Machine code as nvdisasm lists it (CUDA 13.0). Not planted: where ptxas sees such a write it serialises wgmma (remark
# C7513). It did not where the operand was a copy made behind the wait, which it merged with what was copied.
HGMMA = 0x05E0000898187DF0  # HGMMA.64x128x8.F32.TF32 R24, R152, gdesc[UR8], RZ, !UPT, gsb0
WAIT, FENCE = 0x8000000079C5, 0x79C5  # WARPGROUP.DEPBAR.LE gsb0, 0x0; WARPGROUP.ARRIVE
MOV, WIDE = 0x9D7802, 0x977825  # MOV R157, ...; IMAD.WIDE R151, ...
# IGMMA.64x16x32.S8.S8 R24, R152, gdesc[UR12], R24, gsb0, and without gsb0, in the middle of a group; one of R148.
IGMMA, WAIT_BUT_ONE = 0x0060000C98187DF1, WAIT | 1 << 72
IGMMA_MIDDLE, QGMMA_OTHER = IGMMA | 7 << 84, 0x00E0000094187DF3
MOV_TO_152, NOP = MOV - (5 << 16), 0x7918


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ([HGMMA, MOV - (2 << 16), WAIT], [1]),
        ([HGMMA, FENCE, MOV - (5 << 16), WAIT], [2]),
        ([HGMMA, WIDE, WAIT], [1]),  # and R152
        ([HGMMA, MOV, WAIT], []),  # R157: the operand ends at R155
        ([HGMMA, WAIT, MOV - (2 << 16)], []),
        ([IGMMA, MOV_TO_152, WAIT], [1]),
        ([IGMMA_MIDDLE, IGMMA, WAIT, MOV_TO_152], []),
        ([IGMMA, WAIT_BUT_ONE, MOV_TO_152], [2]),  # the newest group, which need not be over
        ([IGMMA, QGMMA_OTHER, WAIT_BUT_ONE, MOV_TO_152], []),
        ([IGMMA, QGMMA_OTHER, WAIT_BUT_ONE, MOV - (6 << 16)], [3]),  # R151, of the other one
        ([IGMMA_MIDDLE, WAIT, MOV_TO_152], [2]),  # of a group that has not ended
    ],
)
def test_overwritten_operands_are_found(code, found) -> None:
    assert sass.overwritten_operands([*code, WAIT]) == found


@pytest.mark.parametrize("fields", [{"s8": 1, "s4": 1}, {"s4m": 1}, {"e2m1": 1}], ids=str)
def test_a_conversion_that_does_not_wait_for_wgmma_is_noticed(fields) -> None:
    """Of a kernel as it is, without one of the waits in its loop."""
    code = sass.of_problem("dense", {"m": 64, "n": 4096, "k": 7168, **fields})
    assert not sass.overwritten_operands(code)
    (loop, *_) = sass.loops_with(code, *sass.WGMMA_REGISTERS)
    waits = [i for i in loop if code[i] & sass.OPCODE == sass.WARPGROUP and code[i] & sass.WAITS]
    assert waits
    for wait in waits:
        assert sass.overwritten_operands([*code[:wait], NOP, *code[wait + 1 :]])


RELEASED = """
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/wgmma.cuh>
using namespace deep_gemm;
// A scale is read when a block's wgmma are over, and the stage let go.
extern "C" __global__ void planted(uint64_t descriptor, uint32_t scale, uint32_t barrier, float* out) {
    float sums[4];
    ptx::wgmma_fence();
    ptx::Wgmma<8>::e4m3(sums, descriptor, descriptor, 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    const float value = ptx::load_shared(scale);
    ptx::barrier_arrive(RELEASE);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = sums[i] * value;
}
"""


@pytest.mark.parametrize(
    ("barrier", "early"), [("barrier", 1), ("ptx::when_loaded(barrier, __float_as_uint(value))", 0)]
)
def test_early_arrivals_are_found(barrier, early) -> None:
    text = RELEASED.replace("RELEASE", barrier)
    assert len(sass.early_arrivals(sass.instructions(C.jit_compile("planted", text, HOPPER_TARGET, "cubin")))) == early


# Machine code as nvdisasm lists it (CUDA 13.0), the bits of scoreboards with it: LDS.64 R24, [R23+0x1c0], which sets
# number 2; IADD3 that waits for it; SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR16+0x35420], RZ.
LOAD = 0x984 | 0x7000 | 2 << 110
OTHER_LOAD = LOAD ^ (2 ^ 5) << 110
NEED = 0x210 | 0x7000 | 7 << 110 | 1 << 2 << 116
ARRIVE = 0x9A7 | 0x7000 | 7 << 110
BEGIN, DONE, ALL_BUT_ONE = FENCE | 7 << 110, WAIT | 7 << 110, WAIT | 7 << 110 | 1 << 72


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ([BEGIN, DONE, LOAD, ARRIVE], [3]),
        ([BEGIN, DONE, LOAD, NEED, ARRIVE], []),
        ([BEGIN, DONE, OTHER_LOAD, NEED, ARRIVE], [4]),
        ([LOAD, BEGIN, DONE, ARRIVE], [3]),  # of the block whose wgmma are over
        ([BEGIN, LOAD, DONE, ARRIVE], []),  # of the next one
        ([LOAD, BEGIN, LOAD, BEGIN, ALL_BUT_ONE, NEED, LOAD, ARRIVE], []),
        ([LOAD, BEGIN, OTHER_LOAD, BEGIN, ALL_BUT_ONE, NEED, ARRIVE], []),  # of the block under way
        ([OTHER_LOAD, BEGIN, LOAD, BEGIN, ALL_BUT_ONE, NEED, ARRIVE], [6]),  # of the one before
        ([LOAD, ARRIVE], []),  # another role's
    ],
)
def test_an_arrival_is_early_by_what_may_still_be_loaded(code, found) -> None:
    assert sass.early_arrivals(code) == found


if __name__ == "__main__":
    found = kernels(every_problem())
    print(f"{len(found)} kernels", file=sys.stderr)
    failed = failures(found, list(found))
    print(
        failed
        or f"all {len(found)} compile without spills, put-in waits for wgmma, slow loops over K, lost operands and "
        "stages let go early, and their FFMA yield as asked"
    )
    sys.exit(bool(failed))
