"""BF16 products, dense and grouped, in every layout and on every device, against FP64 products of the same operands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from candidates import forced_tile
from cases import ODD_M, ODD_N, PUBLIC
from devices import FEW
from grouped_inputs import alignment_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import GuardedOutput, ceil_div, random_values, with_row_padding
from reference import BF16_TOLERANCES, assert_matches, product_nt

import deep_gemm

DTYPES = [torch.bfloat16, torch.float32]
LAYOUTS = ["nt", "nn", "tn", "tt"]


def values(shape: Sequence[int], device: torch.device | str, seed: int) -> torch.Tensor:
    return random_values(shape, device, seed).bfloat16()


def operands(m: int, n: int, k: int, device: torch.device, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return values((m, k), device, seed), values((n, k), device, seed + 1)


def lying(matrix: torch.Tensor, other_way: bool, padding: int = 0) -> torch.Tensor:
    """The same matrix, or its transpose, in lines that begin at multiples of 16 bytes; NaN behind each of them."""
    lines = matrix.transpose(-1, -2) if other_way else matrix
    return with_row_padding(lines, -lines.shape[-1] % 8 + padding)


def call(layout: str, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, padding: int = 0, **more) -> None:
    """`a` is [M, K] and `b` [N, K], whatever the layout."""
    # In the names, the second letter says how B lies where it is written as [K, N].
    a, b = lying(a, layout[0] == "t", padding), lying(b, layout[1] == "n", padding)
    getattr(deep_gemm, f"bf16_gemm_{layout}")(a, b, d, **more)


def matches(d: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None, what: str = "") -> None:
    assert_matches(d, product_nt(a, b, c), what or f"K={a.shape[1]}", BF16_TOLERANCES)


def run_and_check(
    layout: str, m: int, n: int, k: int, device: torch.device, dtype: torch.dtype = torch.bfloat16, **guard
) -> None:
    a, b = operands(m, n, k, device)
    out = GuardedOutput((m, n), dtype, device, **guard)
    call(layout, a, b, out.tensor, padding=8)
    out.check()
    matches(out.tensor, a, b)


SMALL = [(1, 1, 8), (7, 24, 64), (33, 100, 136), (64, 128, 128), (129, 136, 72), (200, 264, 328), (16, 520, 512)]


class TestDense:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize(("m", "n", "k"), SMALL)
    def test_small_shapes(self, device, m, n, k, layout, dtype) -> None:
        run_and_check(layout, m, n, k, device, dtype)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("k", [1, 5, 64, 65, 127, 200])
    def test_any_k(self, device, layout, k) -> None:
        """Lines that begin at multiples of 16 bytes are all that is asked for."""
        run_and_check(layout, 70, 75, k, device, torch.float32)

    @pytest.mark.gpu
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("k", [16, 3200, 7168 + 32])
    @pytest.mark.parametrize("n", ODD_N)
    @pytest.mark.parametrize("m", ODD_M)
    def test_odd_shapes(self, cuda, m, n, k, layout) -> None:
        run_and_check(layout, m, n, k, cuda)

    @pytest.mark.gpu
    @pytest.mark.parametrize(("m", "n", "k"), PUBLIC)
    def test_public_shapes(self, cuda, m, n, k) -> None:
        run_and_check("nt", m, n, k, cuda)

    @pytest.mark.gpu
    @pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
    @pytest.mark.parametrize(("m", "n", "k"), [(128, 4096, 7168), (4096, 7168, 2048), (2112, 4096, 4096)])
    def test_large_shapes(self, cuda, m, n, k, layout) -> None:
        run_and_check(layout, m, n, k, cuda)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("inplace", [True, False], ids=["c_is_d", "c_separate"])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_c_is_added(self, device, layout, inplace, dtype) -> None:
        m, n, k = 130, 264, 200
        a, b = operands(m, n, k, device)
        c = (random_values((m, n), device, 7) * 10).to(dtype)
        out = GuardedOutput((m, n), dtype, device)
        if inplace:
            out.tensor.copy_(c)
        call(layout, a, b, out.tensor, c=out.tensor if inplace else c)
        out.check()
        matches(out.tensor, a, b, c)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(("n", "row_stride", "offset"), [(136, 200, 64), (130, 136, 64), (136, 137, 65), (9, 9, 3)])
    def test_d_is_a_slice_of_a_larger_tensor(self, device, n, row_stride, offset, dtype) -> None:
        run_and_check("nt", 67, n, 144, device, dtype, row_stride=row_stride, offset=offset)

    # Straight and swapped, one to three warpgroups, one and two times 64 rows a warpgroup, widths of BF16's own.
    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize(
        ("swapped", "rows", "cols"),
        [
            (False, 64, 64),
            (False, 64, 192),
            (False, 128, 64),
            (False, 128, 128),
            (False, 128, 192),
            (False, 128, 256),
            (False, 192, 128),
            (False, 256, 64),
            (False, 256, 128),
            (True, 64, 64),
            (True, 128, 128),
        ],
    )
    def test_every_tile(self, device, swapped, rows, cols, layout) -> None:
        m, n, k = 300, 280, 456
        with forced_tile(device, (m, n, k), swapped, rows, cols):
            run_and_check(layout, m, n, k, device)

    @pytest.mark.parametrize(("swapped", "rows", "cols"), [(False, 128, 16), (False, 128, 240), (True, 64, 8)])
    def test_tiles_of_other_widths(self, device, swapped, rows, cols) -> None:
        """Of K-major columns."""
        m, n, k = 70, 260, 328
        with forced_tile(device, (m, n, k), swapped, rows, cols):
            run_and_check("tt" if not swapped else "nn", m, n, k, device)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize(
        ("m", "rows", "cols", "cluster", "turns"),
        [
            (512, 128, 128, (2, 1, 1), 1),
            (512, 128, 128, (1, 2, 1), 1),
            (512, 256, 128, (1, 2, 1), 1),
            (64, 64, 128, (1, 1, 2), 1),
            (64, 64, 128, (1, 1, 1), 2),
        ],
    )
    def test_clusters_and_turns(self, device, m, rows, cols, cluster, turns, layout) -> None:
        n, k = 256, 1000
        with forced_tile(device, (m, n, k), False, rows, cols, cluster, turns):
            run_and_check(layout, m, n, k, device)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_k_of_nothing(self, device, layout) -> None:
        c = random_values((33, 24), device, 1)
        for added in (None, c):
            out = GuardedOutput((33, 24), torch.float32, device)
            call(layout, *operands(33, 24, 0, device), out.tensor, c=added)
            assert torch.equal(out.tensor, torch.zeros_like(c) if added is None else c)

    def test_nothing_leaks_from_outside(self, device) -> None:
        """Rows of NaN lie before and behind both operands, and a tile is larger than they are."""
        m, n, k = 40, 72, 100
        a, b = operands(m, n, k, device)
        for layout in LAYOUTS:
            sides = []
            for matrix, other_way in ((a, layout[0] == "t"), (b, layout[1] == "n")):
                lines = lying(matrix, other_way)
                wide = torch.full((lines.shape[0] + 16, lines.stride(0)), float("nan"), device=device).bfloat16()
                inner = wide[8:-8, : lines.shape[1]]
                inner.copy_(lines)
                sides.append(inner)
            out = GuardedOutput((m, n), torch.bfloat16, device)
            getattr(deep_gemm, f"bf16_gemm_{layout}")(*sides, out.tensor)
            out.check()
            matches(out.tensor, a, b)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    def test_calls_that_come_again(self, device) -> None:
        """Equal arguments are known again: not so other strides, layouts or values in the same memory."""
        m, n, k = 40, 72, 64
        memory = torch.empty(2 * n * k, dtype=torch.bfloat16, device=device)
        for seed in range(4):
            a, b = operands(m, n, k, device, seed)
            for layout, where in (("nt", memory[: n * k].view(n, k)), ("nn", memory[: n * k].view(k, n))):
                where.copy_(b.T if layout == "nn" else b)
                out = GuardedOutput((m, n), torch.bfloat16, device)
                getattr(deep_gemm, f"bf16_gemm_{layout}")(a, where, out.tensor)
                out.check()
                matches(out.tensor, a, b)

    @pytest.mark.gpu
    def test_a_captured_call_replays(self, cuda) -> None:
        a, b = operands(64, 576, 512, cuda)
        out = GuardedOutput((64, 576), torch.bfloat16, cuda)
        deep_gemm.bf16_gemm_nt(a, b, out.tensor)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            deep_gemm.bf16_gemm_nt(a, b, out.tensor)
        a.copy_(values((64, 512), cuda, 9))
        out.tensor.fill_(float("nan"))
        graph.replay()
        out.check()
        matches(out.tensor, a, b)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("layout", ["nt", "nn"])
def test_rows_do_not_depend_on_m(device, layout) -> None:
    """Whatever the tile, and whether operands are swapped: the sum goes along K in the same steps."""
    n, k = 200, 1000
    a, b = operands(300, n, k, device)
    before = deep_gemm.get_batch_invariant(device)
    deep_gemm.set_batch_invariant(True, device)
    try:
        found = []
        for m in (1, 7, 64, 130, 300):
            d = torch.full((m, n), float("nan"), device=device)
            call(layout, a[:m], b, d)
            found.append(d)
    finally:
        deep_gemm.set_batch_invariant(before, device)
    for d in found:
        assert torch.equal(d, found[-1][: len(d)])


class TestErrors:
    def test_types(self, device) -> None:
        a, b = operands(16, 16, 64, device)
        out = GuardedOutput((16, 16), torch.bfloat16, device)
        with pytest.raises(TypeError, match="a must be bfloat16, but is float32"):
            deep_gemm.bf16_gemm_nt(a.float(), b, out.tensor)
        with pytest.raises(TypeError, match="b must be bfloat16, but is float8_e4m3fn"):
            deep_gemm.bf16_gemm_nt(a, b.to(torch.float8_e4m3fn), out.tensor)
        with pytest.raises(TypeError, match="d must be bfloat16 or float32, but is float16"):
            deep_gemm.bf16_gemm_nt(a, b, torch.empty(16, 16, dtype=torch.float16, device=device))
        out.assert_untouched()

    def test_shapes_and_strides(self, device) -> None:
        a, b = operands(16, 16, 64, device)
        out = GuardedOutput((16, 16), torch.bfloat16, device)
        with pytest.raises(ValueError, match="b has K=32 but a has K=64"):
            deep_gemm.bf16_gemm_nt(a, b[:, :32], out.tensor)
        odd = values((16, 60), device, 1)
        with pytest.raises(ValueError, match="K must be a multiple of 8, but is 60: pad A and B with zeros to K=64"):
            deep_gemm.bf16_gemm_nt(odd, odd, out.tensor)
        with pytest.raises(ValueError, match=r"a's rows must start at multiples of 16 bytes.*allocate rows of 64"):
            deep_gemm.bf16_gemm_nt(values((16, 60), device, 1)[:, :56], b[:, :56], out.tensor)
        lines = values((64, 20), device, 1)[:, :16]
        with pytest.raises(ValueError, match=r"b's lines along N must start at multiples of 16 bytes.*of 24"):
            deep_gemm.bf16_gemm_nn(a, lines, out.tensor)
        with pytest.raises(ValueError, match="a must start at a multiple of 16 bytes"):
            deep_gemm.bf16_gemm_nt(values((16, 72), device, 1)[:, 1:65], b, out.tensor)
        with pytest.raises(ValueError, match="a must have K or M contiguous"):
            deep_gemm.bf16_gemm_nt(values((16, 128), device, 1)[:, ::2], b, out.tensor)
        with pytest.raises(ValueError, match=r"d must be \[M, N\] = \[16, 16\]"):
            deep_gemm.bf16_gemm_nt(a, b, torch.empty(16, 24, dtype=torch.bfloat16, device=device))
        out.assert_untouched()

    def test_k_groups(self, device) -> None:
        a, b = values((128, 64), device, 1), values((128, 64), device, 2)
        d = torch.zeros(2, 64, 64, device=device)
        sizes = torch.tensor([64, 64], dtype=torch.int32, device=device)
        with pytest.raises(ValueError, match="ks_cpu is missing"):
            deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, None, sizes, use_psum_layout=True)
        with pytest.raises(ValueError, match="sum_k=120 as ks_cpu adds up"):
            deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, [64, 56], sizes)
        with pytest.raises(ValueError, match=r"a must be .* with M contiguous"):
            deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a.T.contiguous().T, b, d, [64, 64], sizes)
        assert not d.any()


class Experts:
    """Rows of experts in one matrix, each expert aligned, NaN in all padding."""

    def __init__(self, counts: Sequence[int], n: int, k: int, device: torch.device, alignment: int = 128) -> None:
        self.counts, self.starts, m = list(counts), [], 0
        for count in counts:
            self.starts.append(m)
            m += ceil_div(count, alignment) * alignment
        self.a, self.b = values((m, k), device, 1), values((len(counts), n, k), device, 2)
        indices = torch.full((m,), -1, dtype=torch.int32)
        for expert, rows in enumerate(self.rows()):
            indices[rows] = expert
        self.indices = indices.to(device)
        self.a[self.indices < 0] = float("nan")
        ends = [start + count for start, count in zip(self.starts, self.counts, strict=True)]
        self.ends = torch.tensor(ends, dtype=torch.int32, device=device)

    def rows(self) -> list[slice]:
        return [slice(start, start + count) for start, count in zip(self.starts, self.counts, strict=True)]

    def check(self, d: torch.Tensor) -> None:
        for expert, rows in enumerate(self.rows()):
            if rows.start < rows.stop:
                matches(d[rows], self.a[rows], self.b[expert], what=f"expert {expert}")


def run_contiguous(case: Experts, psum: bool, nn: bool, dtype: torch.dtype = torch.bfloat16) -> None:
    out = GuardedOutput((case.a.shape[0], case.b.shape[1]), dtype, case.a.device)
    gemm = deep_gemm.m_grouped_bf16_gemm_nn_contiguous if nn else deep_gemm.m_grouped_bf16_gemm_nt_contiguous
    gemm(case.a, lying(case.b, nn), out.tensor, case.ends if psum else case.indices, use_psum_layout=psum)
    out.check(complete=False)
    case.check(out.tensor)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nn", [False, True], ids=["nt", "nn"])
@pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
@pytest.mark.parametrize("counts", [[5, 0, 130, 1], [200], [0, 0, 33, 0], [128, 256]], ids=str)
def test_contiguous(device, counts, psum, nn, dtype) -> None:
    run_contiguous(Experts(counts, 136, 200, device), psum, nn, dtype)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
@pytest.mark.parametrize(("n", "k"), [(1, 8), (24, 72), (100, 64), (264, 512)])
@pytest.mark.parametrize("alignment", [8, 64, 128])
def test_contiguous_of_odd_sizes(device, alignment, n, k, psum) -> None:
    with alignment_of(alignment):
        for nn in (False, True):
            run_contiguous(Experts([3, 129, 0, 40], n, k, device, alignment), psum, nn)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(
    ("swapped", "rows", "cols"), [(False, 128, 256), (False, 256, 128), (False, 192, 128), (True, 128, 32)]
)
@pytest.mark.parametrize("kind", ["contiguous", "masked"])
def test_tiles_of_experts(device, kind, swapped, rows, cols) -> None:
    n, k = 280, 264
    with alignment_of(256), forced_tile(device, (600, n, k), swapped, rows, cols):
        if kind == "masked":
            run_masked([5, 0, 300, 257], 320, n, k, device, 200)
        elif rows != 192:
            run_contiguous(Experts([5, 0, 300, 257], n, k, device, 256), False, False)


def run_masked(
    counts: list[int],
    max_m: int,
    n: int,
    k: int,
    device: torch.device,
    expected_m: int,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    a, b = values((len(counts), max_m, k), device, 1), values((len(counts), n, k), device, 2)
    for expert, count in enumerate(counts):
        a[expert, count:] = float("nan")
    out = GuardedOutput((len(counts), max_m, n), dtype, device)
    masked_m = torch.tensor(counts, dtype=torch.int32, device=device)
    deep_gemm.m_grouped_bf16_gemm_nt_masked(a, lying(b, False), out.tensor, masked_m, expected_m)
    out.check(complete=False)
    for expert, count in enumerate(counts):
        if count:
            matches(out.tensor[expert, :count], a[expert, :count], b[expert], what=f"expert {expert}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expected_m", [1, 20, 64, 100_000])
@pytest.mark.parametrize("counts", [[5, 0, 130, 200], [0, 0, 0], [200, 200], [1]], ids=str)
def test_masked(device, counts, expected_m, dtype) -> None:
    run_masked(counts, 200, 136, 200, device, expected_m, dtype)


def run_k_groups(
    ks: Sequence[int],
    m: int,
    n: int,
    device: torch.device,
    add: str = "nothing",
    psum_alignment: int = 0,
) -> None:
    starts, ends, end = [], [], 0
    for k in ks:
        start = ceil_div(end, psum_alignment) * psum_alignment if psum_alignment else end
        starts.append(start)
        ends.append(end := start + k)
    rows_of_k = end
    sides = [values((rows_of_k, extent), device, seed) for seed, extent in ((1, m), (2, n))]
    for side in sides:
        for before, after in zip(ends, [*starts[1:], rows_of_k], strict=True):
            side[before:after] = float("nan")
    shape = (len(ks), m, n)
    c = None if add == "nothing" else random_values(shape, device, 7) * 10
    out = GuardedOutput(shape, torch.float32, device)
    if add == "c_is_d":
        out.tensor.copy_(c)
    sizes = torch.tensor(ends if psum_alignment else ks, dtype=torch.int32, device=device)
    a, b = (lying(side, False, padding=8) for side in sides)
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(
        a, b, out.tensor, ks, sizes, c=out.tensor if add == "c_is_d" else c, use_psum_layout=psum_alignment > 0
    )
    out.check()
    for g, (start, stop) in enumerate(zip(starts, ends, strict=True)):
        a_part, b_part = (side[start:stop].T for side in sides)
        matches(out.tensor[g], a_part, b_part, None if c is None else c[g], f"group {g} of {ks}")


@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
@pytest.mark.parametrize("ks", [[128], [128, 256, 0, 384], [0, 7, 145, 0], [272, 48, 1, 0, 0, 16]], ids=str)
def test_k_groups(device, ks, add) -> None:
    run_k_groups(ks, 72, 136, device, add)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (200, 100), (65, 264)])
def test_k_groups_of_odd_sizes(device, m, n) -> None:
    run_k_groups([100, 0, 65], m, n, device)
    with alignment_of(64):
        run_k_groups([100, 0, 64, 3], m, n, device, psum_alignment=64)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_more_k_groups_than_one_launch_takes(device) -> None:
    run_k_groups([(7 * g) % 40 for g in range(130)], 24, 16, device)


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("rows", "cols"), [(128, 128), (128, 256), (256, 128)])
@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
def test_tiles_of_k_groups(device, add, rows, cols) -> None:
    with forced_tile(device, (300, 280, 256), False, rows, cols):
        run_k_groups([200, 0, 65, 64], 300, 280, device, add)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_problems(data) -> None:
    m, n = (data.draw(st.integers(1, 300), label=name) for name in "mn")
    k = data.draw(st.integers(1, 400), label="k")
    layout = data.draw(st.sampled_from(LAYOUTS), label="layout")
    run_and_check(layout, m, n, k, torch.device("cpu"), data.draw(st.sampled_from(DTYPES), label="dtype"))
