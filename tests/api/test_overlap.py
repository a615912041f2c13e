"""D's memory is its own: a call whose D lies where an operand, a scale or the groups' layout does is refused, as is a C
that lies partly where D does. Interleaved views of one buffer, which share no byte, are right."""

from __future__ import annotations

import pytest
import torch
from bf16_inputs import matches, operands, values
from devices import EACH_ARCH
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from inputs import Operand, random_blocks, random_rows

import deep_gemm

M, N, K = 40, 64, 128


def shares(name: str) -> str:
    return rf"^d shares memory with {name}, which is read while d is written"


class TestDense:
    def test_d_is_an_operand(self) -> None:
        x, w = operands(N, N, N, torch.device("cpu"))
        before = x.clone()
        with pytest.raises(ValueError, match=shares("a")):
            deep_gemm.bf16_gemm_nt(x, w, x)
        with pytest.raises(ValueError, match=shares("b")):
            deep_gemm.bf16_gemm_nt(w, x, x)
        with pytest.raises(ValueError, match=shares("a")):
            deep_gemm.bf16_gemm_nt(x, w, x, c=x)
        assert torch.equal(x, before)

    @pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
    def test_one_element_is_enough(self, layout) -> None:
        a, b = operands(N, N, N, torch.device("cpu"))
        room = torch.zeros(2 * N * N, dtype=torch.bfloat16)
        room[: N * N].view(N, N).copy_(a)
        gemm = getattr(deep_gemm, f"bf16_gemm_{layout}")
        with pytest.raises(ValueError, match=shares("a")):
            gemm(room[: N * N].view(N, N), b, room[N * N - 1 : -1].view(N, N))
        gemm(room[: N * N].view(N, N), b, room[N * N :].view(N, N))

    def test_d_is_among_scales(self) -> None:
        a, b = random_rows((M, K), "cpu", 0), random_blocks((N, K), "cpu", 1)
        room = torch.ones(M * N + 8)
        d = room[: M * N].view(M, N)
        for offset in (0, M * N - 1):
            with pytest.raises(ValueError, match=shares("b's scales")):
                deep_gemm.fp8_gemm_nt(a, Operand(b.data, room[offset : offset + 1].view(1, 1)), d)
        with pytest.raises(ValueError, match=shares("a's scales")):
            deep_gemm.fp8_gemm_nt(Operand(a.data, room[:M].view(M, 1)), b, d)
        deep_gemm.fp8_gemm_nt(a, Operand(b.data, room[M * N :][:1].view(1, 1)), d)

    def test_fp8_operands(self) -> None:
        a, b = random_rows((M, K), "cpu", 0), random_blocks((N, K), "cpu", 1)
        d = a.data.view(torch.uint8).flatten()[: M * N * 2].view(torch.bfloat16).view(M, N)
        with pytest.raises(ValueError, match=shares("a")):
            deep_gemm.fp8_gemm_nt(a, b, d)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_columns_of_one_buffer(self, device) -> None:
        """As residual streams keep them: A's and D's rows lie side by side."""
        a, b = operands(M, N, N, device)
        buffer = torch.zeros((M, 2 * N), dtype=torch.bfloat16, device=device)
        buffer[:, :N] = a
        deep_gemm.bf16_gemm_nt(buffer[:, :N], b, buffer[:, N:])
        matches(buffer[:, N:], a, b)
        with pytest.raises(ValueError, match=shares("a")):
            deep_gemm.bf16_gemm_nt(buffer[:, :N], b, buffer[:, N - 1 : -1])

    def test_rows_of_one_buffer(self) -> None:
        a, b = operands(M, N, N, torch.device("cpu"))
        buffer = torch.zeros((2 * M, N), dtype=torch.bfloat16)
        buffer[::2] = a
        deep_gemm.bf16_gemm_nt(buffer[::2], b, buffer[1::2])
        matches(buffer[1::2], a, b)


class TestC:
    def test_c_may_be_d(self) -> None:
        a, b = operands(M, N, N, torch.device("cpu"))
        d = values((M, N), "cpu", 5)
        c = d.clone()
        deep_gemm.bf16_gemm_nt(a, b, d, c=d.view(M, N))
        matches(d, a, b, c)

    @pytest.mark.parametrize("offset", [1, N, M * N - 1])
    def test_c_may_not_lie_partly_where_d_does(self, offset) -> None:
        a, b = operands(M, N, N, torch.device("cpu"))
        room = torch.zeros(2 * M * N, dtype=torch.bfloat16)
        with pytest.raises(ValueError, match=r"^c shares memory with d but is not d itself"):
            deep_gemm.bf16_gemm_nt(a, b, room[offset:][: M * N].view(M, N), c=room[: M * N].view(M, N))
        assert not room.any()

    def test_c_may_lie_beside_d(self) -> None:
        a, b = operands(M, N, N, torch.device("cpu"))
        room = values((M, 2 * N), "cpu", 5)
        c = room[:, :N].clone()
        deep_gemm.bf16_gemm_nt(a, b, room[:, N:], c=room[:, :N])
        matches(room[:, N:], a, b, c)

    def test_one_row_for_all_of_d(self) -> None:
        a, b = operands(M, N, N, torch.device("cpu"))
        d = values((M, N), "cpu", 5)
        with pytest.raises(ValueError, match=r"^c shares memory with d but is not d itself"):
            deep_gemm.bf16_gemm_nt(a, b, d, c=d[:1].expand(M, N))


class TestGroups:
    def test_contiguous(self) -> None:
        a, b = values((128, N), "cpu", 1), values((2, N, N), "cpu", 2)
        owners = torch.zeros(128, dtype=torch.int32)
        gemm = deep_gemm.m_grouped_bf16_gemm_nt_contiguous
        with pytest.raises(ValueError, match=shares("a")):
            gemm(a, b, a, owners)
        with pytest.raises(ValueError, match=shares("b")):
            gemm(a, b, b.view(128, N), owners)
        room = torch.zeros(130 * N)
        layout = room.view(torch.int32)[128 * N - 1 :][:128]
        with pytest.raises(ValueError, match=shares("grouped_layout")):
            gemm(a, b, room[: 128 * N].view(128, N), layout)

    def test_masked(self) -> None:
        a, b = values((2, N, N), "cpu", 1), values((2, N, N), "cpu", 2)
        counts = torch.ones(2, dtype=torch.int32)
        with pytest.raises(ValueError, match=shares("a")):
            deep_gemm.m_grouped_bf16_gemm_nt_masked(a, b, a, counts, 1)
        d = torch.zeros((2, N, N))
        with pytest.raises(ValueError, match=shares("masked_m")):
            deep_gemm.m_grouped_bf16_gemm_nt_masked(a, b, d, d.view(torch.int32).flatten()[-2:], 1)
        rooms = torch.zeros((2, N, 2, N), dtype=torch.bfloat16)
        rooms[:, :, 0] = a
        deep_gemm.m_grouped_bf16_gemm_nt_masked(rooms[:, :, 0], b, rooms[:, :, 1], counts, 1)
        matches(rooms[0, :1, 1], a[0, :1], b[0])

    def test_k_groups(self) -> None:
        a, b = values((N, N), "cpu", 1), values((N, N), "cpu", 2)
        sizes = torch.tensor([N], dtype=torch.int32)
        gemm = deep_gemm.k_grouped_bf16_gemm_tn_contiguous
        with pytest.raises(ValueError, match=shares("a")):
            gemm(a, b, a[None], [N], sizes)
        d = torch.zeros((1, N, N))
        d.view(torch.int32)[0, 3, 3] = N
        with pytest.raises(ValueError, match=shares("grouped_layout")):
            gemm(a, b, d, [N], d.view(torch.int32)[0, 3, 3:4])
        x = random_rows((N, 128), "cpu", 0)
        flat = Operand(x.data.flatten(), x.scales)
        sizes = torch.tensor([128], dtype=torch.int32)
        with pytest.raises(ValueError, match=shares("a's scales")):
            deep_gemm.k_grouped_fp8_gemm_nt_contiguous(
                Operand(flat.data, d.flatten()[5:][:N].view(N, 1)), flat, d, [128], sizes
            )


def bytes_of(tensor: torch.Tensor) -> set[int]:
    offsets = torch.zeros(1, dtype=torch.long)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = (offsets[:, None] + torch.arange(size) * stride).flatten()
    first = tensor.data_ptr()
    return {first + int(at) * tensor.element_size() + i for at in offsets for i in range(tensor.element_size())}


@st.composite
def views(draw) -> tuple[tuple[int, int, int], tuple[int, int], int]:
    """Of [G, M, N], nested in either order, and where it begins."""
    groups, rows, cols = (draw(st.integers(1, most)) for most in (3, 6, 8))
    row_stride = cols + draw(st.integers(0, 12))
    if draw(st.booleans()):
        group_stride = rows * row_stride + draw(st.integers(0, 9))
    else:
        group_stride, row_stride = row_stride, groups * row_stride + draw(st.integers(0, 9))
    return (groups, rows, cols), (group_stride, row_stride), draw(st.integers(0, 60))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(d=views(), gap=st.one_of(st.none(), st.integers(0, 40)), offset=st.integers(0, 200), aside=st.booleans())
@example(d=((1, 3, 4), (40, 9), 0), gap=None, offset=4, aside=False)
@example(d=((1, 3, 4), (40, 9), 0), gap=None, offset=3, aside=False)
@example(d=((1, 3, 4), (40, 9), 9), gap=None, offset=4, aside=False)
@example(d=((1, 3, 4), (40, 9), 9), gap=None, offset=5, aside=False)
@example(d=((1, 3, 4), (40, 9), 100), gap=4, offset=123, aside=False)
def test_what_shares_no_byte_is_accepted_and_nothing_else(d, gap, offset, aside) -> None:
    """Against all bytes of both, counted: masked products of D and A in one buffer. (No gap: A's rows are as far apart
    as D's. Aside: so are its groups, between rows.)"""
    shape, strides, start = d
    groups, m, n = shape
    room = torch.zeros(4000, dtype=torch.bfloat16)
    d = room.as_strided(shape, (*strides, 1), start)
    k = 5
    pitch = max(k, strides[1]) if gap is None else k + gap
    a_strides = (pitch, groups * pitch, 1) if aside else (m * pitch, pitch, 1)
    a = room.as_strided((groups, m, k), a_strides, offset)
    b = torch.zeros((groups, n, k), dtype=torch.bfloat16)
    counts = torch.zeros(groups, dtype=torch.int32)
    if bytes_of(d).isdisjoint(bytes_of(a)):
        deep_gemm.m_grouped_bf16_gemm_nt_masked(a, b, d, counts, 1)
    else:
        with pytest.raises(ValueError, match=shares("a")):
            deep_gemm.m_grouped_bf16_gemm_nt_masked(a, b, d, counts, 1)
