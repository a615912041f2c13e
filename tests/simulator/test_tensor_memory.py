"""tcgen05 on tensor memory but for products: allocation, loads and stores of every shape, copies, and their hazards."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from ptx_tools import SCHEDULES, kernel, run_kernel

from deep_gemm import simulator

SHARED = ".shared .align 1024 .b8 data[16384]; .shared .align 8 .b64 bar; .shared .align 4 .b32 place;"
# Warp 0 allocates; %r1: the address with this warp's lanes, %r2: without.
ALLOCATE = """
    mov.u32 %r0, place;
    shr.u32 %r3, %t, 5;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], {columns};
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
    bar.sync 0;
    ld.shared.u32 %r2, [%r0];
    shl.b32 %r4, %r3, 21;
    add.u32 %r1, %r2, %r4;
"""
FREE = """
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    @%p1 bra END;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, {columns};
END:
"""


def run(
    body: str, out: torch.Tensor, given: torch.Tensor | None = None, columns: int = 64, **options
) -> simulator.Report:
    text = kernel(ALLOCATE.format(columns=columns) + body + FREE.format(columns=columns), shared=SHARED)
    return run_kernel(text, out, given, threads=128, **options)


def registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


COLUMNS = 64
# Every lane writes 1000 * lane + column to each of 64 columns.
FILL = "mul.lo.u32 %r5, %t, 1000;" + "".join(
    f"add.u32 %r6, %r5, {c}; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1+{c}], {{%r6}};" for c in range(COLUMNS)
)
FILL += " tcgen05.wait::st.sync.aligned;"

# Of each shape: registers of one repetition, and where lane l's register r lies, by the manual's figures.
Place = Callable[[int, int], tuple[int, int]]
SHAPES: dict[str, tuple[int, Place]] = {
    "32x32b": (1, lambda lane, r: (lane, r)),
    "16x64b": (1, lambda lane, r: (lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * r)),
    "16x128b": (2, lambda lane, r: (lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2))),
    "16x256b": (4, lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (lane % 4) + 8 * (r // 4))),
}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("repeat", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_loads_of_every_shape(shape: str, repeat: int, schedule: str, seed: int) -> None:
    per_repeat, place = SHAPES[shape]
    count = per_repeat * repeat
    half = 0 if shape == "32x32b" else 16  # shapes of 16 lanes: the upper ones of the quarter
    stores = "".join(f"st.global.u32 [%out+{4 * i}], %r{10 + i};" for i in range(count))
    body = f"""
    {FILL}
    add.u32 %r7, %r1, {half << 16};
    tcgen05.ld.sync.aligned.{shape}.x{repeat}.b32 {registers(10, count)}, [%r7+8];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %offset, %t, 64;
    add.s64 %out, %out, %offset;
    {stores}"""
    out = torch.zeros(128, 16, dtype=torch.int32)
    run(body, out, schedule=schedule, seed=seed)
    for thread in range(128):
        for r in range(count):
            row, column = place(thread % 32, r)
            assert out[thread, r] == 1000 * (thread // 32 * 32 + half + row) + 8 + column


@pytest.mark.parametrize("shape", SHAPES)
def test_stores_of_every_shape(shape: str) -> None:
    """Each shape's store, read back lane by lane."""
    per_repeat, place = SHAPES[shape]
    moves = "".join(f"mad.lo.u32 %r{10 + i}, %t, 1000, {i};" for i in range(per_repeat))
    stores = "".join(f"st.global.u32 [%out+{4 * i}], %r{20 + i};" for i in range(8))
    body = f"""
    {FILL}
    {moves}
    tcgen05.st.sync.aligned.{shape}.x1.b32 [%r1], {registers(10, per_repeat)};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {registers(20, 8)}, [%r1];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %offset, %t, 32;
    add.s64 %out, %out, %offset;
    {stores}"""
    out = torch.zeros(128, 8, dtype=torch.int32)
    run(body, out)
    expected = 1000 * torch.arange(128)[:, None] + torch.arange(8)
    for thread in range(128):
        for r in range(per_repeat):
            row, column = place(thread % 32, r)
            expected[thread // 32 * 32 + row, column] = 1000 * thread + r
    assert torch.equal(out, expected.int())


def test_two_halves_of_16_bits_from_two_columns() -> None:
    body = """
    mov.u32 %r10, 0x00050004;
    tcgen05.st.sync.aligned.32x32b.x1.unpack::16b.b32 [%r1+2], {%r10};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r11, %r12}, [%r1+2];
    tcgen05.ld.sync.aligned.32x32b.x1.pack::16b.b32 {%r13}, [%r1+2];
    tcgen05.wait::ld.sync.aligned;
    st.global.v4.u32 [%out], {%r11, %r12, %r13, %r10};"""
    out = torch.zeros(4, dtype=torch.int32)
    run(body, out)
    assert out.tolist() == [4, 5, 0x00050004, 0x00050004]


def test_two_tiles_of_16_lanes() -> None:
    """16x32bx2: the lower half of the warp at the address, the upper half of it `offset` columns further."""
    body = f"""
    {FILL}
    tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {{%r10, %r11}}, [%r1], 5;
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %offset, %t, 8;
    add.s64 %out, %out, %offset;
    st.global.v2.u32 [%out], {{%r10, %r11}};"""
    out = torch.zeros(128, 2, dtype=torch.int32)
    run(body, out)
    for thread in range(128):
        first = 1000 * (thread // 32 * 32 + thread % 16) + (5 if thread % 32 >= 16 else 0)
        assert out[thread].tolist() == [first, first + 1]


# Chunk c of row r holds 100 r + 4 c and the three numbers after it; thread t writes row t.
COPY_SHAPES = [
    # columns, and the row that comes to a lane
    ("128x128b", 4, lambda lane: lane),
    ("128x256b", 8, lambda lane: lane),
    ("64x128b.warpx2::02_13", 4, lambda lane: lane % 64),
    ("64x128b.warpx2::01_23", 4, lambda lane: lane // 64 * 32 + lane % 32),
    ("32x128b.warpx4", 4, lambda lane: lane % 32),
    ("4x256b", 8, lambda lane: None if lane % 32 else lane // 32),
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("shape", "columns", "row_of_lane"), COPY_SHAPES, ids=[row[0] for row in COPY_SHAPES])
def test_copies_of_every_shape(
    shape: str, columns: int, row_of_lane: Callable[[int], int | None], schedule: str, seed: int
) -> None:
    """From rows of 16-byte chunks without a swizzle: eight rows 128 bytes apart, chunks 2048."""
    high = 128 >> 4 << 32 | 2048 >> 4 << 16 | 1 << 46
    chunks = "".join(
        f"mad.lo.u32 %r10, %t, 100, {4 * c}; add.u32 %r11, %r10, 1; add.u32 %r12, %r10, 2; add.u32 %r13, %r10, 3; st.shared.v4.u32 [%r9+{2048 * c}], {{%r10, %r11, %r12, %r13}};"
        for c in range(2)
    )
    stores = "".join(f"st.global.u32 [%out+{4 * i}], %r{20 + i};" for i in range(8))
    body = f"""
    {FILL}
    tcgen05.fence::before_thread_sync;
    mov.u32 %r8, data;
    shl.b32 %r9, %t, 4;
    add.u32 %r9, %r8, %r9;
    {chunks}
    mov.u32 %r14, bar;
    setp.ne.u32 %p2, %t, 0;
    @!%p2 mbarrier.init.shared::cta.b64 [%r14], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p2 bra WAIT;
    tcgen05.fence::after_thread_sync;
    shr.u32 %r8, %r8, 4;
    cvt.u64.u32 %d1, %r8;
    or.b64 %d1, %d1, {high};
    tcgen05.cp.cta_group::1.{shape} [%r2], %d1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r14];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r14], 0;
    @!%p3 bra WAIT;
    bar.warp.sync -1;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {registers(20, 8)}, [%r1];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %offset, %t, 32;
    add.s64 %out, %out, %offset;
    {stores}"""
    out = torch.zeros(128, 8, dtype=torch.int32)
    run(body, out, schedule=schedule, seed=seed)
    expected = 1000 * torch.arange(128)[:, None] + torch.arange(8)
    for lane in range(128):
        row = row_of_lane(lane)
        if row is not None:
            expected[lane, :columns] = 100 * row + torch.arange(columns)
    assert torch.equal(out, expected.int())


WORDS_OF_A_CHUNK = """
    mov.u32 %r8, data;
    shl.b32 %r9, %t, 4;
    add.u32 %r9, %r8, %r9;
    st.shared.v2.u32 [%r9], {%t, %r9};
    st.shared.u32 [%r9+12], %t;
    mov.u32 %r14, bar;
    setp.ne.u32 %p2, %t, 0;
    @!%p2 mbarrier.init.shared::cta.b64 [%r14], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p2 bra WAIT;
    shr.u32 %r8, %r8, 4;
    cvt.u64.u32 %d1, %r8;
    or.b64 %d1, %d1, HIGH;
    tcgen05.cp.cta_group::1.128x128b [%r2], %d1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r14];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r14], 0;
    @!%p3 bra WAIT;
    bar.warp.sync -1;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r20, %r21, %r22, %r23}, [%r1];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 %offset, %t, 4;
    add.s64 %out, %out, %offset;
    st.global.u32 [%out], WORD;""".replace("HIGH", str(128 >> 4 << 32 | 2048 >> 4 << 16 | 1 << 46))


def test_copies_keep_track_of_single_words() -> None:
    """Of each 16 bytes the third word was never written: the other three may be used."""
    for word in (20, 23):
        out = torch.full((128,), -1, dtype=torch.int32)
        run(WORDS_OF_A_CHUNK.replace("WORD", f"%r{word}"), out)
        assert torch.equal(out, torch.arange(128, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="uninitialised"):
        run(WORDS_OF_A_CHUNK.replace("WORD", "%r22"), torch.zeros(128, dtype=torch.int32))


def test_allocations_lie_side_by_side_and_wait_for_room() -> None:
    """Warp 1 gets the columns that warp 0 frees; nothing else is free."""
    body = """
    mov.u32 %r0, place;
    shr.u32 %r3, %t, 5;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra SECOND;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 256;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0+4], 256;
    bar.sync 0;
    ld.shared.u32 %r1, [%r0];
    ld.shared.u32 %r2, [%r0+4];
    st.global.v2.u32 [%out], {%r1, %r2};
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 256;
    bar.sync 0;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 256;
    bra END;
SECOND:
    bar.sync 0;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0+8], 128;
    ld.shared.u32 %r1, [%r0+8];
    st.global.u32 [%out+8], %r1;
    bar.sync 0;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 128;
END:"""
    out = torch.full((3,), -1, dtype=torch.int32)
    for schedule, seed in SCHEDULES:
        run_kernel(
            kernel(body, shared=".shared .align 4 .b32 place[4];"), out, threads=64, schedule=schedule, seed=seed
        )
        assert out.tolist() == [0, 256, 0]


LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%r1];"
STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r1};"
WAIT_LOAD, WAIT_STORE = "tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;"
USE = "st.global.u32 [%out], %r10;"
HAZARDS = [
    (f"{STORE} {LOAD} {WAIT_LOAD}", "tensor wait"),
    (f"{STORE} {WAIT_STORE} {LOAD} {USE} {WAIT_LOAD}", "tensor wait: a register that tcgen05.ld writes is read"),
    (
        f"{STORE} {WAIT_STORE} {LOAD} mov.u32 %r10, 1; {WAIT_LOAD}",
        "tensor wait: a register that tcgen05.ld writes is written",
    ),
    (f"{STORE} {WAIT_STORE} {LOAD} {STORE} {WAIT_LOAD} {WAIT_STORE}", "tensor wait"),
    (f"{LOAD} {WAIT_LOAD} {USE}", "uninitialised"),
    ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%r1+64];", "not allocated"),
    ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%r1+512];", "outside of tensor memory"),
    ("add.u32 %r7, %r1, 1048576; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%r7];", "this warp reaches lanes"),
    ("xor.b32 %r7, %r1, 2097152; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {%r1};", "this warp reaches lanes"),
    ("@!%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;", "no allocation is just these"),
    ("@!%p1 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r2, 64;", "another cta_group"),
    (
        "@!%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;",
        "after tcgen05.relinquish_alloc_permit",
    ),
    ("@!%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r0], 32;", "needs a cluster with a pair"),
    (f"{STORE} {WAIT_STORE} bar.sync 0; xor.b32 %r7, %r1, 0; @!%p1 {LOAD} exit;", "without tcgen05.dealloc"),
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("code", "what"), HAZARDS)
def test_hazard(code: str, what: str, schedule: str, seed: int) -> None:
    with pytest.raises(RuntimeError, match=what):
        run(code, torch.zeros(1, dtype=torch.int32), schedule=schedule, seed=seed)


@pytest.mark.parametrize("columns", [16, 48, 1024])
def test_odd_allocations_are_reported(columns: int) -> None:
    with pytest.raises(RuntimeError, match="a power of two from 32 to 512"):
        run("", torch.zeros(1, dtype=torch.int32), columns=columns)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r10}, [%r1];", "moves 2 registers, 1 are given"),
        ("tcgen05.ld.sync.aligned.8x8b.x1.b32 {%r10}, [%r1];", "tcgen05.ld and st have no such shape"),
        ("tcgen05.mma.cta_group::1.kind::mxf4 [%r1], %d1, %d1, %r1, %p1;", "block_scale belongs to the mx kinds"),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale [%r1], %d1, %d1, %r1, [%r1], [%r1], %p1;",
            "needs .scale_vec",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::4X [%r1], %d1, %d1, %r1, [%r1], [%r1], %p1;",
            "other blocks of scales",
        ),
    ],
)
def test_what_is_not_there_is_an_error(code: str, what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        run(code, torch.zeros(1, dtype=torch.int32))
