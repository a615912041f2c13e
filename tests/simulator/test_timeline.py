"""What reports tell of barriers: each event once, in order, with the warp that did it."""

from __future__ import annotations

import pytest
import torch
from ptx_tools import SCHEDULES, kernel, run_kernel

BODY = """
    setp.eq.u32 %p0, %t, 0;
    mov.u32 %r0, barrier;
    @%p0 mbarrier.init.shared.b64 [%r0], 2;
    bar.sync 1, 64;
    and.b32 %r1, %t, 31;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.arrive.shared.b64 _, [%r0];
again:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r0], 0;
    @!%p2 bra again;
    mul.wide.u32 %offset, %t, 4;
    add.u64 %out, %out, %offset;
    st.global.b32 [%out], %t;
"""
KERNEL = kernel(BODY, shared=".shared .align 8 .b64 barrier;")


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_each_event_is_told_once(schedule, seed) -> None:
    out = torch.zeros(64, dtype=torch.int32)
    report = run_kernel(KERNEL, out, threads=64, schedule=schedule, seed=seed, timeline=True)
    assert torch.equal(out, torch.arange(64, dtype=torch.int32))
    assert report.timeline_left_out == 0
    times = [event.time for event in report.timeline]
    assert times == sorted(times)

    def told(barrier: str, event: str) -> list[tuple[int, int]]:
        return [(e.amount, e.warp) for e in report.timeline if (e.barrier, e.event) == (barrier, event)]

    (name,) = {event.barrier for event in report.timeline} - {"barrier 1"}
    assert name.startswith("mbarrier 0x")
    assert told(name, "init") == [(2, 0)]
    assert sorted(told(name, "arrive")) == [(1, 0), (1, 1)]
    assert told(name, "complete") == [(0, -1)]
    assert sorted(set(told(name, "pass"))) == [(0, 0), (0, 1)]
    assert sorted(told("barrier 1", "arrive")) == [(32, 0), (32, 1)]
    assert told("barrier 1", "complete") == [(0, -1)]
    assert len(told("barrier 1", "pass")) == len(told("barrier 1", "blocked")) == 1  # the one that came first
    assert name in report.timeline_text(name)
    assert "barrier 1" not in report.timeline_text(name)


def test_without_being_asked_none_is_kept() -> None:
    assert run_kernel(KERNEL, torch.zeros(64, dtype=torch.int32), threads=64).timeline == []
