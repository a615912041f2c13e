"""A correct pipeline has no hazards under any schedule, and each planted mistake is found under every one."""

from __future__ import annotations

import struct

import pytest
import torch
from planted import EACH_SCHEDULE, MORE_SCHEDULES, assert_right, every_bug, flagged
from ptx_tools import compile_cuda

from deep_gemm import simulator

M, N, K = 456, 128, 640
GRID, THREADS, SMEM_BYTES = 4, 384, 3 * (128 * 128 + 64 * 128) + 128 * 64 * 2 + 1024

# Number in pipeline_kernel.cu: what was done wrong, and the kinds of hazard that may be reported first for it.
BUGS = {
    1: ("full barrier expects two arrivals, gets one", "deadlock"),
    2: ("empty barrier expects one arrival too few", "early exit|overwrite|arrive count"),
    3: ("empty barrier expects one arrival too many", "deadlock"),
    4: ("no fence after mbarrier.init", "proxy fence"),
    5: ("block barrier instead of cluster barrier after init", "race|barrier"),
    6: ("load without waiting for an empty stage", "arrive count|overwrite"),
    7: ("empty barrier waited for with the wrong parity", "deadlock"),
    8: ("too few bytes expected", "deadlock|transaction count|read in flight"),
    9: ("too many bytes expected", "deadlock"),
    10: ("multicast to this block only", "deadlock"),
    11: ("descriptor with 64-byte swizzle for 128-byte data", "swizzle|descriptor"),
    12: ("exit while the other block still arrives here", "early exit"),
    13: ("multiply without waiting for the full barrier", "read in flight|overwrite|uninitialised|deadlock"),
    14: ("full barrier waited for with the wrong parity", "read in flight|overwrite|deadlock|uninitialised"),
    15: ("no wgmma.fence", "wgmma fence"),
    16: (
        "K step advances the descriptor of B too far",
        "read in flight|swizzle|race|uninitialised|proxy fence|out of bounds",
    ),
    17: ("stage released before wgmma.wait_group", "overwrite"),
    18: ("wgmma.wait_group leaves one group running", "overwrite|wgmma wait"),
    19: ("stage never released", "deadlock"),
    20: ("descriptor with half the stride", "descriptor"),
    21: ("producer's phase does not flip", "arrive count|overwrite|deadlock"),
    22: ("more registers asked for than the pool has", "deadlock|registers"),
    23: ("stage released to its own block only", "overwrite|arrive count|early exit"),
    24: ("buffer of D reused while the copy engine reads it", "overwrite"),
    25: ("no barrier after waiting for the copy engine", "overwrite|proxy fence|race"),
    26: ("one element of D never written", "uninitialised|proxy fence"),
    28: ("no fence.proxy.async before the store", "proxy fence"),
    29: ("no barrier between writing D and its store", "race|warp sync|proxy fence|uninitialised"),
    30: ("named barrier for more threads than come", "deadlock|barrier"),
    31: ("rows beyond M written", "out of bounds"),
    32: ("a warp leaves while its barriers need it", "deadlock|early exit"),
    33: ("exit before the copy engine has read D", "early exit"),
}
# Mistakes that break no rule of the machine: only the numbers show them.
WRONG_RESULT = {27: "D staged without the swizzle of its tensor map"}


def run_pipeline(bug: int, schedule: str, seed: int, hazards: str = "report") -> tuple[simulator.Report, bool]:
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(M, K, generator=generator).to(torch.float8_e4m3fn)
    b = torch.randn(N, K, generator=generator).to(torch.float8_e4m3fn)
    d = torch.zeros(M, N, dtype=torch.bfloat16)
    sums = torch.zeros(M)
    maps = (
        simulator.tensor_map(a, (128, 128), 128)
        + simulator.tensor_map(b, (32, 128), 128)
        + simulator.tensor_map(d, (128, 64), 128)
    )
    params = maps + struct.pack("IIIIQ", M, N, K, 0, sums.data_ptr())
    params += bytes(448 - len(params))
    report = simulator.run(
        compile_cuda("pipeline_kernel.cu", BUG=bug),
        grid=[GRID],
        block=[THREADS],
        cluster=[2],
        smem_bytes=SMEM_BYTES,
        params=params,
        tensors=[d, sums],
        inputs=[a, b],
        schedule=schedule,
        seed=seed,
        hazards=hazards,
    )
    exact = a.double() @ b.double().T
    right = bool(torch.allclose(d.double(), exact, rtol=2**-7, atol=1e-2)) and bool(
        torch.allclose(sums.double(), exact.sum(1), rtol=1e-4, atol=1e-2)
    )
    return report, right


@EACH_SCHEDULE
def test_correct_pipeline(schedule: str, seed: int) -> None:
    report = assert_right(run_pipeline, schedule, seed)
    assert report.statistics["matrix_multiplies"] > 0
    assert report.statistics["tma_load_bytes"] > 0


def test_no_false_reports_over_many_seeds() -> None:
    for seed in range(15):
        assert_right(run_pipeline, "random", seed)


@pytest.mark.sampled(len(BUGS) * 8)  # by default each bug once
@MORE_SCHEDULES
@every_bug(BUGS)
def test_planted_bug_is_flagged(bug: int, schedule: str, seed: int) -> None:
    message = flagged(run_pipeline, "pipeline_kernel", bug, BUGS[bug][1], schedule, seed)
    assert "PTX line" in message
    assert "pipeline_kernel.cu:" in message


@MORE_SCHEDULES
@pytest.mark.parametrize("bug", WRONG_RESULT)
def test_planted_bug_gives_a_wrong_result(bug: int, schedule: str, seed: int) -> None:
    assert not run_pipeline(bug, schedule, seed)[1]
