"""Lanes of one warp: they may drift apart, and only what the manual names orders what they do to memory."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import pytest
import torch
from ptx_tools import SCHEDULES, kernel, run_kernel

from deep_gemm import simulator

SHARED = ".shared .align 128 .b8 data[256]; .shared .align 8 .b64 bar;"
# [%r1]: this lane's word; [%r2]: the next lane's, around the warp's end. %p1: not lane 0.
PLACES = """
    mov.u32 %r0, data;
    shl.b32 %r3, %t, 2;
    add.u32 %r1, %r0, %r3;
    add.u32 %r4, %t, 1;
    and.b32 %r4, %r4, 31;
    shl.b32 %r4, %r4, 2;
    add.u32 %r2, %r0, %r4;
    cvt.u64.u32 %offset, %r3;
    add.s64 %d1, %out, %offset;
    cvt.u64.u32 %offset, %r4;
    add.s64 %d2, %out, %offset;
    setp.ne.u32 %p1, %t, 0;
"""
WRITE, WRITE_OTHER = "st.shared.u32 [%r1], %t;", "st.shared.u32 [%r2], %t;"
READ, READ_OTHER = "ld.shared.u32 %r5, [%r1];", "ld.shared.u32 %r5, [%r2];"
SYNC = "bar.warp.sync -1;"
GLOBAL_WRITE, GLOBAL_READ_OTHER = "st.global.u32 [%d1], %t;", "ld.global.u32 %r5, [%d2];"
GLOBAL_READ, GLOBAL_WRITE_OTHER = "ld.global.u32 %r5, [%d1];", "st.global.u32 [%d2], %t;"
HALVES = "setp.lt.u32 %p2, %t, 16; selp.b32 %r6, 0xffff, 0xffff0000, %p2; bar.warp.sync %r6;"


def run(code: str, schedule: str = "eager", seed: int = 0, threads: int = 32, **options):
    out = torch.full((64,), -1, dtype=torch.int32)
    report = run_kernel(
        kernel(PLACES + code, shared=SHARED),
        out,
        threads=threads,
        schedule=schedule,
        seed=seed,
        hazards="report",
        **options,
    )
    return out, report


def kinds(report: simulator.Report) -> set[str]:
    return {hazard.kind for hazard in report.hazards}


UNORDERED = {
    "read after write": (f"{WRITE}", READ_OTHER),
    "write after read": (f"{WRITE} {SYNC} {READ}", WRITE_OTHER),
    "write after write": (WRITE, WRITE_OTHER),
    "read after stmatrix": (
        "and.b32 %r4, %t, 7; shl.b32 %r4, %r4, 4; add.u32 %r4, %r0, %r4; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {%t};",
        READ_OTHER,
    ),
    "write after ldmatrix": (
        f"{WRITE} {SYNC} and.b32 %r4, %t, 7; shl.b32 %r4, %r4, 4; add.u32 %r4, %r0, %r4; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r5}}, [%r4];",
        WRITE_OTHER,
    ),
    "global read after write": (GLOBAL_WRITE, GLOBAL_READ_OTHER),
    "global write after read": (GLOBAL_READ, GLOBAL_WRITE_OTHER),
    "global write after write": (GLOBAL_WRITE, GLOBAL_WRITE_OTHER),
}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("before", "after"), UNORDERED.values(), ids=UNORDERED.keys())
def test_use_of_another_lanes_word_needs_a_warp_sync(before: str, after: str, schedule: str, seed: int) -> None:
    _, report = run(f"{before} {after}", schedule, seed)
    assert kinds(report) == {"warp sync"}
    assert not kinds(run(f"{before} {SYNC} {after}", schedule, seed)[1])
    assert not kinds(run(f"{before} bar.sync 0; {after}", schedule, seed)[1])


def test_the_report_names_both_accesses() -> None:
    _, report = run(f"{WRITE}\n{READ_OTHER}")
    message = report.hazards[0].message
    assert "shared memory 0x404 of block 0 is read by lane 0 of warp 0" in message
    assert "earlier: write by lane 1 of warp 0 of block 0 at PTX line" in message
    assert "st.shared.u32" in message
    assert "ld.shared.u32" in message
    _, report = run(f"{GLOBAL_WRITE}\n{GLOBAL_READ_OTHER}")
    message = report.hazards[0].message
    assert "global memory 0x" in message
    assert "is read by lane 0 of warp 0" in message
    assert "earlier: write by lane 1 of warp 0 of block 0 at PTX line" in message


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_what_a_lane_did_itself_needs_no_sync(schedule: str, seed: int) -> None:
    assert not kinds(run(f"{WRITE} {READ} {WRITE} {GLOBAL_WRITE} {GLOBAL_READ} {GLOBAL_WRITE}", schedule, seed)[1])


def test_lanes_may_store_to_one_place_by_one_instruction() -> None:
    assert not kinds(run("st.shared.u32 [%r0], %t; st.global.u32 [%out], %t;")[1])


def test_a_sync_orders_the_lanes_of_its_mask_only() -> None:
    """Lane 15 uses lane 16's word, and 31 lane 0's."""
    neighbours = "xor.b32 %r7, %r3, 4; add.u32 %r7, %r0, %r7; ld.shared.u32 %r5, [%r7];"
    assert not kinds(run(f"{WRITE} {HALVES} {neighbours}")[1])
    assert kinds(run(f"{WRITE} {HALVES} {READ_OTHER}")[1]) == {"warp sync"}


SHUFFLE = "shfl.sync.idx.b32 %r8, %t, 0, 31, -1;"
ELECT = "elect.sync %r8|%p3, -1;"


@pytest.mark.parametrize("code", [SHUFFLE, ELECT, "membar.cta;"])
def test_what_brings_lanes_together_does_not_order_memory(code: str) -> None:
    """By the manual only bar.warp.sync does; machines order more behind a .sync."""
    assert kinds(run(f"{WRITE} {code} {READ_OTHER}")[1]) == {"warp sync"}
    by_hardware = kinds(run(f"{WRITE} {code} {READ_OTHER}", rules="hardware")[1])
    assert by_hardware == ({"warp sync"} if code == "membar.cta;" else set())


INIT = """
    mov.u32 %r9, bar;
    @!%p1 mbarrier.init.shared::cta.b64 [%r9], {count};
    bar.sync 0;
"""
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r9];"
WAIT = "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r9], 0;"


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_an_mbarrier_orders_lanes(schedule: str, seed: int) -> None:
    arrive_and_wait = f"{ARRIVE} L: {WAIT} @!%p4 bra L;"
    assert not kinds(run(f"{INIT.format(count=32)} {WRITE} {arrive_and_wait} {READ_OTHER}", schedule, seed)[1])


def hand_over(written: str, read: str) -> str:
    """Warp 0 writes, and its lane 0 arrives; warp 1 waits by its lane 0, and reads what is the same lane's of warp 0."""
    return f"""
    {INIT.format(count=1)}
    and.b32 %r3, %r3, 127;
    add.u32 %r1, %r0, %r3;
    and.b32 %r6, %t, 31;
    setp.ne.u32 %p1, %r6, 0;
    setp.ge.u32 %p2, %t, 32;
    @%p2 bra READER;
    {WRITE}
    {written}
    @!%p1 {ARRIVE}
    bra END;
READER:
    @%p1 bra WAITED;
L:  {WAIT}
    @!%p4 bra L;
WAITED:
    {read}
    {READ}
END:"""


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_an_arrival_speaks_for_the_lanes_that_were_met(schedule: str, seed: int) -> None:
    assert not kinds(run(hand_over(SYNC, SYNC), schedule, seed, threads=64)[1])
    _, report = run(hand_over("", SYNC), schedule, seed, threads=64)
    assert "race" in kinds(report)


@pytest.mark.parametrize(("schedule", "seed"), [SCHEDULES[0], SCHEDULES[1], ("random", 2)])
def test_a_lane_that_waited_tells_the_others_by_a_sync(schedule: str, seed: int) -> None:
    _, report = run(hand_over(SYNC, ""), schedule, seed, threads=64)
    assert kinds(report) & {"race", "overwrite", "uninitialised"}


FENCE = "fence.proxy.async.shared::cta;"
BULK_STORE = """
    @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r0], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:"""


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    ("between", "found"),
    [
        (f"{FENCE} {SYNC}", set()),
        (f"{SYNC} {FENCE}", set()),
        (f"{SYNC} @!%p1 {FENCE}", set()),  # by the lane that issues the copy
        (f"{FENCE}", {"warp sync"}),
        (f"{FENCE} {ELECT}", {"warp sync"}),
        (f"{SYNC}", {"proxy fence"}),
        (f"{SYNC} @%p1 {FENCE}", {"proxy fence"}),  # lane 0 itself has no fence
        (f"{SYNC} @%p1 {FENCE} {SYNC}", set()),
        (f"@!%p1 {FENCE} {SYNC}", {"proxy fence"}),
    ],
)
def test_a_bulk_store_by_one_lane_of_what_all_wrote(between: str, found: set, schedule: str, seed: int) -> None:
    out, report = run(f"{WRITE} {between} {BULK_STORE}", schedule, seed)
    assert kinds(report) == found
    assert out[:32].tolist() == list(range(32))  # the run goes on after a report


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_lanes_wait_for_the_one_that_knows_the_buffer_is_free(schedule: str, seed: int) -> None:
    store = BULK_STORE.replace("END", "NEXT").replace("wait_group 0", "wait_group.read 0")
    end = f"{WRITE} @!%p1 cp.async.bulk.wait_group 0;"
    assert not kinds(run(f"{WRITE} {FENCE} {SYNC} {store} {SYNC} {end}", schedule, seed)[1])
    assert kinds(run(f"{WRITE} {FENCE} {SYNC} {store} {end}", schedule, seed)[1]) == {"overwrite"}


def seen_by_others(schedule: str, seed: int, between: str = "") -> list[int]:
    """What each lane reads of the next one's word: what was there before, or what that lane stores."""
    code = f"""
    st.shared.u32 [%r1], -1;
    {SYNC}
    st.volatile.shared.u32 [%r1], %t;
    {between}
    ld.volatile.shared.u32 %r5, [%r2];
    st.global.u32 [%d1], %r5;"""
    return run(code, schedule, seed)[0][:32].tolist()


def test_lanes_drift_apart_under_the_random_schedule() -> None:
    together = [*range(1, 32), 0]
    assert seen_by_others("eager", 0) == seen_by_others("lazy", 0) == together
    runs = [seen_by_others("random", seed) for seed in range(60)]
    assert together in runs
    assert any(-1 in seen for seen in runs)
    assert seen_by_others("random", 3) == seen_by_others("random", 3)
    assert all(seen_by_others("random", seed, SYNC) == together for seed in range(40))
