"""The pre-norm product against FP64 of the same numbers."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from command_line import succeed
from compiled import compile_all
from devices import ON_GPU, ONE_OF_EACH_ARCH, SCHEDULES, on_simulator
from logits_inputs import difference, generator_of

import deep_gemm
from deep_gemm import jit, simulator
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    """To nearest, ties to even."""
    bits = x.view(torch.int32)
    rounded = bits + 0xFFF + ((bits >> 13) & 1) & ~0x1FFF
    return rounded.view(torch.float32)


def operands(m: int, n: int, k: int, device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = generator_of(m + n + k)
    a, b = torch.randn(m, k, generator=generator).bfloat16(), torch.randn(n, k, generator=generator)
    b[0, 0] = 1 + 2**-11  # a tie
    return a.to(device), b.to(device)


def call(a: torch.Tensor, b: torch.Tensor, splits: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    lead = () if splits is None else (splits,)
    d = torch.full((*lead, a.shape[0], b.shape[0]), torch.nan, device=a.device)
    squares = torch.full((*lead, a.shape[0]), torch.nan, device=a.device)
    deep_gemm.tf32_hc_prenorm_gemm(a, b, d, squares, splits)
    return d, squares


def wanted(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a.double() @ to_tf32(b).double().T, a.double().square().sum(1)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("m", [1, 13, 70, 300])
@pytest.mark.parametrize("n", [3, 8, 24, 32, 40, 128])
@pytest.mark.parametrize("k", [64, 192, 1088])
@pytest.mark.parametrize("splits", [None, 1, 3, 16])
def test_product_and_squares(device, m, n, k, splits) -> None:
    """Splits of which some may have nothing of K."""
    a, b = operands(m, n, k, device)
    d, squares = call(a, b, splits)
    if splits is not None:
        d, squares = d.sum(0), squares.sum(0)
    d_wanted, squares_wanted = wanted(a, b)
    assert difference(d, d_wanted) < 1e-12
    assert difference(squares, squares_wanted) < 1e-12


SM100_PLANS = itertools.product((16, 32, 64), (8, 16, 24), (1, 2, 4, 8), (0,))
HOPPER_PLANS = [
    *itertools.product((16, 32, 64, 80), (8, 24, 32), (1, 8, 16), (2, 3)),
    *itertools.product((128, 144, 256), (16, 24, 32), (1, 2, 4), (2,)),
]
PLANS = [
    *itertools.product(on_simulator("any", arch="sm100"), SM100_PLANS),
    *itertools.product([*on_simulator("any", arch="sm90"), *ON_GPU], HOPPER_PLANS),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("device", "forced"),
    [pytest.param(*device.values, plan, marks=device.marks) for device, plan in PLANS],
    indirect=["device"],
)
def test_every_plan_is_right(device, forced) -> None:
    """Those that tuning may force: rows, columns and CTAs of a cluster, and Hopper's warpgroups. Columns are divided
    unevenly; some CTAs have nothing of K."""
    rows, cols = forced[:2]
    a, b = operands(277 if rows > 64 else 45, 29 if cols == 32 else 20, 1088, device)
    C.force_prenorm_plan(*forced)
    try:
        with simulator.options(num_sms=HOPPER_SMS):  # clusters of 16 want a GPU whose GPCs have as many
            d, squares = call(a, b, None)
    finally:
        C.force_prenorm_plan(0, 0, 0, 0)
    d_wanted, squares_wanted = wanted(a, b)
    assert difference(d, d_wanted) < 1e-12
    assert difference(squares, squares_wanted) < 1e-12


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
@pytest.mark.parametrize("n", [16, 24, 32])
def test_nothing_spills(target, n) -> None:
    with jit.record(target) as recording:
        for m, k in itertools.product((13, 40, 137, 300, 4096, 8192), (7168, 28672)):
            a, b = jit.placeholder(m, k, dtype=torch.bfloat16), jit.placeholder(n, k, dtype=torch.float32)
            d, squares = jit.placeholder(m, n, dtype=torch.float32), jit.placeholder(m, dtype=torch.float32)
            deep_gemm.tf32_hc_prenorm_gemm(a, b, d, squares)
    found = compile_all([kernel.text for kernel in recording.kernels], target)
    assert [result for result in found if not result.is_clean] == []


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_rows_may_lie_further_apart(device) -> None:
    a, b = operands(20, 24, 128, device)
    wide_a, wide_b = torch.full((20, 200), torch.nan).bfloat16(), torch.full((24, 132), torch.nan)
    wide_a, wide_b = wide_a.to(device), wide_b.to(device)
    wide_a[:, 64:192], wide_b[:, 4:] = a, b
    assert all(map(torch.equal, call(wide_a[:, 64:192], wide_b[:, 4:], None), call(a, b, None)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "device", [*(d for arch in ("sm80", "sm90") for d in on_simulator(*SCHEDULES, arch=arch)), *ON_GPU], indirect=True
)
def test_twenty_calls_give_equal_bits(device) -> None:
    a, b = operands(40, 24, 640, device)
    first = call(a, b, None)
    for _ in range(20):
        assert all(map(torch.equal, call(a, b, None), first))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_what_is_not_finite_stays_in_its_row_and_column(device) -> None:
    a, b = operands(4, 8, 64, device)
    a.fill_(1.0)
    a[1, 5], b[2, 3], b[4, 0] = torch.nan, torch.inf, torch.nan
    b[6, 1] = torch.finfo(torch.float32).max  # becomes infinite as TF32
    d, squares = call(a, b, None)
    assert squares.isnan().tolist() == [False, True, False, False]
    assert d[1].isnan().all()
    assert d[0].isnan().tolist() == [False] * 4 + [True] + [False] * 3
    assert (d[0] == torch.inf).tolist() == [column in (2, 6) for column in range(8)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": torch.zeros(4, 72).bfloat16()}, "b has K=64 but a has K=72"),
        ({"a": torch.zeros(4, 64)}, "a must be bfloat16, got float32"),
        ({"b": torch.zeros(136, 64)}, "N must be at most 128, got 136"),
        ({"b": torch.zeros(8, 72)[:, 1:65]}, "b must be .* rows at multiples of 16 bytes"),
        ({"d": torch.zeros(4, 9)}, r"d must be \[M, N\] of M=4"),
        ({"d": torch.zeros(4, 8).bfloat16()}, "d must be float32"),
        ({"sqr_sum": torch.zeros(5)}, r"sqr_sum must be"),
        ({"num_splits": 2}, r"d must be \[num_splits, M, N\] with num_splits=2"),
        ({"d": torch.zeros(2, 4, 8)}, r"d must be \[M, N\] without num_splits"),
    ],
)
def test_wrong_arguments_are_refused(change, message) -> None:
    arguments = {"a": torch.zeros(4, 64).bfloat16(), "b": torch.zeros(8, 64), "d": torch.zeros(4, 8)}
    with pytest.raises((ValueError, TypeError), match=message):
        deep_gemm.tf32_hc_prenorm_gemm(**{**arguments, "sqr_sum": torch.zeros(4), **change})


def test_torch_compiles_it_without_a_break() -> None:
    a, b = operands(5, 8, 64)

    def step(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        d, squares = torch.empty(5, 8), torch.empty(5)
        deep_gemm.tf32_hc_prenorm_gemm(a, b, d, squares)
        return d * 2, squares + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, compiled(a, b), step(a, b)))


def test_the_command_names_kernels_and_compiles_them(tmp_path) -> None:
    command = ("prenorm", "24", "1024", "--rows", "1", "40", "--target", "sm_80")
    printed = succeed(*command)
    with jit.record("sm_80") as recording:
        call(*operands(40, 24, 1024), None)
    assert f"rows 40: {recording.kernels[0].name}" in printed
    assert "run_tf32_hc_prenorm_gemm<kConfig>(params)" in printed
    assert re.search(r"in the cache +([0-9]+) of \1", succeed(*command, "--compile", DG_JIT_CACHE_DIR=tmp_path))
