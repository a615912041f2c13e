"""Dense INT8 products on every device: exact sums, and scaled ones bit by bit as the docstring says."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile, least_rows
from cases import ODD_K, ODD_M, ODD_N, PUBLIC
from devices import FEW, ONE_OF_EACH_ARCH, SCHEDULES, on_simulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import GuardedOutput, random_values, with_row_padding
from int8_inputs import exact, operands, scales, values, wanted
from sampling import examples

import deep_gemm
from deep_gemm import simulator

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
SMALL = [(1, 1, 16), (7, 24, 64), (33, 100, 144), (129, 136, 400), (200, 72, 272), (16, 520, 1024), (300, 264, 640)]


def check_exact(a: torch.Tensor, b: torch.Tensor, **guard) -> None:
    out = GuardedOutput((len(a), len(b)), torch.int32, a.device, **guard)
    deep_gemm.int8_gemm_nt(a, b, out.tensor)
    out.check()
    assert torch.equal(out.tensor.long(), exact(a, b))


def check_scaled(a, scale_a, b, scale_b, dtype=torch.bfloat16, bias=None, c=None, **guard) -> None:
    out = GuardedOutput((len(a), len(b)), dtype, a.device, **guard)
    deep_gemm.int8_gemm_nt((a, scale_a), (b, scale_b), out.tensor, c, bias=bias)
    out.check()
    assert torch.equal(out.tensor, wanted(a, scale_a, b, scale_b, dtype, bias, c))


def run_and_check(m: int, n: int, k: int, device: torch.device, dtype: torch.dtype, **guard) -> None:
    a, b = operands(m, n, k, device)
    if dtype == torch.int32:
        check_exact(a, b, **guard)
    else:
        check_scaled(a, scales(m, device, 2), b, scales(n, device, 3), dtype, random_values((n,), device, 4), **guard)


class TestSums:
    @pytest.mark.parametrize(("m", "n", "k"), SMALL)
    def test_small_shapes(self, device, m, n, k) -> None:
        check_exact(*operands(m, n, k, device))

    @pytest.mark.gpu
    @pytest.mark.parametrize("k", ODD_K)
    @pytest.mark.parametrize("n", ODD_N)
    @pytest.mark.parametrize("m", ODD_M)
    def test_odd_shapes(self, cuda, m, n, k) -> None:
        check_exact(*operands(m, n, k, cuda))

    @pytest.mark.gpu
    @pytest.mark.parametrize(("m", "n", "k"), PUBLIC)
    def test_public_shapes(self, cuda, m, n, k) -> None:
        check_exact(*operands(m, n, k, cuda))

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("other", [-128, 127])
    def test_the_largest_sums(self, device, other) -> None:
        """To within 2^14 of what 32 bits hold, and far beyond what FP32 holds exactly."""
        k = 131071 // 16 * 16
        a = torch.full((2, k), -128, dtype=torch.int8, device=device)
        b = torch.full((8, k), other, dtype=torch.int8, device=device)
        b[1, -1] -= 1 if other > 0 else -1
        check_exact(a, b)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("inplace", [True, False], ids=["c_is_d", "c_separate"])
    @pytest.mark.parametrize("n", [264, 261])
    def test_c_is_added_exactly(self, device, inplace, n) -> None:
        a, b = operands(70, n, 208, device)
        c = torch.arange(70 * n, dtype=torch.int32, device=device).view(70, n) * 40503
        out = GuardedOutput((70, n), torch.int32, device)
        out.tensor.copy_(c)
        deep_gemm.int8_gemm_nt(a, b, out.tensor, out.tensor if inplace else c)
        out.check()
        assert torch.equal(out.tensor.long(), exact(a, b) + c)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_a_sum_beyond_32_bits_wraps_around(self, device) -> None:
        a = torch.full((1, 131072), -128, dtype=torch.int8, device=device)
        d = torch.zeros(1, 1, dtype=torch.int32, device=device)
        deep_gemm.int8_gemm_nt(a, a, d)
        assert d.item() == -(2**31)


class TestScales:
    @pytest.mark.gpu
    @pytest.mark.parametrize(("m", "n", "k"), PUBLIC)
    def test_public_shapes(self, cuda, m, n, k) -> None:
        run_and_check(m, n, k, cuda, torch.bfloat16)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("swapped", [False, True])
    @pytest.mark.parametrize("form", ["number", "integer", "scalar", "one", "one_by_one", "each", "column", "strided"])
    def test_every_form(self, device, form, swapped) -> None:
        m, n, k = 40, 75, 80
        a, b = operands(m, n, k, device)

        def given_scales(rows: int, seed: int):
            each = scales(rows, device, seed)
            return {
                "number": 0.3 + seed,
                "integer": 3 + seed,
                "scalar": each[0],
                "one": each[:1],
                "one_by_one": each[:1, None],
                "each": each,
                "column": each[:, None],
                "strided": each.repeat_interleave(3)[::3],
            }[form]

        with forced_tile(device, (m, n, k), swapped, least_rows(device), 32):
            check_scaled(a, given_scales(m, 1), b, given_scales(n, 2), torch.float32)
            check_scaled(a, scales(m, device, 5), b, given_scales(n, 2), torch.float32)

    @pytest.mark.gpu
    def test_a_scale_on_the_cpu_serves_a_gpu(self, cuda) -> None:
        a, b = operands(40, 75, 80, cuda)
        d = torch.zeros(40, 75, device=cuda)
        deep_gemm.int8_gemm_nt((a, torch.tensor(0.3)), (b, torch.tensor(0.7)), d)
        assert torch.equal(d, wanted(a, 0.3, b, 0.7, torch.float32))

    @pytest.mark.sampled(10)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("swapped", [False, True])
    @pytest.mark.parametrize("n", [72, 75])
    @pytest.mark.parametrize("bias_type", FLOATS)
    @pytest.mark.parametrize("step", [1, 2])
    def test_bias_is_added(self, device, step, bias_type, n, swapped) -> None:
        a, b = operands(40, n, 80, device)
        bias = (random_values((step * n,), device, 3) * 100).to(bias_type)[::step]
        with forced_tile(device, (40, n, 80), swapped, least_rows(device), 32):
            check_scaled(a, scales(40, device, 1), b, scales(n, device, 2), torch.float32, bias)

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("biased", [True, False])
    @pytest.mark.parametrize("inplace", [True, False], ids=["c_is_d", "c_separate"])
    def test_c_is_added(self, device, inplace, biased, dtype) -> None:
        m, n, k = 70, 136, 144
        a, b = operands(m, n, k, device)
        scale_a, scale_b = scales(m, device, 1), scales(n, device, 2)
        bias = random_values((n,), device, 3) if biased else None
        c = (random_values((m, n), device, 7) * 1000).to(dtype)
        out = GuardedOutput((m, n), dtype, device)
        out.tensor.copy_(c)
        deep_gemm.int8_gemm_nt((a, scale_a), (b, scale_b), out.tensor, out.tensor if inplace else c, bias=bias)
        out.check()
        assert torch.equal(out.tensor, wanted(a, scale_a, b, scale_b, dtype, bias, c))

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_k_too_long_for_exact_sums_is_split(self, device, dtype) -> None:
        """Of values of one sign, whose sum leaves 32 bits: a scaled part, and what is left, added in FP32."""
        m, n, k, first = 3, 8, 131088, 130944
        a, b = (values((rows, k), device, seed).abs().clamp(min=100) for seed, rows in enumerate((m, n)))
        b[0] = -128
        a[0] = -128
        scale_a, bias, c = scales(m, device, 2), random_values((n,), device, 3), random_values((m, n), device, 4)
        c = c.to(dtype)
        d = c.clone()
        deep_gemm.int8_gemm_nt((a, scale_a), (b, 0.5), d, d, bias=bias)
        head = wanted(a[:, :first], scale_a, b[:, :first], 0.5, torch.float32, bias, c)
        tail = wanted(a[:, first:], scale_a, b[:, first:], 0.5, torch.float32, None, head)
        assert exact(a, b).abs().max() == 2**14 * k > 2**31
        assert torch.equal(d, tail.to(dtype))


class TestLayouts:
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("lies", ["padded", "between_16_bytes", "m_major", "m_major_odd", "misplaced"])
    def test_operands_lie_anywhere(self, device, lies) -> None:
        m, n, k = 70, 40, 144

        def laid(matrix: torch.Tensor) -> torch.Tensor:
            if lies == "padded":
                wide = torch.full((len(matrix), k + 48), -128, dtype=torch.int8, device=device)
                wide[:, :k] = matrix
                return wide[:, :k]
            if lies == "between_16_bytes":
                return with_row_padding(matrix, 3)
            if lies == "misplaced":
                room = torch.zeros(matrix.numel() + 1, dtype=torch.int8, device=device)
                return room[1:].view(matrix.shape).copy_(matrix)
            wide = torch.full((k, len(matrix) + (7 if lies == "m_major_odd" else 26)), -128, dtype=torch.int8)
            return wide.to(device)[:, : len(matrix)].T.copy_(matrix)

        a, b = operands(m, n, k, device)
        check_exact(laid(a), laid(b))
        check_exact(a, laid(b))

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    def test_any_k_where_rows_are_padded_or_columns_contiguous(self, device) -> None:
        for k in (1, 15, 17, 130):
            wide = [values((rows, 144), device, seed) for seed, rows in enumerate((20, 24))]
            check_exact(*(matrix[:, :k] for matrix in wide))
            check_exact(*(matrix[:, :k].T.contiguous().T for matrix in wide))


# Straight and swapped, one to three warpgroups, one and two times 64 rows a warpgroup, widths of its own.
TILES = [
    (False, 64, 64),
    (False, 64, 192),
    (False, 128, 16),
    (False, 128, 128),
    (False, 128, 240),
    (False, 128, 256),
    (False, 192, 112),
    (False, 256, 64),
    (False, 256, 128),
    (True, 64, 8),
    (True, 64, 24),
    (True, 64, 48),
    (True, 128, 128),
]


class TestTiles:
    @pytest.mark.sampled(13)
    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int32])
    @pytest.mark.parametrize(("swapped", "rows", "cols"), TILES)
    def test_every_tile(self, device, swapped, rows, cols, dtype) -> None:
        m, n, k = (70, 150, 208) if swapped else (150, 270, 208)
        with forced_tile(device, (m, n, k), swapped, rows, cols):
            run_and_check(m, n, k, device, dtype)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32])
    @pytest.mark.parametrize(
        ("m", "swapped", "rows", "cols", "cluster", "k_warpgroups"),
        [
            (256, False, 128, 64, (2, 1, 1), 1),
            (256, False, 128, 64, (1, 2, 1), 1),
            (64, False, 64, 64, (1, 1, 2), 1),
            (64, False, 64, 128, (1, 1, 3), 1),
            (24, True, 128, 24, (1, 1, 3), 1),
            (64, False, 64, 64, (1, 1, 1), 2),
            (64, False, 64, 64, (1, 1, 1), 3),
            (24, True, 64, 24, (1, 1, 2), 2),
        ],
    )
    def test_clusters_and_parts_of_k(self, device, m, swapped, rows, cols, cluster, k_warpgroups, dtype) -> None:
        n, k = 128, 1616
        with forced_tile(device, (m, n, k), swapped, rows, cols, cluster, k_warpgroups):
            run_and_check(m, n, k, device, dtype)

    @pytest.mark.parametrize("device", FEW, indirect=True)
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32])
    def test_pairs_share_the_last_tiles(self, device, dtype) -> None:
        deep_gemm.set_num_sms(4, device)
        try:
            m, n, k = 5 * 128, 192, 784
            with forced_tile(device, (m, n, k), False, 128, 192, (1, 1, 2)):
                run_and_check(m, n, k, device, dtype)
        finally:
            deep_gemm.set_num_sms(0, device)  # all of them


SM100_TILES = [
    (False, 16, (1, 1, 1)),
    (False, 80, (1, 1, 1)),
    (False, 256, (1, 1, 1)),
    (False, 96, (2, 1, 1)),
    (False, 64, (1, 1, 4)),
    (True, 16, (1, 1, 1)),
    (True, 128, (1, 1, 1)),
    (True, 64, (2, 1, 1)),
    (True, 48, (1, 1, 2)),
    (True, 32, (1, 1, 8)),
]


@pytest.mark.sampled(15)
@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)
@pytest.mark.parametrize("kind", ["int32", "bf16", "asymmetric"])
@pytest.mark.parametrize(("swapped", "cols", "cluster"), SM100_TILES)
def test_every_kind_of_tile_of_blackwell(device, swapped, cols, cluster, kind) -> None:
    """A cluster that splits K scales a sum, subtracts zero points and adds the bias once."""
    m, n, k = (70, 272, 1040) if swapped else (150, 270, 1040)
    a, b = operands(m, n, k, device)
    with simulator.options(num_sms=96), forced_tile(device, (m, n, k), swapped, 128, cols, cluster):
        if kind == "int32":
            return check_exact(a, b)
        scale_a, scale_b, bias = scales(m, device, 2), scales(n, device, 3), random_values((n,), device, 4) * 100
        if kind == "bf16":
            return check_scaled(a, scale_a, b, scale_b, torch.bfloat16, bias)
        zeros = torch.arange(m, dtype=torch.int32, device=device) - 40
        d = torch.zeros(m, n, device=device)
        deep_gemm.int8_gemm_nt((a, scale_a, zeros), (b, scale_b), d, bias=bias)
        assert torch.equal(d, wanted(a.int() - zeros[:, None], scale_a, b, scale_b, torch.float32, bias))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("recipe", [None, (1, 1, 128), (1, 128, 128)], ids=str)
@pytest.mark.parametrize("groups", [False, True])
def test_rows_do_not_depend_on_m(device, groups, recipe, batch_invariant) -> None:
    """Nor on the run, with scales of tokens for all of K or for groups of it."""
    n, k = 200, 1008
    a, b = operands(300, n, k, device)
    scale_a = scales(300 * 8, device, 1).view(300, 8)[:, slice(None) if groups else 0]
    shape = (n,) if recipe is None else (-(-n // recipe[1]), 8)
    scale_b = scales(n * 8, device, 2)[: torch.Size(shape).numel()].view(shape)
    found = []
    for m in (1, 7, 64, 300, 300):
        d = torch.full((m, n), float("nan"), device=device)
        deep_gemm.int8_gemm_nt((a[:m], scale_a[:m]), (b, scale_b), d, recipe=recipe)
        found.append(d)
    for d in found:
        assert torch.equal(d, found[-1][: len(d)])


class TestNothing:
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize(("m", "n"), [(0, 8), (8, 0), (0, 0)])
    def test_of_m_or_n(self, device, m, n) -> None:
        a, b = operands(m, n, 32, device)
        deep_gemm.int8_gemm_nt(a, b, torch.empty(m, n, dtype=torch.int32, device=device))
        deep_gemm.int8_gemm_nt((a, 1.0), (b, 1.0), torch.empty(m, n, device=device))

    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("dtype", [*FLOATS, torch.int32])
    def test_of_k(self, device, dtype) -> None:
        a, b = operands(5, 8, 0, device)
        c = (random_values((5, 8), device, 1) * 100).to(dtype)
        biases = [None] if dtype == torch.int32 else [None, random_values((8,), device, 2).bfloat16()]
        for added in (None, c):
            for bias in biases:
                out = GuardedOutput((5, 8), dtype, device)
                pair = (a, b) if dtype == torch.int32 else ((a, 2.0), (b, 2.0))
                deep_gemm.int8_gemm_nt(*pair, out.tensor, added, bias=bias)
                out.check()
                want = torch.zeros(5, 8, device=device) if added is None else added.double()
                assert torch.equal(out.tensor, (want + (0 if bias is None else bias.double())).float().to(dtype))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_calls_that_come_again(device) -> None:
    """Equal arguments are known again: not so another number as a scale, or other values in the same memory."""
    a, b = operands(16, 24, 64, device)
    d = torch.zeros(16, 24, device=device)
    for scale in (0.5, 0.5, 0.5, 0.25):
        for seed in range(3):
            a.copy_(values((16, 64), device, seed))
            d.fill_(float("nan"))
            deep_gemm.int8_gemm_nt((a, scale), (b, 3.0), d)
            assert torch.equal(d, wanted(a, scale, b, 3.0, torch.float32))


@pytest.mark.gpu
def test_a_captured_call_replays(cuda) -> None:
    a, b = operands(64, 576, 512, cuda)
    scale, d = scales(64, cuda, 1), torch.zeros(64, 576, device=cuda)
    deep_gemm.int8_gemm_nt((a, scale), (b, 0.5), d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        deep_gemm.int8_gemm_nt((a, scale), (b, 0.5), d)
    a.copy_(values((64, 512), cuda, 9))
    d.fill_(float("nan"))
    graph.replay()
    assert torch.equal(d, wanted(a, scale, b, 0.5, torch.float32))


@settings(deadline=None, max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_problems(data) -> None:
    m, n = (data.draw(st.integers(1, 160), label=name) for name in "mn")
    k = data.draw(st.integers(1, 25), label="k") * 16
    dtype = data.draw(st.sampled_from([*FLOATS, torch.int32]), label="dtype")
    run_and_check(m, n, k, torch.device("cpu"), dtype)
