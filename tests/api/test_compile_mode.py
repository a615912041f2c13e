"""`set_compile_mode(1)`: calls compile their kernels and run none; and other names that clients set up with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import deep_gemm
from deep_gemm import jit, simulator


@pytest.fixture
def compile_only() -> Iterator[None]:
    assert deep_gemm.get_compile_mode() == 0
    deep_gemm.set_compile_mode(1)
    yield
    deep_gemm.set_compile_mode(0)


def run(rows: int) -> torch.Tensor:
    d = torch.full((rows, 24), float("nan"))
    deep_gemm.bf16_gemm_nt(torch.ones(rows, 48).bfloat16(), torch.ones(24, 48).bfloat16(), d)
    return d


def kernels() -> int:
    """That this process has made, or found in its cache."""
    counts = jit.statistics()
    return int(counts["compiled"] + counts["found_on_disk"])


def test_kernels_are_compiled_and_nothing_runs(compile_only) -> None:
    simulator.clear_reports()
    before = kernels()
    assert all(run(3).isnan().all() for _ in range(3))
    assert simulator.reports() == []
    assert deep_gemm.get_compile_mode() == 1
    made = kernels()
    assert made == before + 1
    deep_gemm.set_compile_mode(0)
    assert (run(3) == 48).all()
    assert kernels() == made
    assert len(simulator.reports()) == 1


def test_a_call_that_lies_ready_runs_nothing_either() -> None:
    d = torch.empty(3, 24)
    a, b = torch.ones(3, 48).bfloat16(), torch.ones(24, 48).bfloat16()
    for _ in range(3):
        deep_gemm.bf16_gemm_nt(a, b, d)
    deep_gemm.set_compile_mode(1)
    try:
        d.fill_(7)
        deep_gemm.bf16_gemm_nt(a, b, d)
    finally:
        deep_gemm.set_compile_mode(0)
    assert (d == 7).all()


def test_modes_are_two() -> None:
    with pytest.raises(TypeError, match=r"mode must be True or False, got 2"):
        deep_gemm.set_compile_mode(2)


def test_shutdown_may_come_at_any_time() -> None:
    deep_gemm.shutdown()
    deep_gemm.shutdown()
    assert (run(2) == 48).all()


def test_overlap_of_sglang_is_refused_with_the_switch_that_turns_it_off() -> None:
    a, b = torch.zeros(2, 16, 128).to(torch.float8_e4m3fn), torch.zeros(2, 24, 128).to(torch.float8_e4m3fn)
    pairs = (a, torch.ones(2, 16, 1)), (b, torch.ones(2, 1, 1))
    counts, d = torch.full((2,), 3, dtype=torch.int32), torch.full((2, 16, 24), float("nan"))
    signal = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(NotImplementedError, match=r"enable_overlap must be False.*--enable-single-batch-overlap"):
        deep_gemm.fp8_m_grouped_gemm_nt_masked(
            *pairs, d, masked_m=counts, expected_m=3, enable_overlap=True, max_block_n=256, signal=signal
        )
    assert d.isnan().all()
    deep_gemm.fp8_m_grouped_gemm_nt_masked(*pairs, d, masked_m=counts, expected_m=3, enable_overlap=False)
    assert (d[:, :3] == 0).all()
