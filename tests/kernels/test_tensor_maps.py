"""What the driver is told of operands: how much the L2 fetches at least where it misses."""

from __future__ import annotations

import re
import shutil

import pytest
from fake_driver import driver_lines

CALLS = """
def zeros(shape, dtype):
    return pose_as_cuda(torch.zeros(shape, dtype=dtype))

def call(m, n, k):
    a, b = (zeros((rows, k), torch.float8_e4m3fn) for rows in (m, n))
    scales_a = pose_as_cuda(torch.ones(k // 128, m).T)
    scales_b = zeros((n // 128, k // 128), torch.float32)
    deep_gemm.fp8_gemm_nt((a, scales_a), (b, scales_b), zeros((m, n), torch.bfloat16))

"""
BYTES = {2: 128, 3: 256}  # CUtensorMapL2promotion


def fetched(calls: str) -> set[int]:
    """Of operands: maps of bytes."""
    lines = driver_lines(CALLS + calls, "encode type 0 ")
    assert lines
    return {BYTES[int(re.search(r"promotion (\d)", line)[1])] for line in lines}


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("call(16, 4096, 1024)", 128),  # sixteen stages
        ("call(64, 4096, 1024)", 128),
        ("call(2048, 4096, 1024)", 256),  # four
    ],
)
def test_a_deep_ring_fetches_lines_one_by_one(call, expected) -> None:
    assert fetched(call) == {expected}


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_but_not_of_an_operand_that_takes_long_to_read() -> None:
    assert fetched("call(16, 28672, 8192)") == {128, 256}  # A, and 235 MB of B
