"""A pipeline of cp.async, ldmatrix and mma.sync has no hazards under any schedule; planted mistakes are found."""

from __future__ import annotations

import struct

import pytest
import torch
from planted import EACH_SCHEDULE, MORE_SCHEDULES, assert_right, every_bug, flagged
from ptx_tools import compile_cuda

from deep_gemm import simulator

M, N, K = 100, 76, 396  # the last chunks of 16 bytes of a row are given in part
A_STRIDE, B_STRIDE, D_STRIDE = 400, 80, 80
GRID, THREADS, SMEM_BYTES = 2, 128, 3 * 2 * 64 * 128
TARGETS = ["sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_120"]

NOT_WAITED = "read in flight|overwrite|uninitialised|race|warp sync"
OVERWRITTEN = "overwrite|read in flight"  # whether the copy or the access that it disturbs comes first
# Number in copy_pipeline.cu: what was done wrong, and the kinds of hazard that may be reported first for it.
BUGS = {
    1: ("no wait for the copies", NOT_WAITED),
    2: ("wait that leaves one group too many under way", NOT_WAITED),
    3: ("no barrier behind the wait", NOT_WAITED),
    4: ("barrier before the wait", NOT_WAITED),
    5: ("nothing copied and no group committed at the end", NOT_WAITED),
    6: ("two stages in one group", NOT_WAITED),
    7: ("copies into the stage that is multiplied", OVERWRITTEN),
    8: ("copies issued before the barrier", OVERWRITTEN),
    9: ("D staged where other warps still multiply", "overwrite|warp sync"),
    10: ("copies past the end not waited for where D is staged", OVERWRITTEN),
    11: ("no __syncwarp between staging and storing D", "warp sync"),
    12: ("no barrier before the next copies", f"{OVERWRITTEN}|race"),
    13: ("exit while copies are under way", "early exit"),
    14: ("rows beyond M copied", "out of bounds"),
    15: ("a row never copied", "uninitialised"),
    16: ("only one warp waits", NOT_WAITED),
    17: ("copies of 16 bytes from a multiple of 8", "misaligned"),
}
# Mistakes that break no rule of the machine: only the numbers show them.
WRONG_RESULT = {
    21: "ldmatrix without the swizzle",
    22: "ldmatrix that does not transpose",
    23: "padding copied where zeros should be",
}


def run_pipeline(
    bug: int, schedule: str, seed: int, hazards: str = "report", target: str = "sm_80"
) -> tuple[simulator.Report, bool]:
    generator = torch.Generator().manual_seed(3)
    a = torch.full((M, A_STRIDE), torch.nan, dtype=torch.bfloat16)
    b = torch.full((K, B_STRIDE), torch.nan, dtype=torch.bfloat16)
    a[:, :K] = torch.randn(M, K, generator=generator)
    b[:, :N] = torch.randn(K, N, generator=generator)
    d = torch.full((M, D_STRIDE), torch.nan, dtype=torch.bfloat16)
    pointers = (tensor.data_ptr() for tensor in (a, b, d))
    report = simulator.run(
        compile_cuda("copy_pipeline.cu", target, BUG=bug),
        grid=[GRID],
        block=[THREADS],
        smem_bytes=SMEM_BYTES,
        params=struct.pack("QQQiiiiii", *pointers, M, N, K, A_STRIDE, B_STRIDE, D_STRIDE),
        tensors=[d],
        inputs=[a, b],
        schedule=schedule,
        seed=seed,
        hazards=hazards,
    )
    exact = a[:, :K].double() @ b[:, :N].double()
    magnitude = a[:, :K].double().abs() @ b[:, :N].double().abs()
    return report, bool(((d[:, :N] - exact).abs() <= 2**-8 * exact.abs() + 1e-6 * magnitude).all())


@EACH_SCHEDULE
@pytest.mark.parametrize("target", TARGETS)
def test_correct_pipeline(target: str, schedule: str, seed: int) -> None:
    report = assert_right(run_pipeline, schedule, seed, target=target)
    assert report.statistics["matrix_multiplies"] > 0


def test_no_false_reports_over_many_seeds() -> None:
    for seed in range(20):
        assert_right(run_pipeline, "random", seed)


@pytest.mark.sampled(len(BUGS) * 8)  # by default each bug once
@MORE_SCHEDULES
@every_bug(BUGS)
def test_planted_bug_is_flagged(bug: int, schedule: str, seed: int) -> None:
    message = flagged(run_pipeline, "copy_pipeline", bug, BUGS[bug][1], schedule, seed)
    assert "PTX line" in message
    assert "copy_pipeline.cu:" in message


@MORE_SCHEDULES
@pytest.mark.parametrize("bug", WRONG_RESULT)
def test_planted_bug_gives_a_wrong_result(bug: int, schedule: str, seed: int) -> None:
    report, right = run_pipeline(bug, schedule, seed)
    assert not right
    assert not report.hazards
