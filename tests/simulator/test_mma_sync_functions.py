"""The functions of ptx/mma_sync.cuh, with the copies and loads of ptx/cp_async.cuh and ptx/load_matrix.cuh."""

from __future__ import annotations

import struct

import pytest
import torch
from ptx_tools import SCHEDULES, compile_cuda
from test_mma_sync import FLOATS, M, N, bits_of, packed_rows, random_matrix

from deep_gemm import simulator

KINDS = ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8_s8", "s8_u8", "u8_s8", "u8_u8", "s4_s4"]
FP8 = ("e4m3", "e5m2")
ROW_BYTES = 32
BY_GROUPS, ALL, BY_BARRIER = range(3)  # ways to wait for the copies


def check(
    kinds: str,
    target: str = "sm_80",
    missing: int = 0,
    mn_majors: tuple[bool, bool] = (False, False),
    wait: int = BY_GROUPS,
    schedule: str = "eager",
    seed: int = 0,
) -> None:
    kind_a, kind_b = kinds.split("_") if "_" in kinds else (kinds, kinds)
    k = ROW_BYTES * 8 // bits_of(kind_a)
    torch.manual_seed(0)
    a, b = random_matrix(kind_a, M, k), random_matrix(kind_b, N, k)
    stored = [matrix.T if mn_major else matrix for matrix, mn_major in zip((a, b), mn_majors, strict=True)]
    given = [packed_rows(kind, matrix) for kind, matrix in zip((kind_a, kind_b), stored, strict=True)]
    dtype = torch.float32 if kind_a in FLOATS else torch.int32
    d = torch.zeros(M, N, dtype=dtype)
    text = compile_cuda(
        "mma_sync_functions.cu",
        target,
        FUNCTION=f"mma_{kinds}",
        ACCUMULATOR="float" if dtype.is_floating_point else "int32_t",
        A_MN_MAJOR=int(mn_majors[0]),
        B_MN_MAJOR=int(mn_majors[1]),
        WAIT=wait,
    )
    params = struct.pack("QQQi4x", *(t.data_ptr() for t in (*given, d)), missing)
    simulator.run(text, block=[32], params=params, tensors=[d], inputs=given, schedule=schedule, seed=seed)
    for matrix in (a, b):  # what was not copied is zero
        halves = matrix.view(matrix.shape[0], 2, k // 2)
        halves[:, :, k // 2 - k * missing // ROW_BYTES :] = 0
    expected = a @ b.T + 1
    assert ((d - expected).abs() <= 1e-6 * (a.abs() @ b.abs().T + 1) * dtype.is_floating_point).all()


@pytest.mark.parametrize("kinds", KINDS)
def test_product(kinds: str) -> None:
    check(kinds, "sm_89" if kinds in FP8 else "sm_80")


@pytest.mark.parametrize("kinds", ["bf16", "e4m3", "s4_s4"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_120"])
def test_later_targets(kinds: str, target: str) -> None:
    check(kinds, target)


@pytest.mark.parametrize("mn_majors", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_ldmatrix_transposes_what_lies_mn_major(kind: str, mn_majors: tuple[bool, bool]) -> None:
    check(kind, mn_majors=mn_majors)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("wait", [BY_GROUPS, ALL, BY_BARRIER])
def test_ways_to_wait(wait: int, schedule: str, seed: int) -> None:
    check("bf16", wait=wait, schedule=schedule, seed=seed)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_bytes_that_are_not_copied_are_zero(schedule: str, seed: int) -> None:
    check("bf16", missing=4, schedule=schedule, seed=seed)
