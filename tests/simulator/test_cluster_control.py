"""Cluster launch control: a cluster takes over the work of clusters that have not begun."""

from __future__ import annotations

import pytest
import torch
from ptx_tools import SCHEDULES, kernel, run_kernel

SHARED = ".shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar;"
REQUEST = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
# Each block of a cluster counts its place in the grid, and the first one asks for another cluster, for all of them. The
# answer is for the first block; the others add their rank.
LOOP = """
    mov.u32 %r0, answer;
    mov.u32 %r1, bar;
    mov.u32 %r2, %cluster_ctarank;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ctaid.y;
    mov.u32 %r9, 0;
    mbarrier.init.shared::cta.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
NEXT:
    mov.u32 %r10, %nctaid.x;
    mad.lo.u32 %r5, %r4, %r10, %r3;
    mul.wide.u32 %offset, %r5, 4;
    add.s64 %d1, %out, %offset;
    red.global.add.u32 [%d1], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra WAIT;
    {request}.multicast::cluster::all.b128 [%r0], [%r1];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %r9;
    @!%p2 bra WAIT;
    xor.b32 %r9, %r9, 1;
    ld.shared.b128 %q1, [%r0];
    fence.proxy.async.shared::cta;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q1;
    @%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r3, %r4, _, _}}, %q1;
    add.u32 %r3, %r3, %r2;
    @%p3 bra NEXT;"""


def text(body: str) -> str:
    return kernel(body, ".reg .b128 %q<4>;", SHARED, target="sm_100a")


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("cluster", [1, 2])
def test_each_block_of_the_grid_is_done_once(cluster: int, schedule: str, seed: int) -> None:
    out = torch.zeros(12, dtype=torch.int32)
    options = {"grid": [4, 3], "cluster": [cluster], "schedule": schedule, "seed": seed}
    report = run_kernel(text(LOOP.format(request=REQUEST)), out, threads=1, **options)
    assert not report.hazards
    assert out.tolist() == [1] * 12
    if schedule != "random":  # where requests may fail
        assert report.statistics["blocks"] == cluster


def test_a_place_in_the_grid_without_a_grant_is_reported() -> None:
    body = LOOP.format(request=REQUEST).replace("@%p3 clusterlaunchcontrol", "clusterlaunchcontrol")
    out = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="a request that has not been granted"):
        run_kernel(text(body), out, threads=1, grid=[2], cluster=[2])
