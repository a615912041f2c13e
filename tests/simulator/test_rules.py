"""`rules="hardware"` lets pass what machines are known to do though the manual does not promise it, and nothing else."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import pytest
import torch
from ptx_tools import SCHEDULES, kernel, run_kernel
from test_tensor_bugs import run_pipeline
from test_tensor_memory import ALLOCATE, FREE, SHARED

from deep_gemm import simulator

LOAD_BY_LANE_ZERO = """
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%t};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%r2];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %offset, %t, 4;
    add.s64 %out, %out, %offset;
    st.global.u32 [%out], %r10;"""


def kinds(report: simulator.Report) -> set[str]:
    return {hazard.kind for hazard in report.hazards}


def run(
    body: str, rules: str, threads: int = 128, schedule: str = "eager", seed: int = 0
) -> tuple[set[str], list[int]]:
    out = torch.full((128,), -1, dtype=torch.int32)
    given = torch.arange(128, dtype=torch.int32)
    text = kernel(body, shared=SHARED)
    report = run_kernel(text, out, given, threads=threads, rules=rules, hazards="report", schedule=schedule, seed=seed)
    return kinds(report), out.tolist()


def test_a_load_at_lane_zero_means_the_warps_own_quarter() -> None:
    body = ALLOCATE.format(columns=32) + LOAD_BY_LANE_ZERO + FREE.format(columns=32)
    assert run(body, "manual") == ({"tensor memory"}, list(range(128)))
    assert run(body, "hardware") == (set(), list(range(128)))


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_move_before_the_wait_takes_what_arrives(schedule: str, seed: int) -> None:
    """As nvcc writes it: in the machine code both names are one register, which nothing reads before the wait."""
    early = LOAD_BY_LANE_ZERO.replace("[%r2];", "[%r1];\n    mov.b32 %r11, %r10;\n    mov.b32 %r12, %r11;")
    body = ALLOCATE.format(columns=32) + early.replace("[%out], %r10", "[%out], %r12") + FREE.format(columns=32)
    assert run(body, "manual", schedule=schedule, seed=seed) == ({"tensor wait"}, list(range(128)))
    assert run(body, "hardware", schedule=schedule, seed=seed) == (set(), list(range(128)))


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_register_that_is_used_is_waited_for(schedule: str, seed: int) -> None:
    """CUTLASS waits only before it lets tensor memory be written again: a machine waits for the registers."""
    early = LOAD_BY_LANE_ZERO.replace("[%r2];", "[%r1];\n    add.u32 %r11, %r10, 5;")
    body = ALLOCATE.format(columns=32) + early.replace("[%out], %r10", "[%out], %r11") + FREE.format(columns=32)
    assert run(body, "manual", schedule=schedule, seed=seed)[0] == {"tensor wait"}
    assert run(body, "hardware", schedule=schedule, seed=seed) == (set(), list(range(5, 133)))
    unwaited = body.replace("tcgen05.wait::ld.sync.aligned;", "")  # then memory may be given back too early
    assert run(unwaited, "hardware", schedule=schedule, seed=seed)[0] == {"tensor wait"}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_the_blocks_of_a_pair_allocate_together(schedule: str, seed: int) -> None:
    """Block 1 comes late; what it wrote before, block 0 finds behind its own allocation."""
    body = """
    mov.u32 %r0, place;
    mov.u32 %r1, %cluster_ctarank;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra ALLOCATE;
    nanosleep.u32 5000;
    st.global.u32 [%out+4], 7;
ALLOCATE:
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r0], 32;
    ld.global.u32 %r5, [%out+4];
    @%p1 st.global.u32 [%out], %r5;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared.u32 %r2, [%r0];
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r2, 32;"""
    out = torch.zeros(2, dtype=torch.int32)
    options = {"rules": "hardware", "schedule": schedule, "seed": seed}
    run_kernel(kernel(body, shared=SHARED), out, grid=[2], cluster=[2], **options)
    assert out.tolist() == [7, 7]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_what_stands_there_already_may_be_stored_again(schedule: str, seed: int) -> None:
    """Both warps write the same number; of two numbers one is in the way also on a machine."""
    body = """
    mov.u32 %r0, data;
    shr.u32 %r2, %t, 5;
    mul.lo.u32 %r1, %r2, {factor};
    st.shared.u32 [%r0], %r1;
    bar.sync 0;"""
    assert run(body.format(factor=0), "manual", 64, schedule, seed)[0] == {"race"}
    assert not run(body.format(factor=0), "hardware", 64, schedule, seed)[0]
    assert run(body.format(factor=1), "hardware", 64, schedule, seed)[0] == {"race"}


def test_a_block_may_exit_before_its_bulk_store_has_read() -> None:
    body = """
    mov.u32 %r0, data;
    shl.b32 %r1, %t, 2;
    add.u32 %r1, %r0, %r1;
    st.shared.u32 [%r1], %t;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r0], 512;
    cp.async.bulk.commit_group;
END:"""
    assert run(body, "manual") == ({"early exit"}, list(range(128)))
    assert run(body, "hardware") == (set(), list(range(128)))


BULK_STORE_OF_COPIED = """
    mov.u32 %r0, data;
    shl.b32 %r1, %t, 2;
    cvt.u64.u32 %offset, %r1;
    add.u32 %r1, %r0, %r1;
    add.s64 %in, %in, %offset;
    {write}
    bar.sync 0;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r0], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:"""


def test_no_proxy_fence_behind_cp_async() -> None:
    copied = BULK_STORE_OF_COPIED.format(write="cp.async.ca.shared.global [%r1], [%in], 4; cp.async.wait_all;")
    stored = BULK_STORE_OF_COPIED.format(write="st.shared.u32 [%r1], %t;")
    assert run(copied, "manual")[0] == {"proxy fence"}
    assert run(copied, "hardware") == (set(), list(range(128)))
    assert run(stored, "hardware")[0] == {"proxy fence"}


def test_no_fence_behind_the_initialisation_of_a_barrier_that_a_copy_of_this_block_uses() -> None:
    body = """
    mov.u32 %r0, data;
    mov.u32 %r1, bar;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra END;
    mbarrier.init.shared::cta.b64 [%r1], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r0], [%in], 512, [%r1];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
    @!%p2 bra WAIT;
    ld.shared.u32 %r2, [%r0+4];
    st.global.u32 [%out], %r2;
END:"""
    assert run(body, "manual")[0] == {"proxy fence"}
    hazards, out = run(body, "hardware")
    assert not hazards
    assert out[0] == 1


@pytest.mark.parametrize("bug", [1, 2, 4, 10])
def test_tensor_fences_and_copies_behind_products(bug: int) -> None:
    """Numbers are those of tensor_pipeline.cu: fences left out, and one set of scales for all stages."""
    assert kinds(run_pipeline(bug, "eager", 0)[0]) <= {"tensor fence", "overwrite"}
    report, right = run_pipeline(bug, "lazy", 0, rules="hardware")
    assert not report.hazards
    assert right


@pytest.mark.parametrize("bug", [3, 5, 6, 18, 23, 24, 25, 32])
def test_mistakes_stay_mistakes(bug: int) -> None:
    assert run_pipeline(bug, "lazy", 0, rules="hardware")[0].hazards


def test_other_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="the rules must be manual or hardware, got 'mine'"):
        run("", "mine")
