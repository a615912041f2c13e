"""fp8_gemm_nt on every device, against FP64 products of the same quantised inputs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from candidates import forced_tile
from cases import ODD, PUBLIC, SMALL, TAILS
from devices import BUT_SM100, EACH_ARCH, FEW
from inputs import (
    GuardedOutput,
    Operand,
    converts_e4m3,
    mn_major,
    random_blocks,
    random_rows,
    random_values,
    with_row_padding,
)
from reference import assert_matches, product_nt

import deep_gemm

DTYPES = [torch.bfloat16, torch.float32, torch.float16]


def operands(m: int, n: int, k: int, device: torch.device, seed: int = 0) -> tuple[Operand, Operand]:
    return random_rows((m, k), device, seed), random_blocks((n, k), device, seed + 1)


def run_and_check(a: Operand, b: Operand, dtype: torch.dtype, **guard) -> torch.Tensor:
    """Call with a guarded output; check every element, and that nothing outside was written."""
    shape = (a.data.shape[0], b.data.shape[0])
    out = GuardedOutput(shape, dtype, a.data.device, **guard)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), f"K={a.data.shape[1]}")
    return out.tensor


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "n", "k"), SMALL)
def test_small_shapes(device, m, n, k) -> None:
    run_and_check(*operands(m, n, k, device), DTYPES[(m + n) % len(DTYPES)])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), ODD)
def test_odd_shapes(cuda, m, n, k, dtype) -> None:
    run_and_check(*operands(m, n, k, cuda), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), PUBLIC)
def test_public_shapes(cuda, m, n, k, dtype) -> None:
    run_and_check(*operands(m, n, k, cuda), dtype)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("k", TAILS)
def test_k_tails(device, k) -> None:
    """NaN follows each row of A and B: a tail that reads too far shows."""
    a, b = operands(65, 72, k, device)
    run_and_check(
        Operand(with_row_padding(a.data, 64), a.scales), Operand(with_row_padding(b.data, 128), b.scales), torch.float32
    )


# Strides and offsets in elements of D. The copy engine can write only where both are multiples of 16 bytes.
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "row_stride", "offset"), [(130, 136, 64), (1, 8, 64), (9, 9, 3)])
def test_d_is_a_slice_of_a_larger_tensor(device, n, row_stride, offset, dtype) -> None:
    a, b = operands(67, n, 144, device)
    run_and_check(a, b, dtype, row_stride=row_stride, offset=offset)


# Where both are even, neighbours in D and C are one access; (N, D's stride and offset, C's).
@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("swapped", "rows", "cols"), [(False, 64, 64), (True, 64, 16)])
@pytest.mark.parametrize(
    ("n", "of_d", "of_c"),
    [
        (100, (100, 64), (102, 64)),
        (100, (101, 64), (104, 64)),
        (100, (104, 64), (101, 64)),
        (100, (102, 65), (102, 64)),
        (100, (104, 64), (104, 65)),
        (99, (100, 64), (104, 64)),
        (99, (99, 64), (101, 65)),
    ],
)
def test_neighbours_in_d_and_c(device, n, of_d, of_c, swapped, rows, cols, dtype) -> None:
    a, b = operands(67, n, 144, device)
    out, around_c = (GuardedOutput((67, n), dtype, device, *strided) for strided in (of_d, of_c))
    c = around_c.tensor
    c.copy_(random_values((67, n), device, 7))
    with forced_tile(device, (67, n, 144), swapped, rows, cols):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, c=c)
    out.check()
    assert_matches(out.tensor, product_nt(a, b, c))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
def test_d_is_a_column_slice(device, dtype) -> None:
    a, b = operands(64, 128, 256, device)
    whole = torch.full((64, 512), 3.0, dtype=dtype, device=device)
    deep_gemm.fp8_gemm_nt(a, b, whole[:, 128:256])
    assert_matches(whole[:, 128:256], product_nt(a, b))
    assert (whole[:, :128] == 3).all()
    assert (whole[:, 256:] == 3).all()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", ["mn_major_slice", "row_major_slice", "broadcast"])
@pytest.mark.parametrize("k", [64, 400])
def test_scales_that_are_views(device, layout, k) -> None:
    a, b = operands(70, 200, k, device)
    if layout == "mn_major_slice":  # rows of a longer batch, which is aligned itself
        longer = mn_major(torch.cat([a.scales, torch.full_like(a.scales, float("nan"))]))
        a = Operand(a.data, longer[:70])
    elif layout == "row_major_slice":  # as vLLM has them while it warms up
        a = Operand(a.data, torch.cat([a.scales, torch.full_like(a.scales, float("nan"))])[:70])
    else:  # one value everywhere, of stride zero
        a = Operand(a.data, torch.full((1, 1), 0.25, device=device).expand(a.scales.shape))
        b = Operand(b.data, torch.full((1, 1), 0.5, device=device).expand(b.scales.shape))
    run_and_check(a, b, torch.float32)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "n"), [(0, 64), (64, 0), (0, 0)])
def test_nothing_to_do(device, m, n) -> None:
    a = Operand(torch.empty((m, 128), dtype=torch.float8_e4m3fn, device=device), torch.empty((m, 1), device=device))
    b = Operand(
        torch.empty((n, 128), dtype=torch.float8_e4m3fn, device=device), torch.empty((-(-n // 128), 1), device=device)
    )
    deep_gemm.fp8_gemm_nt(a, b, torch.empty((m, n), dtype=torch.bfloat16, device=device))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", ["none", "separate", "same"])
def test_empty_k_gives_c_or_zero(device, c, dtype) -> None:
    a = Operand(torch.empty((33, 0), dtype=torch.float8_e4m3fn, device=device), torch.empty((33, 0), device=device))
    b = Operand(torch.empty((40, 0), dtype=torch.float8_e4m3fn, device=device), torch.empty((1, 0), device=device))
    out = GuardedOutput((33, 40), dtype, device, row_stride=48)
    values = random_values((33, 40), device, 3).to(dtype)
    if c == "same":
        out.tensor.copy_(values)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, c={"none": None, "separate": values, "same": out.tensor}[c])
    out.check()
    assert torch.equal(out.tensor, torch.zeros_like(values) if c == "none" else values)


def test_a_bad_row_stays_alone(device) -> None:
    """NaN in one row of A, and an infinite scale in another, reach these rows of D and no others. (Where E4M3 is
    converted its NaN is 480, docs/api-guarantees.md.)"""
    a, b = operands(70, 136, 256, device)
    expected = product_nt(a, b)
    a.data.view(torch.uint8)[5] = 0x7F
    a.scales[66] = float("inf")
    d = torch.empty((70, 136), dtype=torch.float32, device=device)
    deep_gemm.fp8_gemm_nt(a, b, d)
    bad = torch.zeros(70, dtype=torch.bool, device=device)
    bad[[5, 66]] = True
    if not converts_e4m3(device):
        assert d[5].isnan().all()
    assert not d[66].isfinite().any()
    good = type(expected)(expected.value[~bad], expected.magnitude[~bad])
    assert_matches(d[~bad], good)


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
def test_extreme_scales(device) -> None:
    """Products that need the whole FP32 range of the scales."""
    a, b = operands(64, 128, 256, device)
    a, b = Operand(a.data, a.scales * 1e18), Operand(b.data, b.scales * 1e-20)
    run_and_check(a, b, torch.float32)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_equal_bits_from_run_to_run(device) -> None:
    a, b = operands(129, 264, 640, device)
    first, second = (torch.full((129, 264), float("nan"), device=device) for _ in range(2))
    deep_gemm.fp8_gemm_nt(a, b, first)
    deep_gemm.fp8_gemm_nt(a, b, second)
    assert torch.equal(first, second)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k"), [(128, 7168, 2048), (64, 576, 7168), (1, 4096, 7168)])
def test_equal_bits_over_many_runs(cuda, m, n, k) -> None:
    """A moving result is a race."""
    a, b = operands(m, n, k, cuda)
    first = torch.empty((m, n), device=cuda)
    deep_gemm.fp8_gemm_nt(a, b, first)
    for _ in range(100):
        again = torch.full((m, n), float("nan"), device=cuda)
        deep_gemm.fp8_gemm_nt(a, b, again)
        assert torch.equal(first, again)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("compiled_dims", ["", "n", "nk", "mnk"])
def test_compiled_dims_do_not_change_the_result(device, compiled_dims) -> None:
    a, b = operands(33, 136, 400, device)
    expected, found = torch.empty((33, 136), device=device), torch.empty((33, 136), device=device)
    deep_gemm.fp8_gemm_nt(a, b, expected)
    deep_gemm.fp8_gemm_nt(a, b, found, compiled_dims=compiled_dims)
    assert_matches(found, product_nt(a, b))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_calls_from_many_threads(device) -> None:
    shapes = [(1 + 20 * index, 136 + 8 * index, 128 + 16 * index) for index in range(6)]
    problems = [(*operands(*shape, device), GuardedOutput(shape[:2], torch.bfloat16, device)) for shape in shapes]

    def work(index: int) -> None:
        a, b, out = problems[index % len(problems)]
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)

    with ThreadPoolExecutor(len(shapes)) as pool:
        list(pool.map(work, range(len(shapes))))
    if device.type == "cuda":
        torch.cuda.synchronize()
    for a, b, out in problems:
        out.check()
        assert_matches(out.tensor, product_nt(a, b))


class TestBeyond32Bits:
    """Tensors of more than 2**31 elements: a sample of rows tells whether addresses wrap."""

    pytestmark = pytest.mark.gpu

    def check(self, m: int, n: int, k: int, cuda: torch.device) -> None:
        need = m * k + 20 * n * k + 2 * m * n + (8 << 30)  # b is quantised from FP32, with copies
        free = torch.cuda.mem_get_info()[0]
        if free < need:
            pytest.skip(f"needs {need >> 30} GiB of GPU memory, {free >> 30} are free")
        rows = 8192  # distinct rows of A, repeated
        part = random_rows((rows, k), cuda, 0)
        repeats = -(-m // rows)
        a = Operand(
            part.data.view(torch.uint8).repeat(repeats, 1)[:m].view(torch.float8_e4m3fn),
            part.scales.repeat(repeats, 1)[:m],
        )
        b = random_blocks((n, k), cuda, 1)
        d = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=cuda)
        deep_gemm.fp8_gemm_nt(a, b, d)
        for first in (0, m // 2, m - 300):
            sample = slice(first, first + 300)
            assert_matches(d[sample], product_nt(Operand(a.data[sample], a.scales[sample]), b), f"rows from {first}")
        assert not d.isnan().any()

    def test_d(self, cuda) -> None:
        self.check(70_001, 32_768, 512, cuda)

    def test_a(self, cuda) -> None:
        self.check(140_000, 512, 16_384, cuda)

    def test_b(self, cuda) -> None:
        self.check(512, 140_032, 16_384, cuda)
