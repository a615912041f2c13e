"""cp.async (not bulk): what is copied, when it has come, and for whom."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import pytest
import torch
from ptx_tools import SCHEDULES, kernel, run_kernel

from deep_gemm import simulator

# %r1: this thread's 16 bytes of shared memory; %r2: those of the thread 4 further on, around the warp's end. The same of
# global memory: %in (32 threads times 16 bytes).
PLACES = """
    mov.u32 %r0, data;
    shl.b32 %r3, %t, 4;
    add.u32 %r1, %r0, %r3;
    add.u32 %r4, %t, 4;
    and.b32 %r4, %r4, 31;
    shl.b32 %r4, %r4, 4;
    add.u32 %r2, %r0, %r4;
    cvt.u64.u32 %offset, %r3;
    add.s64 %in, %in, %offset;
"""
STORE = """
    add.s64 %out, %out, %offset;
    st.global.v4.u32 [%out], {%r10, %r11, %r12, %r13};
"""
COPY = "cp.async.cg.shared.global [%r1], [%in], 16;"
COMMIT = "cp.async.commit_group;"
READ = "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r1];"
READ_OTHER = READ.replace("%r1]", "%r2]")
BARRIER = "bar.sync 0;"


def run(
    code: str, schedule: str = "eager", seed: int = 0, hazards: str = "error", threads: int = 32, rules: str = "manual"
):
    """Returns what each thread read, what lies in global memory, and the report."""
    given = torch.arange(1, 1 + 4 * threads, dtype=torch.int32).view(threads, 4)
    out = torch.zeros(threads, 4, dtype=torch.int32)
    text = kernel(
        PLACES + code + STORE, shared=f".shared .align 128 .b8 data[{32 * threads}]; .shared .align 8 .b64 bar;"
    )
    report = run_kernel(text, out, given, threads=threads, schedule=schedule, seed=seed, hazards=hazards, rules=rules)
    return out, given, report


CLEAR = "mov.u32 %r9, -1; st.shared.v4.u32 [%r1], {%r9, %r9, %r9, %r9};"
WAYS_TO_WAIT = [
    f"{COPY} {COMMIT} cp.async.wait_group 0;",
    f"{COPY} cp.async.wait_all;",
    f"{COPY} {COMMIT} {COMMIT} cp.async.wait_group 1;",
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("code", WAYS_TO_WAIT)
def test_data_has_come_after_the_wait(code: str, schedule: str, seed: int) -> None:
    out, given, _ = run(f"{code} {READ}", schedule, seed)
    assert torch.equal(out, given)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_other_threads_see_it_behind_a_barrier(schedule: str, seed: int) -> None:
    out, given, _ = run(f"{COPY} cp.async.wait_all; {BARRIER} {READ_OTHER}", schedule, seed, threads=32)
    assert torch.equal(out, given.roll(-4, 0))


@pytest.mark.parametrize(
    ("copy", "kept"),
    [
        ("cp.async.ca.shared.global [%r1], [%in], 4;", 1),
        ("cp.async.ca.shared.global.L2::128B [%r1], [%in], 8;", 2),
        ("cp.async.ca.shared::cta.global [%r1], [%in], 16;", 4),
    ],
)
def test_sizes(copy: str, kept: int) -> None:
    out, given, _ = run(f"{CLEAR} {copy} cp.async.wait_all; {READ}")
    assert torch.equal(out[:, :kept], given[:, :kept])
    assert (out[:, kept:] == -1).all()


@pytest.mark.parametrize(
    ("operand", "kept"),
    [("8", 2), ("0", 0), ("%r8", 1), ("%p1", 0), ("!%p1", 4)],
    ids=["8", "0", "register", "p", "not p"],
)
def test_the_rest_is_filled_with_zeros(operand: str, kept: int) -> None:
    """By the size of the source, or by a predicate that says to ignore it."""
    out, given, _ = run(
        f"{CLEAR} mov.u32 %r8, 4; setp.eq.u32 %p1, 0, 0; cp.async.cg.shared.global [%r1], [%in], 16, {operand}; cp.async.wait_all; {READ}"
    )
    assert torch.equal(out[:, :kept], given[:, :kept])
    assert (out[:, kept:] == 0).all()


def test_nothing_is_read_where_the_source_is_ignored() -> None:
    run(f"cp.async.cg.shared.global [%r1], [%in+4096], 16, 0; cp.async.wait_all; {READ}")


def test_lazy_copies_come_late() -> None:
    """A broken kernel that does not wait reads what was there before."""
    out, _, report = run(f"{CLEAR} {COPY} {READ}", "lazy", hazards="report")
    assert (out == -1).all()
    assert [hazard.kind for hazard in report.hazards] == ["early exit", "overwrite"]
    assert "is written by cp.async while an earlier read may still be under way" in report.hazards[1].message


SECOND = "cp.async.cg.shared.global [%r1+512], [%in], 16;"
EARLY_READ = "read in flight|overwrite|uninitialised"  # which of them, depends on whether the copy has come by then
HAZARDS = [
    (f"{COPY} {COMMIT} {READ}", EARLY_READ),
    (f"{COPY} {COMMIT} cp.async.wait_group 1; {READ}", EARLY_READ),
    (f"{COPY} cp.async.wait_group 0; {READ}", EARLY_READ),  # not committed
    (f"{SECOND} {COMMIT} {COPY} {COMMIT} cp.async.wait_group 1; {READ}", EARLY_READ),
    (f"{COPY} {COPY} cp.async.wait_all; {READ}", "overwrite"),
    (f"{READ} {COPY} cp.async.wait_all;", "uninitialised"),
    (f"{CLEAR} {COPY} {CLEAR} cp.async.wait_all; {READ}", "overwrite"),
    (f"{COPY.replace('[%in]', '[%in+4096]')} cp.async.wait_all; {READ}", "out of bounds"),
    (f"{COPY.replace('[%in]', '[%in+4]')} cp.async.wait_all; {READ}", "misaligned"),
    # a lane that does not wait knows nothing of its copies
    (f"setp.lt.u32 %p1, %t, 16; {COPY} @%p1 cp.async.wait_all; {READ}", EARLY_READ),
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("code", "kind"), HAZARDS)
def test_hazard(code: str, kind: str, schedule: str, seed: int) -> None:
    with pytest.raises(RuntimeError, match=kind):
        run(code, schedule, seed)


def first_report(code: str, schedule: str = "eager", **options) -> str:
    return run(code, schedule, hazards="report", **options)[2].hazards[0].message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"{COPY} {READ}", "has not waited for it: it is in no committed group"),
        (
            f"{COPY} {COMMIT} {READ}",
            "groups committed after its own: 0, so that cp.async.wait_group 0 waits for it",
        ),
        (
            f"{COPY} {COMMIT} {SECOND} {COMMIT} {COMMIT} cp.async.wait_group 3; {READ}",
            "groups committed after its own: 2, so that cp.async.wait_group 2 waits for it",
        ),
    ],
)
def test_a_report_says_which_wait_was_needed(code: str, said: str) -> None:
    message = first_report(code)
    assert message.startswith("read in flight: shared memory")
    assert "lane 0 of warp 0 of block 0, which issued it, has not waited for it" in message
    assert said in message


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("threads", "kind"), [(32, "warp sync"), (64, "race|overwrite|read in flight")])
def test_who_waits_for_its_own_copies_knows_nothing_of_others(
    threads: int, kind: str, schedule: str, seed: int
) -> None:
    """Lanes read what the lane 4 further on has copied, or warp 1 what warp 0 has."""
    other = READ_OTHER if threads == 32 else f"and.b32 %r3, %r3, 511; add.u32 %r1, %r0, %r3; {READ}"
    copy = COPY if threads == 32 else f"setp.lt.u32 %p1, %t, 32; @%p1 {COPY}"
    meet = "bar.warp.sync -1;" if threads == 64 else ""
    code = f"{copy} cp.async.wait_all; {meet} {other}"
    with pytest.raises(RuntimeError, match=kind if schedule == "eager" else f"{kind}|{EARLY_READ}") as raised:
        run(code, schedule, seed, threads=threads)
    if schedule == "eager":
        assert "which issued it, has waited for it" in str(raised.value)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    ("wait", "good"), [("", False), (f"{COMMIT} cp.async.wait_group 1;", False), ("cp.async.wait_all;", True)]
)
def test_what_is_copied_from_must_stay_until_the_wait(wait: str, good: bool, schedule: str, seed: int) -> None:
    """Output memory is copied to shared memory, and written over."""
    code = f"""
    add.s64 %d1, %out, %offset;
    st.global.v4.u32 [%d1], {{%t, %t, %t, %t}};
    {COPY.replace("%in", "%d1")}
    {wait}
    mov.u32 %r9, -1;
    st.global.u32 [%d1], %r9;
    cp.async.wait_all;
    {READ}"""
    _, _, report = run(code, schedule, seed, hazards="report")
    assert [hazard.kind for hazard in report.hazards] == ([] if good else ["overwrite"])
    for hazard in report.hazards:
        assert "is written by lane 0 of warp 0 of block 0 while cp.async may still read it" in hazard.message


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_block_waits_for_its_copies_before_it_exits(schedule: str, seed: int) -> None:
    code = f"{CLEAR} {READ} {SECOND}"
    report = run(code, schedule, seed, hazards="report")[2]
    assert [hazard.kind for hazard in report.hazards] == ["early exit"]
    assert "exits without waiting for cp.async of warp 0" in report.hazards[0].message
    assert not run(code, schedule, seed, hazards="report", rules="hardware")[2].hazards
    assert not run(f"{code} cp.async.wait_all;", schedule, seed)[2].hazards


def two_warps(waits: str) -> simulator.Report:
    """Warp 1 reads what warp 0 has copied, behind a barrier."""
    code = f"""
    setp.ge.u32 %p1, %t, 32;
    @%p1 bra READ;
    {COPY}
    {waits}
READ:
    {BARRIER}
    and.b32 %r3, %r3, 511;
    add.u32 %r1, %r0, %r3;
    {READ}"""
    return run(code, "lazy", hazards="report", threads=64)[2]


def test_a_barrier_does_not_wait_for_copies() -> None:
    assert not two_warps("cp.async.wait_all;").hazards
    assert any(hazard.kind == "overwrite" for hazard in two_warps(COMMIT).hazards)


INIT = """
    mov.u32 %r5, bar;
    setp.ne.u32 %p1, %t, 0;
    @!%p1 mbarrier.init.shared::cta.b64 [%r5], {count};
    bar.sync 0;"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra WAIT;"


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("arrive", "count"), [(".noinc", 32), ("", 1)])
def test_arrival_at_an_mbarrier(arrive: str, count: int, schedule: str, seed: int) -> None:
    """With .noinc the 32 arrivals are expected; without, each expects itself, and one more ends the phase."""
    last = "" if arrive else "@!%p1 mbarrier.arrive.shared::cta.b64 _, [%r5];"
    code = f"{INIT.format(count=count)} {COPY} cp.async.mbarrier.arrive{arrive}.shared::cta.b64 [%r5]; bar.warp.sync -1; {last} {WAIT} {READ_OTHER}"
    out, given, _ = run(code, schedule, seed)
    assert torch.equal(out, given.roll(-4, 0))


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    ("arrive_and_copy", "kind"),
    [
        (f"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r5]; {COPY}", EARLY_READ),  # knows earlier copies only
        (f"{COPY} cp.async.mbarrier.arrive.shared::cta.b64 [%r5];", "deadlock"),  # 32 more are expected
    ],
    ids=["before the copy", "not one of the expected"],
)
def test_mistakes_with_arrivals(arrive_and_copy: str, kind: str, schedule: str, seed: int) -> None:
    with pytest.raises(RuntimeError, match=kind):
        run(f"{INIT.format(count=32)} {arrive_and_copy} {WAIT} {READ}", schedule, seed)


def test_an_ordinary_arrival_does_not_wait_for_copies() -> None:
    code = f"{INIT.format(count=32)} {COPY} mbarrier.arrive.shared::cta.b64 _, [%r5]; {WAIT} {READ_OTHER}"
    with pytest.raises(RuntimeError, match=EARLY_READ):
        run(code, "lazy")
    with pytest.raises(RuntimeError, match=EARLY_READ):
        run(code, "eager")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("cp.async.cg.shared.global [%r1], [%in], 8;", "cg copies 16 bytes"),
        ("cp.async.ca.shared.global [%r1], [%in], 12;", "4, 8 or 16"),
    ],
)
def test_other_sizes_are_refused(code: str, what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        run(code)
