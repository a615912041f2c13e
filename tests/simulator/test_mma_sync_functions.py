"""The functions of ptx/mma_sync.cuh, with the copies and loads of ptx/cp_async.cuh and ptx/load_matrix.cuh."""

from __future__ import annotations

import struct

import pytest
import torch
from ptx_tools import SCHEDULES, compile_cuda
from test_mma_sync import FLOATS, M, N, bits_of, packed_rows, random_matrix

from deep_gemm import simulator

KINDS = ["f16", "bf16", "tf32", "e4m3", "s8_s8", "s8_u8", "u8_s8", "u8_u8", "s4_s4"]
ROW_BYTES = 32


def check(kinds: str, missing: int, schedule: str = "eager", seed: int = 0) -> None:
    kind_a, kind_b = kinds.split("_") if "_" in kinds else (kinds, kinds)
    k = ROW_BYTES * 8 // bits_of(kind_a)
    torch.manual_seed(0)
    a, b = random_matrix(kind_a, M, k), random_matrix(kind_b, N, k)
    given = [packed_rows(kind_a, a), packed_rows(kind_b, b)]
    dtype = torch.float32 if kind_a in FLOATS else torch.int32
    d = torch.zeros(M, N, dtype=dtype)
    accumulator = "float" if dtype.is_floating_point else "int32_t"
    text = compile_cuda("mma_sync_functions.cu", FUNCTION=f"mma_{kinds}", ACCUMULATOR=accumulator)
    params = struct.pack("QQQi4x", *(t.data_ptr() for t in (*given, d)), missing)
    simulator.run(text, block=[32], params=params, tensors=[d], inputs=given, schedule=schedule, seed=seed)
    for matrix in (a, b):  # what was not copied is zero
        halves = matrix.view(matrix.shape[0], 2, k // 2)
        halves[:, :, k // 2 - k * missing // ROW_BYTES :] = 0
    expected = a @ b.T + 1
    assert ((d - expected).abs() <= 1e-6 * (a.abs() @ b.abs().T + 1) * dtype.is_floating_point).all()


@pytest.mark.parametrize("kinds", KINDS)
def test_product(kinds: str) -> None:
    check(kinds, 0)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_bytes_that_are_not_copied_are_zero(schedule: str, seed: int) -> None:
    check("bf16", 4, schedule, seed)
