"""E4M3's code for NaN: a NaN where tensor cores multiply FP8, a number where it is converted to FP16 before."""

from __future__ import annotations

import math

import pytest
import torch

import deep_gemm
from deep_gemm import simulator

M, N, K, SPOILT = 16, 32, 128, 3
CONVERTED = ["sm_80", "sm_86"]
MULTIPLIED = ["sm_89", "sm_120a", "sm_90a", "sm_100a"]


def sums(target: str, code: int, of_a: bool) -> torch.Tensor:
    """Of ones, where one element of a row of A or B holds a code; what it is multiplied by is 2."""
    a, b = torch.ones(M, K), torch.ones(N, K)
    (b if of_a else a)[:, 7] = 2
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    (a if of_a else b).view(torch.uint8)[SPOILT, 7] = code
    d = torch.empty(M, N)
    with simulator.options(target=target):
        deep_gemm.fp8_gemm_nt((a, torch.ones(M, 1)), (b, torch.ones(1, 1)), d)
    return d if of_a else d.T


@pytest.mark.parametrize("of_a", [True, False], ids=["a", "b"])
@pytest.mark.parametrize("target", CONVERTED + MULTIPLIED)
def test_a_nan_of_e4m3_is_480_where_fp8_is_converted_and_nan_elsewhere(target, of_a) -> None:
    for code, value in ((0x7F, 480), (0xFF, -480)):
        d = sums(target, code, of_a)
        spoilt = d[SPOILT]
        if target in CONVERTED:
            assert (spoilt == K - 1 + 2 * value).all()
        else:
            assert spoilt.isnan().all()
        others = [row for row in range(d.shape[0]) if row != SPOILT]
        assert (d[others] == K + 1).all()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_nan_and_infinity_of_16_bits_reach_the_sums_that_they_enter(target) -> None:
    a, b, d = torch.ones(M, K).bfloat16(), torch.ones(N, K).bfloat16(), torch.empty(M, N)
    a[1, 5], a[2, 6] = math.nan, math.inf
    with simulator.options(target=target):
        deep_gemm.bf16_gemm_nt(a, b, d)
    assert d[1].isnan().all()
    assert (d[2] == math.inf).all()
    assert (d[3:] == K).all()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_scale_that_is_nan_makes_nan(target) -> None:
    a, b, d = torch.ones(M, K).to(torch.float8_e4m3fn), torch.ones(N, K).to(torch.float8_e4m3fn), torch.empty(M, N)
    scales = torch.ones(M, 1)
    scales[4] = math.nan
    with simulator.options(target=target):
        deep_gemm.fp8_gemm_nt((a, scales), (b, torch.ones(1, 1)), d)
    assert d[4].isnan().all()
    assert (d[5:] == K).all()
