"""fp8_gemm_{nt,nn,tn,tt}: the same product from operands that lie differently, and the kernel that transposes them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from devices import EACH_ARCH, FEW, on_simulator
from inputs import FP8, GuardedOutput, Operand, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm._extension import C

LAYOUTS = ["nt", "nn", "tn", "tt"]


class Inputs(NamedTuple):
    a: Operand
    b: Operand


def bytes_of(data: torch.Tensor) -> torch.Tensor:
    return data.view(torch.uint8)


def across(data: torch.Tensor, padding: int = 0) -> torch.Tensor:
    """[mn, k] as [k, mn] with MN contiguous; lines are `padding` elements longer, which are NaN."""
    mn, k = data.shape
    wide = torch.full((k, mn + padding), 0x7F, dtype=torch.uint8, device=data.device)
    wide[:, :mn] = bytes_of(data).T
    return wide[:, :mn].view(FP8) if padding == 0 else wide.view(FP8)[:, :mn]


def transposed(operand: Operand, padding: int = 0) -> Operand:
    return Operand(across(operand.data, padding), operand.scales.T)


def laid_out(x: Inputs, layout: str, padding: int = 0) -> Inputs:
    return Inputs(
        x.a if layout[0] == "n" else transposed(x.a, padding), x.b if layout[1] == "t" else transposed(x.b, padding)
    )


def inputs(m: int, n: int, k: int, device: torch.device, seed: int = 0) -> Inputs:
    return Inputs(random_rows((m, k), device, seed), random_blocks((n, k), device, seed + 1))


def call(layout: str, x: Inputs, d: torch.Tensor, **more) -> None:
    getattr(deep_gemm, f"fp8_gemm_{layout}")(x.a, x.b, d, **more)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_is_complete_before_it_is_read(device, layout) -> None:
    """Whatever order asynchronous work takes effect in, and though lines start anywhere."""
    m, n, k = 33, 100, 144
    x = inputs(m, n, k, device)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    call(layout, laid_out(x, layout), out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(*x), layout)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("k", [1, 5, 77, 130])
def test_any_k_where_both_operands_are_transposed(device, k) -> None:
    x = inputs(40, 24, k, device)
    out = GuardedOutput((40, 24), torch.float32, device)
    call("tn", laid_out(x, "tn"), out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(*x))


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [1, 77, 136, 300])
def test_any_k_where_operands_are_read_as_they_lie(device, layout, k) -> None:
    x = inputs(40, 24, k, device)
    out = GuardedOutput((40, 24), torch.float32, device)
    call(layout, laid_out(x, layout), out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(*x))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("padding", [1, 8, 16, 48])
@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
def test_longer_lines(device, layout, padding) -> None:
    """NaN follows each line along M and N."""
    x = inputs(64, 80, 144, device)
    out = GuardedOutput((64, 80), torch.bfloat16, device)
    call(layout, laid_out(x, layout, padding), out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(*x))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_strides_decide_not_names(device) -> None:
    """Views that undo the transposition are read in place; a view that makes it is transposed."""
    x = inputs(48, 64, 256, device)
    expected = product_nt(*x)
    for a, b, layout in [
        (x.a.data.T, x.b.data, "tt"),
        (x.a.data, x.b.data.T, "nn"),
        (across(x.a.data).T, across(x.b.data).T, "nt"),
    ]:
        out = GuardedOutput((48, 64), torch.float32, device)
        y = Inputs(
            Operand(a, x.a.scales if layout[0] == "n" else x.a.scales.T),
            Operand(b, x.b.scales if layout[1] == "t" else x.b.scales.T),
        )
        call(layout, y, out.tensor)
        out.check()
        assert_matches(out.tensor, expected, layout)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(
    ("layout", "spoil", "message"),
    [
        ("nn", lambda x: Inputs(x.a, Operand(x.b.data[:-16], x.b.scales)), r"b has K=256 but a has K=272"),
        ("nn", lambda x: Inputs(x.a, Operand(x.b.data[0], x.b.scales)), r"b must be \[K, N\], got shape \[136\]"),
        (
            "nn",
            lambda x: Inputs(x.a, Operand(x.b.data, x.b.scales.T)),
            r"b's scales must be \[3, 2\].*got shape \[2, 3\]",
        ),
        (
            "tn",
            lambda x: Inputs(Operand(x.a.data, x.a.scales.T), x.b),
            r"a's scales must be \[3, 40\].*got shape \[40, 3\]",
        ),
        ("tt", lambda x: Inputs(Operand(x.a.data[None], x.a.scales), x.b), r"a must be \[K, M\], got shape"),
        (
            "tt",
            lambda x: Inputs(
                Operand(torch.empty(272, 80, dtype=torch.uint8, device=x.a.data.device).view(FP8)[:, ::2], x.a.scales),
                x.b,
            ),
            r"a must have K or M contiguous, got strides along M and K of \(2, 80\)",
        ),
    ],
)
def test_refused(device, layout, spoil, message) -> None:
    x = spoil(laid_out(inputs(40, 136, 272, device), layout))
    out = GuardedOutput((40, 136), torch.float32, device)
    with pytest.raises(ValueError, match=message):
        call(layout, x, out.tensor)
    out.assert_untouched()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "n", "k"), [(4096, 2112, 7168), (100, 7168, 2048), (1001, 4097, 1040)])
def test_large_shapes(cuda, layout, m, n, k) -> None:
    x = inputs(m, n, k, cuda)
    out = GuardedOutput((m, n), torch.bfloat16, cuda)
    call(layout, laid_out(x, layout), out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(*x))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_a_cuda_graph(cuda, layout) -> None:
    """The workspace of the copy belongs to the graph; replays see new operands."""
    x, y = inputs(129, 264, 400, cuda), inputs(129, 264, 400, cuda, seed=5)
    held = laid_out(x, layout)
    d = torch.empty((129, 264), device=cuda)
    call(layout, held, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(layout, held, d)
    for now in (y, x):
        for target, source in zip(held, laid_out(now, layout), strict=True):
            target.data.view(torch.uint8).copy_(source.data.view(torch.uint8))
            target.scales.copy_(source.scales)
        d.fill_(float("nan"))
        graph.replay()
        assert_matches(d, product_nt(*now))


class TestTransposition:
    """The kernel alone, bit for bit."""

    def run(self, source: torch.Tensor, extra: int = 0) -> None:
        groups, k, mn = source.shape
        stride = -(-k // 16) * 16 + extra
        room = torch.full((groups * mn * stride + 64,), 0xA5, dtype=torch.uint8, device=source.device)
        target = room[: groups * mn * stride].view(groups, mn, stride)
        C.transpose(source, target, None, 0)
        assert torch.equal(target[:, :, :k], source.transpose(1, 2))
        padded = -(-k // 16) * 16
        assert (target[:, :, k:padded] == 0).all(), "chunks are filled up with zeros"
        assert (target[:, :, padded:] == 0xA5).all()
        assert (room[groups * mn * stride :] == 0xA5).all()

    @pytest.mark.parametrize(("mn", "k"), [(1, 1), (16, 16), (17, 33), (128, 128), (127, 129), (129, 127), (300, 260)])
    def test_sizes(self, device, mn, k) -> None:
        self.run(random_bytes((1, k, mn), device))

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("groups", [2, 3])
    @pytest.mark.parametrize(("mn", "k"), [(32, 144), (45, 70)])
    def test_groups(self, device, groups, mn, k) -> None:
        self.run(random_bytes((groups, k, mn), device), extra=32)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize(("offset", "padding"), [(0, 16), (16, 0), (1, 0), (0, 3), (5, 11)])
    def test_strides_and_offsets(self, device, offset, padding) -> None:
        groups, k, mn = 2, 70, 144
        room = random_bytes((offset + groups * k * (mn + padding),), device)
        self.run(room[offset:].view(groups, k, mn + padding)[:, :, :mn])

    @pytest.mark.parametrize("device", FEW, indirect=True)
    def test_groups_between_lines(self, device) -> None:
        """Groups side by side: the line stride is longer than the group stride."""
        room = random_bytes((70, 3, 48), device)
        self.run(room.transpose(0, 1))

    @pytest.mark.parametrize("psum", [False, True])
    @pytest.mark.parametrize("ks", [[128], [16, 0, 144, 400], [0, 0, 1, 127, 129], [32] * 70], ids=str)
    def test_k_groups(self, device, ks, psum) -> None:
        alignment, mn = 64 if psum else 0, 40
        begins, end = [], 0
        for k in ks:
            begin = -(-end // alignment) * alignment if psum else end
            begins.append(begin)
            end = begin + k
        source = random_bytes((1, end, mn), device)
        ends = [begin + k for begin, k in zip(begins, ks, strict=True)]
        layout = torch.tensor(ends if psum else ks, dtype=torch.int32, device=device)
        blocks = sum(-(-k // 128) for k in ks)
        target = torch.full((1, mn, (blocks + 1) * 128), 0xA5, dtype=torch.uint8, device=device)
        C.transpose(source, target, layout, alignment)
        first = 0
        for begin, k in zip(begins, ks, strict=True):
            width = -(-k // 128) * 128
            part = target[0, :, first : first + width]
            assert torch.equal(part[:, :k], source[0, begin : begin + k].T)
            assert (part[:, k:] == 0).all()
            first += width
        assert (target[0, :, first:] == 0xA5).all(), "past the last group nothing is written"

    @pytest.mark.gpu
    def test_large(self, cuda) -> None:
        self.run(random_bytes((2, 7168, 4096 + 16), cuda))


def random_bytes(shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(1)
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
