"""Several devices that share memory: what the PTX memory model lets reads see, and which order is missing."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import struct

import pytest
import torch
from ptx_tools import compile_cuda, header

from deep_gemm import simulator
from deep_gemm.simulator import DeviceLaunch, run_devices

SEEDS = range(40)
# Words of the arena: x, y and z on 128 bytes each; a thread writes what it has seen into `out`.
PROLOGUE = """
    .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %d<8>; .reg .b64 %x, %y, %z, %out; .reg .b32 %t;
    ld.param.u64 %x, [arena]; add.s64 %y, %x, 128; add.s64 %z, %x, 256;
    ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;
"""


def text(body: str) -> str:
    return f"{header('')}.visible .entry test(.param .u64 arena, .param .u64 out) {{ {PROLOGUE} {body} ret; }}"


def run(*bodies: str, grid: int = 1, block: int = 1, schedule: str = "random", seed: int = 0, hazards: str = "report"):
    """A device for each body; what each has put out, its hazards, and the arena afterwards."""
    arena = torch.zeros(96, dtype=torch.int32)
    outs = [torch.full((32,), -1, dtype=torch.int32) for _ in bodies]
    launches = [
        DeviceLaunch(
            text(body),
            grid=(grid,),
            block=(block,),
            params=struct.pack("QQ", arena.data_ptr(), out.data_ptr()),
            tensors=[out],
        )
        for body, out in zip(bodies, outs, strict=True)
    ]
    reports = run_devices(launches, shared=[arena], schedule=schedule, seed=seed, hazards=hazards)
    found = {hazard.kind for report in reports for hazard in report.hazards}
    return [out.tolist() for out in outs], found, arena


def outcomes(*bodies: str, words: int = 1) -> tuple[set[tuple[int, ...]], set[str]]:
    """Of many seeds: all that was seen, device by device, and all kinds of hazards."""
    seen, kinds = set(), set()
    for seed in SEEDS:
        outs, found, _ = run(*bodies, seed=seed)
        seen.add(tuple(number for out in outs for number in out[:words]))
        kinds |= found
    return seen, kinds


SILENT = "st.global.u32 [%out], 0;"
# Message passing: y says that x is there. Device 1 puts out x where it has seen y, and else 2.
SEND = "{x} [%x], 1; {fence} {y} [%y], 1; " + SILENT
RECEIVE = """
    {y} %r1, [%y]; {fence} mov.u32 %r2, 2; setp.eq.u32 %p0, %r1, 1;
    @%p0 {x} %r2, [%x]; st.global.u32 [%out], %r2;
"""
RELAXED = {"x": "st.relaxed.sys.global.u32", "fence": "", "y": "st.relaxed.sys.global.u32"}
READS = {"x": "ld.relaxed.sys.global.u32", "fence": "", "y": "ld.relaxed.sys.global.u32"}


@pytest.mark.parametrize(
    ("send", "receive", "is_stale"),
    [
        ({}, {}, True),
        ({"y": "st.release.sys.global.u32"}, {}, True),
        ({}, {"y": "ld.acquire.sys.global.u32"}, True),
        ({"y": "st.release.sys.global.u32"}, {"y": "ld.acquire.sys.global.u32"}, False),
        ({"fence": "fence.acq_rel.sys;"}, {"y": "ld.acquire.sys.global.u32"}, False),
        ({"fence": "fence.acq_rel.sys;"}, {"fence": "fence.acq_rel.sys;"}, False),
        ({"fence": "fence.acq_rel.gpu;"}, {"fence": "fence.acq_rel.sys;"}, True),
        ({"fence": "membar.sys;"}, {"fence": "membar.sys;"}, False),
        ({"y": "red.release.sys.global.add.u32"}, {"y": "ld.acquire.sys.global.u32"}, False),
    ],
)
def test_message_passing(send, receive, is_stale) -> None:
    """Strong accesses everywhere, so that no order is no race: only what may be seen differs."""
    seen, kinds = outcomes(SEND.format(**{**RELAXED, **send}), RECEIVE.format(**{**READS, **receive}))
    assert kinds == set()
    assert {wanted for _, wanted in seen} == ({0, 1, 2} if is_stale else {1, 2})


WEAK = {"x": "st.global.u32"}, {"x": "ld.global.u32"}


@pytest.mark.parametrize(
    ("send", "receive", "wanted"),
    [
        ({}, {}, "race"),
        ({"fence": "fence.acq_rel.sys;"}, {}, "race"),
        ({"y": "st.release.sys.global.u32"}, {"y": "ld.acquire.sys.global.u32"}, None),
        ({"y": "st.release.gpu.global.u32"}, {"y": "ld.acquire.sys.global.u32"}, "scope"),
        ({"fence": "fence.acq_rel.sys;"}, {"fence": "fence.acq_rel.sys;"}, None),
        ({"fence": "fence.acq_rel.gpu;"}, {"fence": "fence.acq_rel.sys;"}, "race"),
        (
            {"y": "st.volatile.global.u32", "fence": "membar.sys;"},
            {"y": "ld.volatile.global.u32", "fence": "membar.sys;"},
            None,
        ),
    ],
)
def test_ordinary_data_wants_an_order(send, receive, wanted) -> None:
    seen, kinds = outcomes(
        SEND.format(**{**RELAXED, **WEAK[0], **send}), RECEIVE.format(**{**READS, **WEAK[1], **receive})
    )
    assert wanted in kinds if wanted else kinds == set()
    if not wanted:
        assert {found for _, found in seen} == {1, 2}


@pytest.mark.parametrize(
    ("fence", "both_see_nothing"),
    [("", True), ("fence.acq_rel.sys;", True), ("fence.sc.sys;", False), ("fence.sc.gpu;", True)],
)
def test_store_buffering(fence, both_see_nothing) -> None:
    bodies = [
        f"st.relaxed.sys.global.u32 [{mine}], 1; {fence} ld.relaxed.sys.global.u32 %r1, [{other}]; st.global.u32 [%out], %r1;"
        for mine, other in (("%x", "%y"), ("%y", "%x"))
    ]
    seen, kinds = outcomes(*bodies)
    assert kinds == set()
    assert ((0, 0) in seen) == both_see_nothing
    assert {(0, 1), (1, 0)} <= seen


def test_blocks_of_one_device_too() -> None:
    """They run together, and .gpu includes them."""
    body = """
        mov.u32 %r9, %ctaid.x; setp.eq.u32 %p7, %r9, 1; @%p7 bra WAIT;
        st.global.u32 [%x], 7; st.release.{scope}.global.u32 [%y], 1; ret;
        WAIT: ld.acquire.gpu.global.u32 %r1, [%y]; setp.eq.u32 %p0, %r1, 0; @%p0 bra WAIT;
        ld.global.u32 %r2, [%x]; st.global.u32 [%out], %r2;
    """
    for seed in range(8):
        outs, kinds, _ = run(body.format(scope="gpu"), grid=2, seed=seed)
        assert kinds == set()
        assert outs[0][0] == 7
    assert run(body.format(scope="cta"), grid=2)[1] == {"race", "scope"}


def test_a_word_is_never_seen_to_go_back() -> None:
    """Reads of one word by one lane, and by another one behind a barrier."""
    write = "".join(f"st.relaxed.sys.global.u32 [%x], {i};" for i in range(1, 6)) + SILENT
    read = "ld.relaxed.sys.global.u32 %r1, [%x]; bar.sync 0; ld.relaxed.sys.global.u32 %r2, [%x]; st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r2;"
    seen, kinds = outcomes(write, read, words=2)
    assert kinds == set()
    pairs = {found[2:] for found in seen}
    assert all(first <= second for first, second in pairs)
    assert any(first < second for first, second in pairs)


def test_an_order_reaches_whom_a_barrier_tells() -> None:
    """All threads write, one says so; one sees it, all read: right with the barriers, a race without either."""
    place = "cvt.u64.u32 %d0, %t; mul.lo.u64 %d0, %d0, 4; add.s64 %d1, %x, %d0; add.s64 %d2, %out, %d0; setp.ne.u32 %p1, %t, 0;"
    send = place + "st.global.u32 [%d1], %t; {barrier} @!%p1 st.release.sys.global.u32 [%z], 1;"
    receive = (
        place
        + """
        @%p1 bra DONE;
        WAIT: ld.acquire.sys.global.u32 %r1, [%z]; setp.eq.u32 %p0, %r1, 0; @%p0 bra WAIT;
        DONE: {barrier}
        ld.global.u32 %r2, [%d1]; st.global.u32 [%d2], %r2;
    """
    )
    for schedule in ("eager", "lazy", "random"):
        for sender, receiver in (("bar.sync 0;", "bar.sync 0;"), ("", "bar.sync 0;"), ("bar.sync 0;", "")):
            bodies = send.format(barrier=sender), receive.format(barrier=receiver)
            outs, kinds, _ = run(*bodies, block=32, schedule=schedule)
            right = bool(sender and receiver)
            assert kinds == (set() if right else {"race"})
            if right:
                assert outs[1] == list(range(32))


def test_atomics_lose_nothing_and_hand_on_what_they_met() -> None:
    """A chain: device 0 releases, device 1 adds relaxed, device 2 acquires what it made."""
    first = "st.global.u32 [%x], 7; red.release.sys.global.add.u32 [%y], 1;" + SILENT
    second = "WAIT: atom.relaxed.sys.global.cas.b32 %r1, [%y], 1, 2; setp.ne.u32 %p0, %r1, 1; @%p0 bra WAIT;" + SILENT
    third = "WAIT: ld.acquire.sys.global.u32 %r1, [%y]; setp.ne.u32 %p0, %r1, 2; @%p0 bra WAIT; ld.global.u32 %r2, [%x]; st.global.u32 [%out], %r2;"
    for seed in range(8):
        outs, kinds, _ = run(first, second, third, seed=seed)
        assert kinds == set()
        assert outs[2][0] == 7
    _, kinds, arena = run(*["atom.relaxed.sys.global.add.u32 %r1, [%x], 1;"] * 3, block=32)
    assert kinds == set()
    assert arena[0] == 96
    _, kinds, _ = run(*["atom.relaxed.gpu.global.add.u32 %r1, [%x], 1;"] * 2)
    assert kinds == {"scope"}


def test_eight_bytes_come_together() -> None:
    write = "mov.b64 %d0, {{{0}, {0}}}; st.relaxed.sys.global.u64 [%x], %d0;"
    body = "".join(f"mov.u32 %r1, {i};" + write.format("%r1") for i in range(1, 6)) + SILENT
    read = "ld.relaxed.sys.global.u64 %d0, [%x]; mov.b64 {%r1, %r2}, %d0; st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r2;"
    seen, kinds = outcomes(body, read, words=2)
    assert kinds == set()
    assert all(low == high for _, _, low, high in seen)
    assert len(seen) > 2


def test_a_run_is_repeated_by_its_seed() -> None:
    bodies = SEND.format(**RELAXED), RECEIVE.format(**READS)
    assert [run(*bodies, seed=seed)[0] for seed in SEEDS] == [run(*bodies, seed=seed)[0] for seed in SEEDS]


def test_what_is_reported() -> None:
    bodies = SEND.format(**{**RELAXED, **WEAK[0]}), RECEIVE.format(**{**READS, **WEAK[1]})
    seed = next(seed for seed in SEEDS if run(*bodies, seed=seed)[1])
    said = (
        r"race: on device 1: .* is read by lane 0 of warp 0 of block 0 of device 1; nothing orders the two\s+"
        "earlier: write by lane 0 of warp 0 of block 0 of device 0"
    )
    with pytest.raises(RuntimeError, match=said):
        run(*bodies, seed=seed, hazards="error")


def test_a_device_that_waits_for_ever_is_reported() -> None:
    wait = "WAIT: ld.acquire.sys.global.u32 %r1, [%x]; setp.eq.u32 %p0, %r1, 0; @%p0 bra WAIT;"
    _, kinds, _ = run(SILENT, wait, schedule="eager")
    assert kinds == {"deadlock"}


def test_what_is_refused() -> None:
    arena, other = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    with pytest.raises(ValueError, match="launches must be at least one, got none"):
        run_devices([], shared=[arena])
    copy = text(
        ".shared .align 128 .b8 data[128]; mov.u32 %r0, data; cp.async.ca.shared.global [%r0], [%x], 16; cp.async.wait_all;"
    )
    params = struct.pack("QQ", arena.data_ptr(), other.data_ptr())
    with pytest.raises(RuntimeError, match="copies of memory that several devices share are not modelled, at PTX line"):
        run_devices([DeviceLaunch(copy, params=params)], shared=[arena])
    store = DeviceLaunch(text("st.global.u32 [%out], 1;"), params=params)
    with pytest.raises(RuntimeError, match="out of bounds: on device 0: global memory"):
        run_devices([store], shared=[arena])


def test_a_run_of_one_kernel_is_as_before() -> None:
    out = torch.zeros(32, dtype=torch.int32)
    report = simulator.run(text("st.global.u32 [%out], 3;"), params=struct.pack("QQ", 0, out.data_ptr()), tensors=[out])
    assert out[0] == 3
    assert report.hazards == []


# Number in exchange_copy.cu: what was done wrong, and what is reported for it.
COPY_BUGS = {
    0: set(),  # nothing
    1: {"race"},  # no __syncwarp before one lane counts for all
    2: {"race"},  # the count releases nothing
    3: {"race"},  # it comes too early
    4: {"race"},  # who waits for it acquires nothing
    5: {"proxy fence"},
    6: {"proxy fence"},  # for shared memory only
}


@pytest.mark.parametrize("bug", COPY_BUGS)
def test_a_copy_of_what_another_block_wrote(bug) -> None:
    kernel = compile_cuda("exchange_copy.cu", BUG=bug)
    for schedule, seed in [("eager", 0), ("lazy", 0), *(("random", seed) for seed in range(4))]:
        words, out = torch.zeros(1, 1, 32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
        counter = torch.zeros(1, dtype=torch.int32)
        pointers = struct.pack("QQQ", words.data_ptr(), counter.data_ptr(), out.data_ptr())
        params = simulator.tensor_map(words, (1, 1, 32)) + pointers + bytes(64 - len(pointers))
        launch = DeviceLaunch(kernel, grid=(2,), block=(32,), params=params, tensors=[out])
        (report,) = run_devices([launch], shared=[words, counter], schedule=schedule, seed=seed, hazards="report")
        assert {hazard.kind for hazard in report.hazards} == COPY_BUGS[bug], (schedule, seed)
        if bug == 0:
            assert out.tolist() == [*range(1, 33)]
            assert counter.item() == 0
