"""The mbarriers that copies complete on, and what goes wrong between a copy and who waits for it."""

# ruff: noqa: E501  (PTX stands in the tables as it is, one case a line)

from __future__ import annotations

import pytest
import torch
from copy_tools import WAIT, entry, launch
from ptx_tools import SCHEDULES

BARRIERS = [
    # a fresh barrier passes parity 1 and not parity 0
    ("mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 1; selp.u32 %r5, 1, 0, %p1;", 1),
    ("mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0; selp.u32 %r5, 1, 0, %p1;", 0),
    ("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], 1, 1000; selp.u32 %r5, 1, 0, %p1;", 1),
    # one arrival ends the phase; the next parity is open again
    (
        "mbarrier.arrive.shared::cta.b64 %d5, [%r1]; mbarrier.test_wait.shared::cta.b64 %p1, [%r1], %d5; selp.u32 %r5, 1, 0, %p1;",
        1,
    ),
    (
        "mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 1; selp.u32 %r5, 1, 0, %p1;",
        0,
    ),
    (
        "mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 1; selp.u32 %r5, 1, 0, %p1;",
        1,
    ),
    # bytes: they may complete before they are expected, and hold the phase
    (
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 64; mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0; mbarrier.complete_tx.shared::cta.b64 [%r1], 64; mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0; selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 2, 0, %p2; add.u32 %r5, %r5, %r6;",
        2,
    ),
    (
        "mbarrier.complete_tx.shared::cta.b64 [%r1], 64; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64; mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0; selp.u32 %r5, 1, 0, %p1;",
        1,
    ),
    # a count, inval and a new life
    (
        "mbarrier.inval.shared::cta.b64 [%r1]; mbarrier.init.shared.b64 [%r1], 5; mbarrier.arrive.shared.b64 _, [%r1], 4; mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1]; mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0; selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 2, 0, %p2; add.u32 %r5, %r5, %r6;",
        2,
    ),
    # through a generic address
    (
        "cvt.u64.u32 %d5, %r1; cvta.shared.u64 %d5, %d5; mbarrier.arrive.b64 _, [%d5]; mbarrier.test_wait.parity.b64 %p1, [%d5], 0; selp.u32 %r5, 1, 0, %p1;",
        1,
    ),
    # drop: the next phase expects one less
    (
        "mbarrier.inval.shared::cta.b64 [%r1]; mbarrier.init.shared::cta.b64 [%r1], 2; mbarrier.arrive_drop.shared::cta.b64 _, [%r1]; mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 1; selp.u32 %r5, 1, 0, %p1;",
        1,
    ),
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("code", "expected"), BARRIERS)
def test_mbarrier(code: str, expected: int, schedule: str, seed: int) -> None:
    out = torch.full((1,), 99, dtype=torch.int32)
    launch(entry(code + " st.global.u32 [%d1], %r5;"), out, torch.zeros(1), schedule=schedule, seed=seed)
    assert int(out[0]) == expected


LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d2], 256, [%r1];"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;"
HAZARDS = [
    (f"{EXPECT} {LOAD} ld.shared.u32 %r5, [%r0];", "read in flight|early exit|overwrite"),
    (f"{EXPECT} {LOAD}", "early exit"),
    (f"{LOAD} {WAIT}", "deadlock"),
    (f"{EXPECT} {LOAD} {WAIT} {EXPECT} {LOAD} mbarrier.arrive.shared::cta.b64 _, [%r1];", "arrive count|early exit"),
    (
        f"mbarrier.arrive.shared::cta.b64 _, [%r1]; {EXPECT} {LOAD} {WAIT} ld.shared.u32 %r5, [%r0];",
        "read in flight|early exit|overwrite|deadlock",
    ),
    (f"{EXPECT} {LOAD.replace('256', '128')} {WAIT}", "deadlock"),
    (f"{EXPECT} {LOAD.replace('[%r0]', '[%r0+8192]')} {WAIT}", "out of bounds|barrier reuse"),
    (f"{EXPECT} {LOAD.replace('[%d2]', '[%d2+4096]')} {WAIT}", "out of bounds"),
    (f"{EXPECT} {LOAD.replace('256', '100')} {WAIT}", "misaligned"),
    ("mov.u32 %r5, 1; st.shared.u32 [%r1], %r5;", "barrier reuse"),
    ("add.u32 %r5, %r1, 8; mbarrier.arrive.shared::cta.b64 _, [%r0];", "no mbarrier"),
    (
        f"{EXPECT} {LOAD} {WAIT} mov.u32 %r5, 1; st.shared.u32 [%r0], %r5; cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r0], 256; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "proxy fence",
    ),
    (
        f"{EXPECT} {LOAD} {WAIT} cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r0], 256; cp.async.bulk.commit_group; mov.u32 %r5, 1; st.shared.u32 [%r0], %r5; cp.async.bulk.wait_group 0;",
        "overwrite",
    ),
    (
        "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r0], 256; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "uninitialised",
    ),
    (
        f"{EXPECT} {LOAD} {WAIT} cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r0], 256; cp.async.bulk.commit_group;",
        "early exit",
    ),
    (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0, {0, 0}], [%r1];",
        "there is no tensor map",
    ),
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("code", "kind"), HAZARDS)
def test_hazard(code: str, kind: str, schedule: str, seed: int) -> None:
    out, given = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=kind):
        launch(entry(code), out, given, schedule=schedule, seed=seed)


STORE = (
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r0], {%r2, %r2}, [%r1]; "
    f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 8; {WAIT} ld.shared.u32 %r5, [%r0+4]; st.global.u32 [%d1], %r5;"
)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_st_async_wants_a_launch_in_clusters(schedule: str, seed: int) -> None:
    """As an H200 does: of one block is enough."""
    out = torch.full((1,), 99, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"no cluster: st\.async needs a launch in clusters"):
        launch(entry(STORE), out, torch.zeros(1), schedule=schedule, seed=seed)
    of_one = entry(STORE).replace(".param .u64 in)", ".param .u64 in)\n.reqnctapercluster 1, 1, 1", 1)
    launch(of_one, out, torch.zeros(1), schedule=schedule, seed=seed)
    assert int(out[0]) == 0
