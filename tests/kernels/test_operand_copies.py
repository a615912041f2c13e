"""Operands that the copy engine cannot read, since their lines do not start at multiples of 16 bytes, are copied first:
every kind of product takes them, and results are those of aligned ones, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from bf16_inputs import matches, operands, values
from devices import EACH_ARCH
from inputs import FP8, GuardedOutput, Operand, random_blocks, random_rows

import deep_gemm
from deep_gemm import simulator

LAYOUTS = ["nt", "nn", "tn", "tt"]
BF16_NAN, FP8_NAN = 0x7FC0, 0x7F


def placed(matrix: torch.Tensor, offset: int, gap: int, group_gap: int = 0) -> torch.Tensor:
    """The same values, the first of them `offset` elements behind an aligned address, lines and groups so many further
    apart; NaN everywhere else."""
    integer, nan = (torch.int16, BF16_NAN) if matrix.dtype == torch.bfloat16 else (torch.uint8, FP8_NAN)
    *groups, lines, length = matrix.shape
    strides = [length + gap, 1]
    if groups:
        strides.insert(0, lines * strides[0] + group_gap)
    room = torch.full((offset + strides[0] * matrix.shape[0] + 64,), nan, dtype=integer, device=matrix.device)
    view = room.as_strided(matrix.shape, strides, offset)
    view.copy_(matrix.view(integer))
    return view.view(matrix.dtype)


def lies(matrix: torch.Tensor, other_way: bool, *place: int) -> torch.Tensor:
    """As [rows, K], or as [K, rows]."""
    return placed(matrix.transpose(-1, -2).contiguous() if other_way else matrix, *place)


def launches(call: Callable[[], None]) -> list[str]:
    simulator.clear_reports()
    call()
    return [report.kernel for report in simulator.reports()]


# 16-bit elements: by 2, 4 and 8 bytes off, in lines that are or end so, alone or with the base.
PLACES = [(0, 0), (0, 1), (0, 2), (0, 4), (1, 2), (2, 2), (4, 2), (3, 5)]


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_dense_bf16(device, layout, place) -> None:
    m, n, k = 38, 45, 70
    a, b = operands(m, n, k, device)
    out = GuardedOutput((m, n), torch.float32, device)
    gemm = getattr(deep_gemm, f"bf16_gemm_{layout}")
    gemm(lies(a, layout[0] == "t", *place), lies(b, layout[1] == "n", *place), out.tensor)
    out.check()
    matches(out.tensor, a, b)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 9, 300), (9, 1, 5), (2, 300, 1023)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_bf16_of_odd_sizes(device, layout, m, n, k) -> None:
    """Lines shorter and longer than a warp copies at once, and single ones."""
    a, b = operands(m, n, k, device)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    gemm = getattr(deep_gemm, f"bf16_gemm_{layout}")
    gemm(lies(a, layout[0] == "t", 1, 0), lies(b, layout[1] == "n", 0, 0), out.tensor)
    out.check()
    matches(out.tensor, a, b)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("nn", [False, True], ids=["nt", "nn"])
@pytest.mark.parametrize("place", [(0, 0), (1, 0), (0, 10, 1), (0, 2, 5)], ids=str)
def test_contiguous_bf16(device, nn, place) -> None:
    m, n, k, groups = 256, 70, 70, 2
    a, b = values((m, k), device, 1), values((groups, n, k), device, 2)
    owners = (torch.arange(m, device=device) // 128).int()
    d = torch.empty((m, n), device=device)
    gemm = deep_gemm.m_grouped_bf16_gemm_nn_contiguous if nn else deep_gemm.m_grouped_bf16_gemm_nt_contiguous
    gemm(lies(a, False, *place[:2]), lies(b, nn, *place), d, owners)
    for g in range(groups):
        matches(d[128 * g : 128 * (g + 1)], a[128 * g : 128 * (g + 1)], b[g])


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("max_m", [1, 33])
@pytest.mark.parametrize("place", [(0, 0), (0, 2, 4), (3, 2, 8)], ids=str)
def test_masked_bf16(device, place, max_m) -> None:
    a, b = values((3, max_m, 70), device, 1), values((3, 40, 70), device, 2)
    d = torch.empty((3, max_m, 40), device=device)
    counts = torch.tensor([max_m, 0, 1], dtype=torch.int32, device=device)
    deep_gemm.m_grouped_bf16_gemm_nt_masked(lies(a, False, *place), lies(b, False, *place), d, counts, max_m)
    matches(d[0], a[0], b[0])
    matches(d[2, :1], a[2, :1], b[2])


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("place", [(0, 0), (1, 2), (4, 0)], ids=str)
def test_k_groups_bf16(device, place) -> None:
    ks, m, n = [100, 0, 65], 70, 41
    a, b = values((sum(ks), m), device, 1), values((sum(ks), n), device, 2)
    d = torch.empty((3, m, n), device=device)
    sizes = torch.tensor(ks, dtype=torch.int32, device=device)
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(placed(a, *place), placed(b, *place), d, ks, sizes)
    matches(d[0], a[:100].T, b[:100].T)
    assert (d[1] == 0).all()
    matches(d[2], a[100:].T, b[100:].T)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("place", [(1, 0), (0, 8), (5, 3), (8, 24)], ids=str)
def test_fp8(device, place) -> None:
    """K-major, of which K is a multiple of 16: rows may start anywhere."""
    a, b = random_rows((40, 272), device, 0), random_blocks((136, 272), device, 1)
    d, moved = (torch.empty((40, 136), device=device) for _ in range(2))
    deep_gemm.fp8_gemm_nt(a, b, d)
    deep_gemm.fp8_gemm_nt(Operand(placed(a.data, *place), a.scales), Operand(placed(b.data, *place), b.scales), moved)
    assert torch.equal(d, moved)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_fp8_experts(device) -> None:
    a, b = random_rows((2, 20, 144), device, 0), random_blocks((2, 40, 144), device, 1)
    d, moved = (torch.zeros((2, 20, 40), device=device) for _ in range(2))
    counts = torch.tensor([20, 7], dtype=torch.int32, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, counts, 20)
    a, b = Operand(placed(a.data, 3, 5, 7), a.scales), Operand(placed(b.data, 0, 0, 8), b.scales)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, moved, counts, 20)
    assert torch.equal(d[0], moved[0])
    assert torch.equal(d[1, :7], moved[1, :7])


def test_rows_of_fp8_want_a_k_that_is_a_multiple_of_16() -> None:
    scales = torch.ones((40, 2)), torch.ones((1, 2))
    packed = torch.zeros((40, 204)).to(FP8)
    d = torch.empty((40, 40))
    for a in (packed, placed(packed, 0, 60)):  # 264 bytes apart
        with pytest.raises(ValueError, match=r"K must be a multiple of 16, got 204: pad A and B with zeros to K=208"):
            deep_gemm.fp8_gemm_nt((a, scales[0]), (packed, scales[1]), d)
    deep_gemm.fp8_gemm_nt((placed(packed, 0, 4), scales[0]), (placed(packed, 1, 20), scales[1]), d)
    assert (d == 0).all()


def test_aligned_operands_are_read_where_they_lie() -> None:
    device = torch.device("cpu")
    a, b = operands(33, 40, 72, device)
    d = torch.empty((33, 40))
    gemm = "gemm"
    assert [gemm in name for name in launches(lambda: deep_gemm.bf16_gemm_nt(a, b, d))] == [True]
    assert len(launches(lambda: deep_gemm.bf16_gemm_nt(placed(a, 8, 16), b, d))) == 1
    assert len(launches(lambda: deep_gemm.bf16_gemm_nt(placed(a, 1, 0), b, d))) == 2
    assert len(launches(lambda: deep_gemm.bf16_gemm_nt(placed(a, 1, 0), placed(b, 0, 2), d))) == 3


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_a_copy_is_complete_before_it_is_read(device) -> None:
    """Whatever order asynchronous work takes effect in."""
    a, b = operands(70, 75, 70, device)
    d = torch.empty((70, 75), device=device)
    deep_gemm.bf16_gemm_tn(lies(a, True, 1, 0), lies(b, True, 0, 2), d)
    matches(d, a, b)


@pytest.mark.gpu
def test_in_a_cuda_graph(cuda) -> None:
    """The copies belong to the graph; replays see new operands."""
    a, b = operands(129, 70, 70, cuda)
    held = placed(a, 1, 1), placed(b, 0, 0)
    d = torch.empty((129, 70), device=cuda)
    deep_gemm.bf16_gemm_nt(*held, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        deep_gemm.bf16_gemm_nt(*held, d)
    for seed in (5, 9):
        now = operands(129, 70, 70, cuda, seed)
        for target, source in zip(held, now, strict=True):
            target.copy_(source)
        d.fill_(float("nan"))
        graph.replay()
        matches(d, *now)


@pytest.mark.gpu
def test_large(cuda) -> None:
    a, b = operands(4097, 2113, 7170, cuda)
    d = torch.empty((4097, 2113), dtype=torch.bfloat16, device=cuda)
    deep_gemm.bf16_gemm_tn(lies(a, True, 1, 0), lies(b, True, 0, 0), d)
    matches(d, a, b)
