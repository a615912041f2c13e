"""Where warpgroups take tiles of keys in turn, a stage belongs to one of them: a barrier has one bit for its phase, and
another's, still open, would look like the next one. (On an H200 a ring of 26 stages for four of them ended in a launch
failure.)"""

from __future__ import annotations

import re

import pytest
import torch

import deep_gemm
from deep_gemm import jit


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8], ids=["fp8", "exponents"])
def test_stages_are_a_multiple_of_the_warpgroups_that_take_turns(dtype) -> None:
    fp8 = dtype == torch.float8_e4m3fn
    with jit.record("sm_90a") as recording:
        for d in (32, 64, 128) if fp8 else (64, 128):
            for heads in (8, 12, 32, 64, 128):
                for rows in (1, 2, 3, 4, 8):
                    codes = d if fp8 else d // 2
                    queries = jit.placeholder(2, rows, heads, codes, dtype=dtype)
                    q = queries if fp8 else (queries, jit.placeholder(2, rows, heads, dtype=torch.int32))
                    cache = jit.placeholder(9, 64, 1, codes + 4, dtype=torch.uint8)
                    weights = jit.placeholder(2 * rows, heads, dtype=torch.float32)
                    lengths, table = (jit.placeholder(2, *more, dtype=torch.int32) for more in ((), (8,)))
                    schedule = jit.placeholder(133, 2, dtype=torch.int32)
                    deep_gemm.fp8_fp4_paged_mqa_logits(
                        q if not fp8 else (q, None), cache, weights, lengths, table, schedule, 512, False
                    )
    found = 0
    for kernel in recording.kernels:
        numbers = re.search(r"math_groups = (\d+), \.shares_keys = (\w+),.*?\.stages = (\d+)", kernel.text, re.DOTALL)
        if numbers is None or "sm90" not in kernel.name:
            continue
        step = 1 if numbers[2] == "true" else int(numbers[1])
        assert int(numbers[3]) % step == 0, kernel.name
        found += 1
    assert found > 10
