"""Blocks of a cluster: each other's shared memory, and what the barrier where they meet orders."""

from __future__ import annotations

import struct

import pytest
import torch
from ptx_tools import HEADER, SCHEDULES, kernel, run_kernel

from deep_gemm import simulator


def test_cluster_memory_and_barrier() -> None:
    """Each block reads what its neighbour wrote, through mapa."""
    text = (
        HEADER
        + """
.visible .entry test(.param .u64 out)
{
    .reg .b32 %r<16>;
    .reg .b64 %d<4>;
    .shared .align 16 .b32 data[4];
    mov.u32 %r1, %cluster_ctarank;
    add.u32 %r2, %r1, 100;
    mov.u32 %r3, data;
    st.shared.u32 [%r3], %r2;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    xor.b32 %r4, %r1, 1;
    mapa.shared::cluster.u32 %r5, %r3, %r4;
    ld.shared::cluster.u32 %r6, [%r5];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.param.u64 %d1, [out];
    mov.u32 %r7, %ctaid.x;
    mul.wide.u32 %d2, %r7, 4;
    add.u64 %d1, %d1, %d2;
    st.global.u32 [%d1], %r6;
    ret;
}
"""
    )
    out = torch.zeros(4, dtype=torch.int32)

    def run(source: str, schedule: str, seed: int) -> None:
        simulator.run(
            source,
            grid=[4],
            block=[32],
            cluster=[2],
            params=struct.pack("Q", out.data_ptr()),
            tensors=[out],
            schedule=schedule,
            seed=seed,
        )

    for schedule, seed in SCHEDULES:
        out.zero_()
        run(text, schedule, seed)
        assert out.tolist() == [101, 100, 101, 100]
    broken = text.replace("barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;", "")
    for schedule, seed in SCHEDULES:
        with pytest.raises(RuntimeError, match="early exit"):
            run(broken, schedule, seed)


INITIALISED = (
    HEADER
    + """
.visible .entry test()
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .shared .align 8 .b64 barrier;
    .shared .align 8 .b32 data[2];
    mov.u32 %r1, barrier;
    elect.sync _|%p0, 0xffffffff;
    @!%p0 bra met;
    mbarrier.init.shared::cta.b64 [%r1], 1;
    INITS
met:
    st.shared.u32 [data], 7;
    barrier.cluster.arrive.ORDER.aligned;
    barrier.cluster.wait.acquire.aligned;
    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r2, %r2, 1;
    mapa.shared::cluster.u32 %r3, %r1, %r2;
    READ
    @!%p0 bra arrived;
    mbarrier.arrive.shared::cluster.b64 _, [%r3];
arrived:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
    @!%p1 bra arrived;
    ret;
}
"""
)
FENCE = "fence.mbarrier_init.release.cluster;"
READ = "mov.u32 %r4, data; mapa.shared::cluster.u32 %r5, %r4, %r2; ld.shared::cluster.u32 %r6, [%r5]; bar.warp.sync -1;"


@pytest.mark.parametrize(
    ("inits", "order", "read", "hazard"),
    [
        (FENCE, "relaxed", "", None),  # the fence releases by itself
        (FENCE, "release", "", None),
        ("", "relaxed", "", "race"),
        ("", "release", "", "proxy fence"),
        (FENCE, "relaxed", READ, "race"),  # and nothing but initialisations
    ],
)
def test_relaxed_arrival_at_the_cluster_orders_fenced_initialisations_only(inits, order, read, hazard) -> None:
    text = INITIALISED.replace("INITS", inits).replace("ORDER", order).replace("READ", read)
    for schedule, seed in SCHEDULES:
        arguments = dict(grid=[2], block=[32], cluster=[2], params=b"", tensors=[], schedule=schedule, seed=seed)
        if hazard is None:
            simulator.run(text, **arguments)
        else:
            with pytest.raises(RuntimeError, match=hazard):
                simulator.run(text, **arguments)
        if read:  # machines order more than the manual promises
            simulator.run(text, rules="hardware", **arguments)


COMPLETED = kernel(
    """
    mov.u32 %r1, full;
    setp.ne.u32 %p0, %t, 0;
    @%p0 bra wait;
    mbarrier.init.shared::cta.b64 [%r1], 1;
wait:
    bar.sync 0;
    setp.ne.u32 %p1, %t, 32;
    @%p1 bra read;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;
    st.shared.u32 [data], 7;
    FENCE
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;
    bra done;
read:
    @%p0 bra done;
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
    @!%p2 bra again;
    ld.shared.u32 %r2, [data];
    st.global.u32 [%out], %r2;
done:""",
    shared=".shared .align 8 .b64 full; .shared .align 16 .b8 data[16];",
)


@pytest.mark.parametrize("fence", ["fence.acq_rel.cta;", "fence.release.sync_restrict::shared::cta.cluster;", ""])
def test_bytes_that_threads_complete_carry_what_a_fence_released(fence) -> None:
    """And nothing without one, since they are relaxed."""
    out = torch.zeros(1, dtype=torch.int32)
    for schedule, seed in SCHEDULES:
        arguments = dict(threads=64, schedule=schedule, seed=seed)
        if not fence:
            with pytest.raises(RuntimeError, match="race"):
                run_kernel(COMPLETED.replace("FENCE", ""), out, **arguments)
        else:
            run_kernel(COMPLETED.replace("FENCE", fence), out, **arguments)
            assert out.item() == 7
