"""A pair of blocks that multiplies by tcgen05: right under any schedule, and each planted mistake is found."""

from __future__ import annotations

import functools
import struct

import pytest
import torch
from planted import EACH_SCHEDULE, assert_right, every_bug, flagged
from ptx_tools import compile_cuda

from deep_gemm import simulator

TILES, K, COLS = 3, 416, 128
ROWS = 256 * TILES
SMEM_BYTES = 3 * (128 * 128 + 64 * 128 + 1024) + 256
NOT_ORDERED = "overwrite|read in flight|race"

# Number in tensor_pipeline.cu: what was done wrong, and the kinds of hazard that may be reported first for it.
BUGS = {
    1: ("no fence::after_thread_sync before copies and products", "tensor fence"),
    2: ("no fence::after_thread_sync before loads", "tensor fence"),
    3: ("no wait::ld", "tensor wait"),
    4: ("no fence::before_thread_sync behind loads", "tensor fence"),
    5: ("no proxy fence behind scales written by stores", "proxy fence"),
    6: ("commit by another thread than the products'", f"{NOT_ORDERED}|uninitialised|proxy fence|early exit"),
    7: ("commit mask without the partner", "deadlock"),
    8: (
        "full barrier expects one block's bytes of two",
        f"deadlock|transaction count|arrive count|{NOT_ORDERED}|uninitialised",
    ),
    9: ("empty barrier counts one block", f"arrive count|deadlock|{NOT_ORDERED}"),
    10: ("one set of scales for all stages", "overwrite"),
    14: ("first product of a tile accumulates", "uninitialised"),
    16: ("accumulator and scales overlap", f"{NOT_ORDERED}|tensor memory"),
    17: ("allocation after relinquish_alloc_permit", "tensor memory"),
    18: ("deallocation before the cluster barrier", f"{NOT_ORDERED}|tensor memory"),
    19: ("warps of the leader exit early", "early exit|deadlock|tensor memory"),
    20: ("a warp reads another quarter's lanes", "tensor memory"),
    21: ("descriptor with M = 128", "descriptor"),
    22: ("descriptor with an N that there is not", "descriptor"),
    23: ("scales not waited for", f"{NOT_ORDERED}|proxy fence|uninitialised"),
    24: ("accumulator not waited for", "overwrite"),
    25: ("stage released before its products", NOT_ORDERED),
    26: ("no deallocation", "tensor memory"),
    27: ("allocation of 48 columns", "tensor memory"),
    28: ("scales beyond the allocation", "tensor memory"),
    29: ("all lanes issue products", "tensor memory"),
    30: ("loads beyond tensor memory", "tensor memory"),
    31: ("block barrier instead of cluster barrier after init", "race|barrier"),
    32: ("accumulator released before it is loaded", "overwrite"),
    33: ("shared-memory descriptor without its constant", "descriptor"),
    34: ("accumulator waited for with the wrong parity", f"{NOT_ORDERED}|deadlock|uninitialised|tensor fence"),
    35: ("exit without a cluster barrier", f"early exit|{NOT_ORDERED}|tensor memory"),
    36: ("deallocation of half the columns", "tensor memory"),
}
# Mistakes that break no rule of the machine: only the numbers show them.
WRONG_RESULT = {
    11: "wrong scale id",
    12: "scales of A and B swapped",
    13: "scales not transposed",
    15: "one product of the K tail is missing",
}


def words(exponents: torch.Tensor) -> torch.Tensor:
    """[rows, K / 32] exponents as [K blocks, rows] words of four."""
    padded = torch.nn.functional.pad(exponents, (0, -exponents.shape[1] % 4))
    return padded.contiguous().view(torch.int32).t().contiguous()


@functools.cache
def operands() -> tuple[list[torch.Tensor], torch.Tensor]:
    """A, B, and the words of their scales; the product in FP64."""
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(rows, K, generator=generator).to(torch.float8_e4m3fn) for rows in (ROWS, COLS))
    scales = [torch.randint(124, 131, (rows, K // 32), generator=generator, dtype=torch.uint8) for rows in (ROWS, COLS)]
    wide_a, wide_b = (
        values.double() * torch.exp2(each.double() - 127).repeat_interleave(32, 1)
        for values, each in zip((a, b), scales, strict=True)
    )
    return [a, b, *map(words, scales)], wide_a @ wide_b.T


def run_pipeline(
    bug: int, schedule: str, seed: int, hazards: str = "report", rules: str = "manual"
) -> tuple[simulator.Report, bool]:
    given, product = operands()
    a, b, *packed = given
    d = torch.zeros(ROWS, COLS)
    params = simulator.tensor_map(a, (128, 128), 128) + simulator.tensor_map(b, (64, 128), 128)
    params += struct.pack("QQQiii4x", *(t.data_ptr() for t in (*packed, d)), TILES, K, ROWS)
    params += bytes(-len(params) % 64)
    report = simulator.run(
        compile_cuda("tensor_pipeline.cu", "sm_100a", BUG=bug),
        grid=[2],
        block=[256],
        cluster=[2],
        smem_bytes=SMEM_BYTES,
        params=params,
        tensors=[d],
        inputs=given,
        schedule=schedule,
        seed=seed,
        hazards=hazards,
        rules=rules,
    )
    return report, bool(torch.allclose(d.double(), product, rtol=1e-4, atol=1e-2))


@EACH_SCHEDULE
def test_correct_pipeline(schedule: str, seed: int) -> None:
    report = assert_right(run_pipeline, schedule, seed)
    assert report.statistics["matrix_multiplies"] == TILES * K // 32


def test_no_false_reports_over_many_seeds() -> None:
    for seed in range(8):
        assert_right(run_pipeline, "random", seed)


@pytest.mark.sampled(48)
@EACH_SCHEDULE
@every_bug(BUGS)
def test_planted_bug_is_flagged(bug: int, schedule: str, seed: int) -> None:
    flagged(run_pipeline, "tensor_pipeline", bug, BUGS[bug][1], schedule, seed)


@EACH_SCHEDULE
@pytest.mark.parametrize("bug", WRONG_RESULT)
def test_planted_bug_gives_a_wrong_result(bug: int, schedule: str, seed: int) -> None:
    assert not run_pipeline(bug, schedule, seed)[1]
