"""Lanes and warps: exchange, divergence, barriers of warp and block, memory spaces, atomics."""

# ruff: noqa: E501  (PTX stands in the tables as it is, one case a line)

from __future__ import annotations

import pytest
import torch
from ptx_tools import SCHEDULES, kernel, run_kernel

STORE = """
    mul.wide.u32 %offset, %t, 4;
    add.s64 %out, %out, %offset;
    st.global.u32 [%out], %r0;"""
FULL = 0xFFFFFFFF


def per_lane(code: str, threads: int = 32, shared: str = "", **options) -> list[int]:
    """The %r0 of each thread, unsigned."""
    out = torch.zeros(threads, dtype=torch.int32)
    run_kernel(kernel(code + STORE, shared=shared), out, threads=threads, **options)
    return [x & FULL for x in out.tolist()]


FLOATS = "sub.s32 %r1, %t, 20; cvt.rn.f32.s32 %f1, %r1;"  # -20 to 11
ONE_NAN = "setp.eq.u32 %p1, %t, 3; selp.f32 %f1, 0f7fffffff, %f1, %p1;"
AS_INTEGER = "cvt.rni.s32.f32 %r0, %f2;"
WARP = [
    ("shfl.sync.idx.b32 %r0, %t, 5, 31, -1;", lambda i: 5),
    ("shfl.sync.up.b32 %r0|%p1, %t, 1, 0, -1;", lambda i: max(i - 1, 0)),
    ("shfl.sync.down.b32 %r0, %t, 2, 31, -1;", lambda i: i + 2 if i < 30 else i),
    ("shfl.sync.bfly.b32 %r0, %t, 16, 31, -1;", lambda i: i ^ 16),
    ("shfl.sync.idx.b32 %r0, %t, 1, 0x181f, -1;", lambda i: (i & 24) | 1),  # segments of eight
    ("shfl.sync.up.b32 %r1|%p1, %t, 1, 0, -1; selp.u32 %r0, 1, 0, %p1;", lambda i: int(i > 0)),
    ("setp.lt.u32 %p1, %t, 4; vote.sync.ballot.b32 %r0, %p1, -1;", lambda i: 15),
    ("setp.lt.u32 %p1, %t, 4; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, %p2;", lambda i: 1),
    ("setp.lt.u32 %p1, %t, 4; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, %p2;", lambda i: 0),
    ("setp.lt.u32 %p1, %t, 4; vote.sync.all.pred %p2, !%p1, -1; selp.u32 %r0, 1, 0, %p2;", lambda i: 0),
    ("shr.u32 %r1, %t, 3; match.any.sync.b32 %r0, %r1, -1;", lambda i: 255 << (i & 24)),
    ("match.all.sync.b32 %r0|%p1, %t, -1;", lambda i: 0),
    ("redux.sync.add.u32 %r0, %t, -1;", lambda i: 496),
    ("redux.sync.max.s32 %r0, %t, -1;", lambda i: 31),
    ("redux.sync.or.b32 %r0, %t, -1;", lambda i: 31),
    (f"{FLOATS} redux.sync.min.f32 %f2, %f1, -1; {AS_INTEGER}", lambda i: -20 & FULL),
    (f"{FLOATS} redux.sync.max.f32 %f2, %f1, -1; {AS_INTEGER}", lambda i: 11),
    (f"{FLOATS} redux.sync.max.abs.f32 %f2, %f1, -1; {AS_INTEGER}", lambda i: 20),
    (f"{FLOATS} {ONE_NAN} redux.sync.max.f32 %f2, %f1, -1; {AS_INTEGER}", lambda i: 11),
    (f"{FLOATS} {ONE_NAN} redux.sync.min.NaN.f32 %f2, %f1, -1; mov.b32 %r0, %f2;", lambda i: 0x7FFFFFFF),
    ("elect.sync %r1|%p1, -1; selp.u32 %r0, 1, 0, %p1;", lambda i: int(i == 0)),
    ("elect.sync %r0|%p1, -1;", lambda i: 0),
    ("mov.u32 %r0, %lanemask_lt;", lambda i: (1 << i) - 1),
    ("mov.u32 %r0, %laneid;", lambda i: i),
    # only the lanes of the branch take part
    (
        "setp.ge.u32 %p1, %t, 8; @%p1 bra OUT; elect.sync %r0|%p2, 255; selp.u32 %r0, 7, 3, %p2; OUT:",
        lambda i: 0 if i >= 8 else 7 if i == 0 else 3,
    ),
    # two halves with their own masks, together at one instruction
    (
        "setp.lt.u32 %p1, %t, 16; selp.b32 %r1, 0xffff, 0xffff0000, %p1; redux.sync.min.u32 %r0, %t, %r1;",
        lambda i: 0 if i < 16 else 16,
    ),
]


@pytest.mark.parametrize(
    ("code", "expected"), WARP, ids=[row[0].split(";")[0].split(" ")[0] + str(i) for i, row in enumerate(WARP)]
)
def test_warp(code: str, expected) -> None:
    assert per_lane(f"mov.u32 %r0, 0; {code}") == [expected(i) for i in range(32)]


CONTROL = [
    # each lane its own number of rounds
    (
        "mov.u32 %r0, 0; mov.u32 %r1, 0; LOOP: add.u32 %r0, %r0, %r1; add.u32 %r1, %r1, 1; setp.le.u32 %p1, %r1, %t; @%p1 bra LOOP;",
        lambda i: i * (i + 1) // 2,
    ),
    # if / else whose else branch stands far away, and a rendezvous after both
    (
        "and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN; mov.u32 %r0, 10; BACK: shfl.sync.bfly.b32 %r0, %r0, 1, 31, -1; bra.uni END; EVEN: mov.u32 %r0, 20; bra BACK; END:",
        lambda i: 20 if i & 1 else 10,
    ),
    (
        "and.b32 %r1, %t, 3; ts: .branchtargets A, B, C, D; brx.idx %r1, ts; A: mov.u32 %r0, 5; bra E; B: mov.u32 %r0, 6; bra E; C: mov.u32 %r0, 7; bra E; D: mov.u32 %r0, 8; E:",
        lambda i: 5 + i % 4,
    ),
    # lanes leave; the others still meet
    (
        "mov.u32 %r0, 1; setp.ge.u32 %p1, %t, 16; @%p1 bra L; redux.sync.add.u32 %r0, %r0, 0xffff; L:",
        lambda i: 16 if i < 16 else 1,
    ),
    # bar.warp.sync met at two places
    (
        "mov.u32 %r0, 1; setp.ge.u32 %p1, %t, 16; @%p1 bra M; bar.warp.sync -1; add.u32 %r0, %r0, 1; bra N; M: bar.warp.sync -1; add.u32 %r0, %r0, 2; N:",
        lambda i: 2 if i < 16 else 3,
    ),
    # a name declared in braces hides the outer one, and so does a label
    (
        "mov.u32 %r1, 1; { .reg .b32 %r1; mov.u32 %r1, 5; bra L; mov.u32 %r1, 6; L: mov.u32 %r0, %r1; } { bra L; mov.u32 %r1, 9; L: add.u32 %r0, %r0, %r1; }",
        lambda i: 6,
    ),
    # one lane spins on shared memory until another lane of its warp stores
    (
        "mov.u32 %r1, flag; mov.u32 %r3, 0; setp.ne.u32 %p1, %t, 0; @%p1 bra REST; st.volatile.shared.u32 [%r1], %r3; REST: bar.warp.sync -1; setp.eq.u32 %p1, %t, 3; @!%p1 bra SPIN; mov.u32 %r3, 9; st.volatile.shared.u32 [%r1], %r3; SPIN: ld.volatile.shared.u32 %r0, [%r1]; setp.ne.u32 %p2, %r0, 9; @%p2 bra SPIN;",
        lambda i: 9,
    ),
    (
        "mov.u32 %r0, 4; @%p1 exit; nanosleep.u32 20; griddepcontrol.wait; griddepcontrol.launch_dependents;",
        lambda i: 4,
    ),
    # time passes while a warp sleeps, by what it asked for at least
    (
        "mov.u32 %r1, %clock; nanosleep.u32 700; mov.u32 %r2, %clock; sub.u32 %r2, %r2, %r1; mov.u32 %r0, 0; setp.ge.u32 %p1, %r2, 700; @%p1 mov.u32 %r0, 1;",
        lambda i: 1,
    ),
    # and hardly otherwise
    (
        "mov.u32 %r1, %clock; mov.u32 %r3, 700; mov.u32 %r2, %clock; sub.u32 %r2, %r2, %r1; mov.u32 %r0, 0; setp.ge.u32 %p1, %r2, 700; @%p1 mov.u32 %r0, 1;",
        lambda i: 0,
    ),
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("code", "expected"), CONTROL)
def test_control_flow(code: str, expected, schedule: str, seed: int) -> None:
    shared = ".shared .align 16 .b32 flag;"
    assert per_lane(code, shared=shared, schedule=schedule, seed=seed) == [expected(i) for i in range(32)]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_block_barrier_and_shared_memory(schedule: str, seed: int) -> None:
    code = """
    mov.u32 %r1, data;
    shl.b32 %r2, %t, 2;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %t;
    bar.sync 0;
    xor.b32 %r4, %r2, 508;
    add.u32 %r4, %r1, %r4;
    ld.shared.u32 %r0, [%r4];"""
    got = per_lane(code, threads=128, shared=".shared .align 16 .b32 data[128];", schedule=schedule, seed=seed)
    assert got == [127 - i for i in range(128)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r0, 0, %p1;", 40),
        ("setp.lt.u32 %p1, %t, 40; barrier.cta.red.popc.aligned.u32 %r0, 3, 128, !%p1;", 88),
        ("setp.lt.u32 %p1, %t, 40; bar.red.or.pred %p2, 0, %p1; selp.u32 %r0, 1, 0, %p2;", 1),
        ("setp.lt.u32 %p1, %t, 40; bar.red.and.pred %p2, 0, %p1; selp.u32 %r0, 1, 0, %p2;", 0),
    ],
)
def test_barrier_reductions(code: str, expected: int) -> None:
    assert per_lane(code, threads=128) == [expected] * 128


def test_named_barriers_of_part_of_a_block() -> None:
    code = """
    mov.u32 %r0, 3;
    setp.ge.u32 %p1, %t, 64;
    @%p1 bra CONSUMER;
    mov.u32 %r1, data;
    st.shared.u32 [%r1], 77;
    barrier.cta.arrive.aligned 5, 96;
    bra END;
CONSUMER:
    setp.ge.u32 %p1, %t, 96;
    @%p1 bra END;
    barrier.cta.sync.aligned 5, 96;
    mov.u32 %r1, data;
    ld.shared.u32 %r0, [%r1];
END:"""
    code = code.replace(
        "st.shared.u32 [%r1], 77;", "mov.u32 %r2, 77; setp.eq.u32 %p2, %t, 0; @%p2 st.shared.u32 [%r1], %r2;"
    )
    got = per_lane(code, threads=128, shared=".shared .align 16 .b32 data[4];")
    assert got == [3] * 64 + [77] * 32 + [3] * 32


MEMORY = [
    ("mov.u32 %r1, data; mov.u32 %r2, -2; st.shared.u16 [%r1], %r2; ld.shared.s16 %r0, [%r1];", FULL - 1),
    ("mov.u32 %r1, data; mov.u32 %r2, 0x1234; st.shared.v2.u8 [%r1], {%r2, %r2}; ld.shared.u16 %r0, [%r1];", 0x3434),
    ("mov.u64 %d1, data; cvta.shared.u64 %d2, %d1; mov.u32 %r2, 6; st.u32 [%d2], %r2; ld.u32 %r0, [%d2];", 6),
    (
        "mov.u64 %d1, data; cvta.shared.u64 %d2, %d1; cvta.to.shared.u64 %d3, %d2; cvt.u32.u64 %r1, %d3; mov.u32 %r2, data; sub.u32 %r0, %r1, %r2;",
        0,
    ),
    (
        "mov.u64 %d1, data; cvta.shared.u64 %d2, %d1; isspacep.shared %p1, %d2; isspacep.global %p2, %out; and.pred %p1, %p1, %p2; selp.u32 %r0, 1, 0, %p1;",
        1,
    ),
    (
        "mov.u32 %r1, 5; mov.u32 %r2, 6; mov.u64 %d1, place; st.local.v2.u32 [%d1+8], {%r1, %r2}; cvta.local.u64 %d2, %d1; ld.u32 %r0, [%d2+12];",
        6,
    ),
    ("mov.u32 %r1, data+4; mov.u32 %r2, 8; st.shared.u32 [data+4], %r2; ld.shared.u32 %r0, [%r1+0];", 8),
    ("mov.u64 %d1, table; ld.const.u32 %r0, [table+8];", 30),
    (
        "mov.u32 %r1, data; mov.u32 %r2, 1; st.shared.u32 [%r1], %r2; atom.shared.add.u32 %r3, [%r1], 4; ld.shared.u32 %r0, [%r1];",
        5,
    ),
    (
        "mov.u32 %r1, data; mov.u32 %r2, 1; st.shared.u32 [%r1], %r2; atom.shared.cas.b32 %r0, [%r1], 1, 9; ld.shared.u32 %r3, [%r1]; add.u32 %r0, %r0, %r3;",
        10,
    ),
    (
        "mov.u32 %r1, data; mov.u32 %r2, 7; st.shared.u32 [%r1], %r2; atom.shared.inc.u32 %r3, [%r1], 7; ld.shared.u32 %r0, [%r1];",
        0,
    ),
    ("mov.u32 %r1, data; mov.u32 %r2, 7; st.shared.u32 [%r1], %r2; atom.shared.exch.b32 %r0, [%r1], 3;", 7),
    (
        "mov.u32 %r1, 0; st.global.u32 [%out], %r1; red.global.add.u32 [%out], 3; atom.global.max.s32 %r2, [%out], 8; ld.global.u32 %r0, [%out];",
        8,
    ),
    (
        "mov.f32 %f1, 0f3F800000; st.global.f32 [%out], %f1; red.relaxed.gpu.global.add.f32 [%out], %f1; ld.global.u32 %r0, [%out];",
        0x40000000,
    ),
    (
        "mov.u32 %r1, 0x3f803f80; st.global.u32 [%out], %r1; red.global.add.noftz.bf16x2 [%out], %r1; ld.global.u32 %r0, [%out];",
        0x40004000,
    ),
    (
        "createpolicy.fractional.L2::evict_first.b64 %d1, 0f3F800000; ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %r0, [%in], %d1;",
        0,
    ),
    ("prefetch.global.L2 [%in]; membar.gl; fence.acq_rel.gpu; fence.proxy.async; mov.u32 %r0, 2;", 2),
]


@pytest.mark.parametrize(("code", "expected"), MEMORY)
def test_memory(code: str, expected: int) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    text = kernel(
        f"{code}\n    st.global.u32 [%out], %r0;",
        shared=".shared .align 16 .b32 data[8]; .local .align 16 .b8 place[64];",
        declarations=".const .align 4 .u32 table[4] = {10, 20, 30, 40};\n",
    )
    run_kernel(text, out, threads=1)
    assert int(out[0]) & FULL == expected


def test_matrices_go_round() -> None:
    """stmatrix.trans then ldmatrix transposes each 8x8 matrix; ldmatrix.trans of that gives it back."""
    code = """
    mov.u32 %r1, data;
    and.b32 %r2, %t, 31;
    shl.b32 %r2, %r2, 4;
    add.u32 %r1, %r1, %r2;
    mul.lo.u32 %r3, %t, 0x20002;
    add.u32 %r3, %r3, 0x10000;
    add.u32 %r4, %r3, 0x00640064;
    stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r1], {%r3, %r4};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r5, %r6}, [%r1];
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r1];
    sub.u32 %r0, %r6, %r5;
    shl.b32 %r8, %r7, 16;
    xor.b32 %r0, %r0, %r8;"""
    got = per_lane(code, shared=".shared .align 128 .b8 data[512];")
    # element (r, c) held 8r + c; transposed, lane l's low half is element (2(l%4), l/4)
    assert got == [0x00640064 ^ ((8 * (2 * (i % 4)) + i // 4) << 16) for i in range(32)]


MATRIX_COUNTS = [1, 2, 4]


def numbered_matrices(count: int, transposed: bool) -> torch.Tensor:
    """What each lane holds: element (r, c) of matrix i is 64 i + 8 r + c, two in a word."""
    matrices = torch.arange(64 * count).view(count, 8, 8)
    if transposed:
        matrices = matrices.transpose(1, 2)
    pairs = matrices.reshape(count, 32, 2)
    return (pairs[..., 0] | pairs[..., 1] << 16).int()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", MATRIX_COUNTS)
def test_ldmatrix(count: int, transposed: bool) -> None:
    """Rows lie 48 bytes apart, so that every lane's address counts; lane l names row l % 8 of matrix l / 8."""
    given = torch.arange(256, dtype=torch.int16).view(32, 8)
    words = ", ".join(f"%r{10 + i}" for i in range(count))
    stores = "".join(f"    st.global.u32 [%out+{128 * i}], %r{10 + i};\n" for i in range(count))
    body = f"""
    mul.wide.u32 %offset, %t, 16;
    add.s64 %in, %in, %offset;
    ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%in];
    mov.u32 %r0, data;
    mad.lo.u32 %r1, %t, 48, %r0;
    st.shared.v4.u32 [%r1], {{%r2, %r3, %r4, %r5}};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x{count}{".trans" if transposed else ""}.shared.b16 {{{words}}}, [%r1];
    mul.wide.u32 %offset, %t, 4;
    add.s64 %out, %out, %offset;
{stores}"""
    out = torch.zeros(count, 32, dtype=torch.int32)
    run_kernel(kernel(body, shared=".shared .align 128 .b8 data[1536];"), out, given)
    assert torch.equal(out, numbered_matrices(count, transposed))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", MATRIX_COUNTS)
def test_stmatrix(count: int, transposed: bool) -> None:
    given = numbered_matrices(count, transposed)
    words = ", ".join(f"%r{10 + i}" for i in range(count))
    loads = "".join(f"    ld.global.u32 %r{10 + i}, [%d1+{128 * i}];\n" for i in range(count))
    body = f"""
    mul.wide.u32 %offset, %t, 4;
    add.s64 %d1, %in, %offset;
{loads}    mov.u32 %r0, data;
    mad.lo.u32 %r1, %t, 48, %r0;
    stmatrix.sync.aligned.m8n8.x{count}{".trans" if transposed else ""}.shared.b16 [%r1], {{{words}}};
    bar.warp.sync -1;
    setp.ge.u32 %p1, %t, {8 * count};
    @%p1 bra END;
    ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, [%r1];
    mul.wide.u32 %offset, %t, 16;
    add.s64 %out, %out, %offset;
    st.global.v4.u32 [%out], {{%r2, %r3, %r4, %r5}};
END:"""
    out = torch.zeros(8 * count, 8, dtype=torch.int16)
    run_kernel(kernel(body, shared=".shared .align 128 .b8 data[1536];"), out, given)
    assert torch.equal(out.reshape(-1), torch.arange(64 * count, dtype=torch.int16))


HAZARDS = [
    ("mov.u32 %r1, data; ld.shared.u32 %r0, [%r1+64];", "out of bounds"),
    ("mov.u32 %r1, 0; ld.shared.u32 %r0, [%r1];", "out of bounds"),
    ("ld.global.u32 %r0, [%in+64];", "out of bounds"),
    ("mov.u32 %r0, 1; st.global.u32 [%in], %r0;", "is an input"),
    ("mov.u64 %d1, 0; ld.u32 %r0, [%d1];", "out of bounds"),
    ("add.u64 %d1, %out, 1; ld.global.u32 %r0, [%d1];", "misaligned"),
    ("mov.u32 %r1, data; ld.shared.u32 %r0, [%r1];", "uninitialised"),
    (
        "mov.u32 %r1, data; ld.shared.u32 %r2, [%r1]; setp.eq.u32 %p1, %r2, 3; @%p1 bra X; X: mov.u32 %r0, 1;",
        "uninitialised",
    ),
    (
        "mov.u32 %r1, data; ld.shared.u32 %r2, [%r1]; setp.lt.u32 %p1, %t, 40; selp.u32 %r0, %r2, %t, %p1;",
        "uninitialised",
    ),
    ("setp.lt.u32 %p1, %t, 5; @%p1 bar.sync 0; mov.u32 %r0, 1;", "convergence"),
    ("setp.lt.u32 %p1, %t, 5; @%p1 bra X; shfl.sync.idx.b32 %r0, %t, 0, 31, -1; bra Y; X: bra.uni X; Y:", "deadlock"),
    ("setp.lt.u32 %p1, %t, 5; @%p1 bra X; bar.sync 1, 64; X: mov.u32 %r0, 1;", "barrier"),
    ("trap;", "trap"),
    ("mov.u32 %r1, data; mov.u32 %r0, 0; L: ld.volatile.shared.u32 %r2, [%r1]; bra L;", "deadlock"),
]


@pytest.mark.parametrize(("code", "kind"), HAZARDS)
def test_hazard(code: str, kind: str) -> None:
    with pytest.raises(RuntimeError, match=kind):
        per_lane(code, shared=".shared .align 16 .b32 data[4];")


def test_what_was_not_selected_does_not_matter() -> None:
    code = "mov.u32 %r1, data; ld.shared.u32 %r2, [%r1]; setp.lt.u32 %p1, %t, 40; selp.u32 %r0, %t, %r2, %p1;"
    assert list(per_lane(code, shared=".shared .align 16 .b32 data[4];")) == list(range(32))


def test_race_between_warps() -> None:
    """No barrier between the store of one warp and the load of another: found under every schedule, either way round."""
    code = """
    mov.u32 %r1, data;
    setp.ge.u32 %p1, %t, 32;
    @%p1 bra READ;
    st.shared.u32 [%r1], %r1;
    mov.u32 %r0, 0;
    bra END;
READ:
    ld.shared.u32 %r0, [%r1];
    mov.u32 %r0, 0;
END:"""
    for schedule, seed in SCHEDULES:
        with pytest.raises(RuntimeError, match=r"race|overwrite"):
            per_lane(code, threads=64, shared=".shared .align 16 .b32 data[4];", schedule=schedule, seed=seed)


@pytest.mark.parametrize(("stored_by", "kinds"), [(0, ["uninitialised"]), (1, [])])
def test_a_shuffled_value_is_as_good_as_the_lane_that_it_comes_from(stored_by: int, kinds: list[str]) -> None:
    """Lane 1 alone reads what nobody wrote; neighbours exchange what they read, and one of them stores it."""
    body = f"""
    mov.u32 %r0, data;
    shl.b32 %r1, %t, 2;
    add.u32 %r1, %r0, %r1;
    setp.ne.u32 %p1, %t, 1;
    mov.u32 %r2, 0;
    @%p1 st.shared.u32 [%r1], %r2;
    bar.warp.sync -1;
    ld.shared.u32 %r3, [%r1];
    shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
    setp.eq.u32 %p2, %t, {stored_by};
    @%p2 st.global.u32 [%out], %r4;"""
    text = kernel(body, shared=".shared .align 16 .b32 data[32];")
    report = run_kernel(text, torch.zeros(1, dtype=torch.int32), hazards="report")
    assert [hazard.kind for hazard in report.hazards] == kinds
