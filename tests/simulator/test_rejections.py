"""What the simulator does not model is refused when it is loaded, with a sentence that says what is missing."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import pytest
import torch
from ptx_tools import kernel, run_kernel

MMA = "tcgen05.mma.cta_group::1.kind::f16{0} [%r1], %d1, %d2, %r2, %p1;"
REFUSED = [
    ("tcgen05.shift.cta_group::1.down [%r1];", "tcgen05.shift is not modelled: rows of tensor memory cannot be moved"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %d1, %d2, [%r3], %r2, %p1;", "sparse products are not modelled: metadata"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %d1, %d2, %r2, %p1;", "tcgen05.mma.ws is not modelled: its layouts of D"),
    ("tcgen05.mma.ws.sp.cta_group::1.kind::f16 [%r1], %d1, %d2, [%r3], %r2, %p1;", "sparse products are not modelled"),
    (MMA.format(".ashift"), "tcgen05.mma.ashift is not modelled"),
    (MMA.format(".collector::a::use"), "reuse of a collector buffer is not modelled"),
    (MMA.format(".collector::a::lastuse"), "reuse of a collector buffer is not modelled"),
    (MMA.format(".collector::b0::fill"), "reuse of a collector buffer is not modelled"),
    ("tcgen05.mma.cta_group::2.kind::f16 [%r1], %d1, %d2, %r2, {%r3, %r4, %r5, %r6}, %p1;", "disable-output-lane must have 8 registers, got 4"),
    (MMA.format("").replace("f16", "f64"), "of this kind is not modelled: f16, tf32"),
    ("tcgen05.cp.cta_group::1.128x256b.b8x16.b6x16_p32 [%r1], %d1;", "unpacks 4- or 6-bit elements is not modelled"),
    ("tcgen05.cp.cta_group::1.16x256b [%r1], %d1;", "tcgen05.cp has no such shape"),
    ("tcgen05.ld.red.sync.aligned.32x32b.x2.f32.min {%r1, %r2}, %r4, [%r3];", "tcgen05.ld.red is not modelled"),
    ("tcgen05.ld.sync.aligned.16x32bx2.x1.pack::16b.b32 {%r1}, [%r3], 16;", "16 bits a column with 16x32bx2 are not modelled"),
    ("tcgen05.other.cta_group::1 [%r1];", "tcgen05 has alloc, dealloc"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1,%f2,%f3,%f4}, %d1, %d2, %r1, 0, %p1, 1, 1, 0, 0;", "sparse products are not modelled"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%f1,%f2,%f3,%f4}, %r9, 0x0;", "sparse products are not modelled"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, {%r1,%r2}, {%r3,%r4}, {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8};", "Volta's shape m8n8k4 is not modelled"),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%g1,%g2}, {%g3}, {%g4}, {%g1,%g2};", "mma.sync of FP64 is not modelled"),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r1,%r2}, {%r1,%r2,%r3,%r4};", "mma.sync of single bits is not modelled"),
    ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1], 16;", "wmma is not modelled"),
    ("cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r1], [%d1, {%r2, %r3, %r4, %r5}], [%r6], {%h1, %h2};", "im2col tensor copies are not modelled"),
    ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d1], [%r1], %r2, %h1;", "byte masks of bulk copies"),
    ("st.bulk.weak.shared::cta [%r1], %d1, 0;", "st.bulk is not modelled"),
    ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];", "red.async to shared memory is not modelled"),
    ("multimem.ld_reduce.relaxed.sys.global.add.f32 %f1, [%d1];", "multimem is not modelled"),
    ("multimem.red.relaxed.sys.global.add.f32 [%d1], %f1;", "multimem is not modelled"),
    ("vabsdiff4.u32.u32.s32 %r1, %r2, %r3, %r4;", "vabsdiff4 is modelled from two words of one type"),
    ("vabsdiff4.u32.u32.u32.add %r1, %r2, %r3, %r4;", "add"),
    ("tex.1d.v4.s32.s32 {%r1,%r2,%r3,%r4}, [%d1, {%r5}];", "textures are not modelled"),
    ("suld.b.1d.b32.trap {%r1}, [%d1, {%r2}];", "surfaces are not modelled"),
    ("sust.b.1d.b32.trap [%d1, {%r2}], {%r1};", "surfaces are not modelled"),
]  # fmt: skip


def load(code: str) -> None:
    """It stands where it never runs."""
    text = kernel(f"    bra END;\n    {code}\nEND:", registers=".reg .b128 %q<4>;")
    run_kernel(text, torch.zeros(1, dtype=torch.int32))


@pytest.mark.parametrize(("code", "why"), REFUSED)
def test_what_is_not_modelled_is_refused_with_what_is_missing(code: str, why: str) -> None:
    with pytest.raises(RuntimeError, match="PTX line") as rejection:
        load(code)
    assert why in str(rejection.value)
    assert code.split(" ")[0] in str(rejection.value)


@pytest.mark.parametrize("usage", ["", ".collector::a::fill", ".collector::a::discard"])
def test_collector_usage_that_changes_nothing_passes(usage: str) -> None:
    load(MMA.format(usage))
