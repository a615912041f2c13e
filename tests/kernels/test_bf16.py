"""Dense products of BF16 and of FP16 operands in every layout and on every device, against FP64 products of them."""

from __future__ import annotations

import pytest
import torch
from bf16_inputs import KINDS, call, lying, matches, operands, values
from candidates import forced_tile
from cases import ODD_M, ODD_N, PUBLIC
from devices import FEW, ONE_OF_EACH_ARCH
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import GuardedOutput, random_values
from sampling import examples

import deep_gemm

BF16 = KINDS[0]
OF_EACH_OPERAND = pytest.mark.parametrize("of_operands", [torch.bfloat16, torch.float16])
LAYOUTS = ["nt", "nn", "tn", "tt"]


def run_and_check(
    layout: str,
    m: int,
    n: int,
    k: int,
    device: torch.device,
    kind: tuple[torch.dtype, torch.dtype] = BF16,
    **guard,
) -> None:
    of_operands, dtype = kind
    a, b = operands(m, n, k, device, dtype=of_operands)
    out = GuardedOutput((m, n), dtype, device, **guard)
    call(layout, a, b, out.tensor, padding=8)
    out.check()
    matches(out.tensor, a, b)


class TestDense:
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 8), (33, 100, 136), (16, 520, 512)])
    def test_small_shapes(self, device, m, n, k, layout) -> None:
        run_and_check(layout, m, n, k, device)

    @pytest.mark.sampled(10)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("k", [1, 5, 64, 65, 127, 200])
    def test_any_k(self, device, layout, k) -> None:
        run_and_check(layout, 70, 75, k, device, (torch.bfloat16, torch.float32))

    @pytest.mark.gpu
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("k", [16, 3200, 7168 + 32])
    @pytest.mark.parametrize("n", ODD_N)
    @pytest.mark.parametrize("m", ODD_M)
    def test_odd_shapes(self, cuda, m, n, k, layout) -> None:
        run_and_check(layout, m, n, k, cuda, KINDS[(m + n + k) % len(KINDS)])

    @pytest.mark.gpu
    @pytest.mark.parametrize("kind", [BF16, (torch.float16, torch.float16)], ids=str)
    @pytest.mark.parametrize(("m", "n", "k"), PUBLIC)
    def test_public_shapes(self, cuda, m, n, k, kind) -> None:
        run_and_check("nt", m, n, k, cuda, kind)

    @pytest.mark.gpu
    @pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
    @pytest.mark.parametrize(("m", "n", "k"), [(128, 4096, 7168), (4096, 7168, 2048), (2112, 4096, 4096)])
    def test_large_shapes(self, cuda, m, n, k, layout) -> None:
        run_and_check(layout, m, n, k, cuda)

    # Straight and swapped, one to three warpgroups, one and two times 64 rows a warpgroup, widths of BF16's own.
    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("device", FEW, indirect=True)
    @OF_EACH_OPERAND
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
            (False, 192, 192),
            (False, 256, 64),
            (False, 256, 128),
            (True, 64, 64),
            (True, 128, 128),
        ],
    )
    def test_every_tile(self, device, swapped, rows, cols, layout, of_operands) -> None:
        m, n, k = 300, 280, 456
        with forced_tile(device, (m, n, k), swapped, rows, cols):
            run_and_check(layout, m, n, k, device, (of_operands, of_operands))

    @pytest.mark.parametrize(("swapped", "rows", "cols"), [(False, 128, 16), (False, 128, 240), (True, 64, 8)])
    def test_tiles_of_other_widths(self, device, swapped, rows, cols) -> None:
        """Of K-major columns."""
        m, n, k = 70, 260, 328
        with forced_tile(device, (m, n, k), swapped, rows, cols):
            run_and_check("tt" if not swapped else "nn", m, n, k, device)

    @pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 1)])
    def test_three_warpgroups_with_wide_tiles(self, device, cluster) -> None:
        """Of two tiles along M and N, the second ones not whole."""
        m, n, k = 370, 344, 456
        with forced_tile(device, (m, n, k), False, 192, 176, cluster):
            run_and_check("nt", m, n, k, device)

    @pytest.mark.sampled(10)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize(
        ("m", "rows", "cols", "cluster", "k_warpgroups"),
        [
            (512, 128, 128, (2, 1, 1), 1),
            (512, 128, 128, (1, 2, 1), 1),
            (512, 256, 128, (1, 2, 1), 1),
            (64, 64, 128, (1, 1, 2), 1),
            (64, 64, 128, (1, 1, 1), 2),
        ],
    )
    def test_clusters_and_turns(self, device, m, rows, cols, cluster, k_warpgroups, layout) -> None:
        n, k = 256, 1000
        with forced_tile(device, (m, n, k), False, rows, cols, cluster, k_warpgroups):
            run_and_check(layout, m, n, k, device)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_k_of_nothing(self, device, layout) -> None:
        c = random_values((33, 24), device, 1)
        for added in (None, c):
            out = GuardedOutput((33, 24), torch.float32, device)
            call(layout, *operands(33, 24, 0, device), out.tensor, c=added)
            assert torch.equal(out.tensor, torch.zeros_like(c) if added is None else c)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
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

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
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


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", ["nt", "nn"])
def test_rows_do_not_depend_on_m(device, layout, batch_invariant) -> None:
    """Whatever the tile, and whether operands are swapped: the sum goes along K in the same steps."""
    n, k = 200, 1000
    a, b = operands(300, n, k, device)
    found = []
    for m in (1, 7, 64, 130, 300):
        d = torch.full((m, n), float("nan"), device=device)
        call(layout, a[:m], b, d)
        found.append(d)
    for d in found:
        assert torch.equal(d, found[-1][: len(d)])


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_fp16_rounds_to_nearest_and_overflows_to_infinity(device) -> None:
    """65520 lies half way between the largest, 65504, and the next that there would be. Subnormal C are read, too."""
    wanted = torch.tensor(
        [1.0, 65504.0, 65519.0, 65520.0, -65520.0, 1e5, 2.0**-24, 2.0**-25, 3 * 2.0**-26, 2049.0, 2051.0]
    )
    for dtype in (torch.float32, torch.float16):  # as B [N, 2]: a sum of two parts, both exact
        high = wanted.to(torch.bfloat16)
        b = torch.stack([high, (wanted - high.float()).to(torch.bfloat16)], dim=1).to(device)
        a = torch.ones((3, 2), dtype=torch.bfloat16, device=device)
        d = torch.full((3, len(wanted)), float("nan"), dtype=dtype, device=device)
        deep_gemm.bf16_gemm_nt(a, b, d)
        assert torch.equal(d.cpu(), wanted.to(dtype).expand(3, -1))
    c = torch.tensor([2.0**-24, -(2.0**-15), 60000.0, float("inf")]).half().expand(3, 4).contiguous().to(device)
    d = torch.empty_like(c)
    deep_gemm.bf16_gemm_nt(torch.ones_like(c), torch.eye(4, dtype=torch.float16, device=device), d, c=c)
    assert torch.equal(d, (c.float() + 1).half())


class TestErrors:
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_types(self, device) -> None:
        a, b = operands(16, 16, 64, device)
        out = GuardedOutput((16, 16), torch.bfloat16, device)
        with pytest.raises(TypeError, match="a must be bfloat16 or float16, got float32"):
            deep_gemm.bf16_gemm_nt(a.float(), b, out.tensor)
        with pytest.raises(TypeError, match="b must be bfloat16, got float8_e4m3fn"):
            deep_gemm.bf16_gemm_nt(a, b.to(torch.float8_e4m3fn), out.tensor)
        with pytest.raises(TypeError, match="b must be float16, got bfloat16"):
            deep_gemm.bf16_gemm_nt(a.half(), b, out.tensor)
        with pytest.raises(TypeError, match="d must be bfloat16, float32 or float16, got float64"):
            deep_gemm.bf16_gemm_nt(a, b, torch.empty(16, 16, dtype=torch.float64, device=device))
        with pytest.raises(TypeError, match="d must be float16 or float32, got bfloat16"):
            deep_gemm.bf16_gemm_nt(a.half(), b.half(), out.tensor)
        with pytest.raises(TypeError, match="d must be float16 or float32, got int64"):
            deep_gemm.bf16_gemm_nt(a.half(), b.half(), torch.empty(16, 16, dtype=torch.int64, device=device))
        out.assert_untouched()

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_shapes_and_strides(self, device) -> None:
        a, b = operands(16, 16, 64, device)
        out = GuardedOutput((16, 16), torch.bfloat16, device)
        with pytest.raises(ValueError, match="b has K=32 but a has K=64"):
            deep_gemm.bf16_gemm_nt(a, b[:, :32], out.tensor)
        with pytest.raises(ValueError, match="a must have K or M contiguous"):
            deep_gemm.bf16_gemm_nt(values((16, 128), device, 1)[:, ::2], b, out.tensor)
        with pytest.raises(ValueError, match=r"d must be \[M, N\] = \[16, 16\]"):
            deep_gemm.bf16_gemm_nt(a, b, torch.empty(16, 24, dtype=torch.bfloat16, device=device))
        out.assert_untouched()


@settings(deadline=None, max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_problems(data) -> None:
    m, n = (data.draw(st.integers(1, 300), label=name) for name in "mn")
    k = data.draw(st.integers(1, 400), label="k")
    layout = data.draw(st.sampled_from(LAYOUTS), label="layout")
    run_and_check(layout, m, n, k, torch.device("cpu"), data.draw(st.sampled_from(KINDS), label="kind"))
