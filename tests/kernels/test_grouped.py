"""Grouped FP8 products on every device, against FP64 products of the same quantised inputs, expert by expert."""

from __future__ import annotations

import pytest
import torch
from devices import BUT_SM100, EACH_ARCH, on_simulator
from grouped_inputs import FP8_NAN, Contiguous, alignment_of, contiguous, grouped_problems, masked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import GuardedOutput, Operand, mn_major, takes_powers_of_two
from sampling import examples

import deep_gemm

DTYPES = [torch.bfloat16, torch.float32, torch.float16]

# Rows of each expert: empty ones first, last and between, single rows, more than a tile.
COUNTS = {
    "one_expert": [200],
    "single_rows": [1, 1, 1],
    "empty_ends": [0, 0, 33, 0],
    "full_tiles": [128, 256],
}
MANY_EXPERTS = [(7 * g) % 5 for g in range(40)]  # more than one warp's worth


def run_contiguous(case: Contiguous, psum: bool = False, dtype: torch.dtype = torch.bfloat16, **more) -> torch.Tensor:
    out = case.output(dtype)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
        case.a, case.b, out.tensor, case.layout(psum), use_psum_layout=psum, **more
    )
    out.check(complete=False)
    case.check(out.tensor)
    return out.tensor


class TestContiguous:
    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
    @pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
    def test_any_number_of_rows(self, device, counts, psum) -> None:
        run_contiguous(contiguous(counts, 136, 256, device), psum)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
    @pytest.mark.parametrize(("n", "k"), [(1, 16), (24, 144), (100, 64), (576, 400), (264, 1024)])
    def test_odd_weights(self, device, n, k, psum) -> None:
        run_contiguous(contiguous([3, 129, 0, 40], n, k, device), psum)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
    @pytest.mark.parametrize("alignment", [16, 64, 256])
    def test_alignments(self, device, alignment, psum) -> None:
        with alignment_of(alignment):
            run_contiguous(contiguous([64, 65, 3, 0, 130], 136, 256, device, alignment), psum)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
    def test_many_experts(self, device, psum) -> None:
        with alignment_of(16):
            run_contiguous(contiguous(MANY_EXPERTS, 64, 128, device, 16), psum)

    @pytest.mark.parametrize("device", BUT_SM100, indirect=True)
    @pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
    @pytest.mark.parametrize("alignment", [8, 24])
    def test_alignments_that_blackwell_does_not_serve(self, device, alignment, psum) -> None:
        with alignment_of(alignment):
            run_contiguous(contiguous(MANY_EXPERTS, 64, 128, device, alignment), psum)

    @pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
    @pytest.mark.parametrize("alignment", [8, 24])
    def test_alignments_that_no_tile_divides_are_refused(self, device, alignment) -> None:
        with alignment_of(alignment):
            case = contiguous([3, 40], 64, 128, device, alignment)
            out = case.output()
            with pytest.raises(
                ValueError, match=f"divides {alignment}, the alignment of experts' rows: see set_mk_alignment"
            ):
                deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
            out.assert_untouched()

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
    def test_padding_after_the_last_expert_may_be_missing(self, device, psum) -> None:
        run_contiguous(contiguous([5, 70], 136, 256, device, cut_rows=50), psum)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_nothing_is_written_past_the_last_psum_group(self, device, dtype) -> None:
        case = contiguous([0, 0], 136, 256, device, extra_rows=256)
        out = case.output(dtype)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.ends, use_psum_layout=True)
        out.assert_untouched()

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_an_index_past_the_last_expert_is_padding(self, device) -> None:
        case = contiguous([10, 20], 136, 256, device)
        layout = case.indices
        layout[128:] = 2
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
        case.counts[1] = 0
        out.check(complete=False)
        case.check(out.tensor)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_weights_may_be_k_major_views(self, device) -> None:
        """Strides decide, not the name."""
        case = contiguous([5, 0, 130], 100, 256, device)
        b = Operand(case.b.data.transpose(1, 2), case.b.scales.transpose(1, 2))
        for psum in (False, True):
            out = case.output()
            deep_gemm.m_grouped_fp8_gemm_nn_contiguous(case.a, b, out.tensor, case.layout(psum), use_psum_layout=psum)
            out.check(complete=False)
            case.check(out.tensor)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize(("compiled_dims", "psum"), [("", False), ("n", True), ("mnk", False), ("mnk", True)])
    def test_compiled_dims(self, device, compiled_dims, psum) -> None:
        run_contiguous(contiguous([5, 0, 130], 136, 256, device), psum, compiled_dims=compiled_dims)


class TestPsum:
    """The layout that says where each expert ends, and its promise about padding."""

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize(
        ("dtype", "alignment", "expected_m"),
        [
            (torch.bfloat16, 64, None),
            (torch.bfloat16, 128, 4),
            (torch.float16, 64, 1000),
            (torch.float16, 128, None),
            (torch.float32, 64, 4),
            (torch.float32, 128, 1000),
        ],
    )
    def test_padding_becomes_zero_and_nothing_beyond_is_touched(self, device, dtype, alignment, expected_m) -> None:
        with alignment_of(alignment):
            case = contiguous([5, 0, 130, 64], 136, 256, device, alignment, extra_rows=200)
            out = case.output(dtype)
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
                case.a, case.b, out.tensor, case.ends, use_psum_layout=True, expected_m_for_psum_layout=expected_m
            )
        out.check(complete=False)
        case.check(out.tensor)
        written = case.m - 200
        padding = (case.indices < 0)[:written]
        assert (out.tensor[:written][padding] == 0).all()
        bits = out.tensor[written:].view(torch.int32 if dtype == torch.float32 else torch.int16)
        assert (bits == out.pattern).all(), "rows past the last expert's padding were written"

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_without_the_promise(self, device, dtype) -> None:
        """Whole tiles of padding stay as they are; real rows are right."""
        with alignment_of(256):
            case = contiguous([5, 0, 130], 136, 256, device, 256, extra_rows=64)
            run_contiguous(case, psum=True, dtype=dtype, ensure_zero_padding=False)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_ends_of_empty_experts(self, device) -> None:
        """An empty expert's end may be its start, or (as a running sum has it) the end of the one before."""
        case = contiguous([5, 0, 0, 130, 0], 136, 256, device)
        out = case.output()
        ends = torch.tensor([5, 5, 128, 258, 258], dtype=torch.int32, device=device)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, ends, use_psum_layout=True)
        out.check()
        case.check(out.tensor)

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_ends_past_the_matrix_are_cut(self, device) -> None:
        case = contiguous([5, 130], 136, 256, device)
        out = case.output()
        ends = torch.tensor([5, 10_000], dtype=torch.int32, device=device)
        case.a = Operand(case.a.data.clone(), case.a.scales.nan_to_num(0.0))
        case.a.data.view(torch.uint8)[case.indices < 0] = 0
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, ends, use_psum_layout=True)
        out.check()
        case.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=grouped_problems(), alignment=st.sampled_from([64, 128]), psum=st.booleans())
def test_drawn_contiguous(device, problem, alignment, psum) -> None:
    counts, n, k, _ = problem
    with alignment_of(alignment):
        run_contiguous(contiguous(counts, n, k, device, alignment), psum, compiled_dims="")


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("experts", "m", "n"), [(2, 0, 64), (2, 128, 0)])
def test_nothing_to_do(device, experts, m, n) -> None:
    fp8 = torch.float8_e4m3fn
    b = Operand(
        torch.empty((experts, n, 128), dtype=fp8, device=device), torch.empty((experts, -(-n // 128), 1), device=device)
    )
    a = Operand(torch.empty((m, 128), dtype=fp8, device=device), torch.empty((m, 1), device=device))
    out = GuardedOutput((m, n), torch.bfloat16, device)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, out.tensor, torch.full((m,), -1, dtype=torch.int32, device=device))
    out.assert_untouched()
    a = Operand(torch.empty((experts, m, 128), dtype=fp8, device=device), torch.empty((experts, m, 1), device=device))
    d = torch.empty((experts, m, n), dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, torch.zeros(experts, dtype=torch.int32, device=device), 1)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_equal_bits_from_run_to_run(device) -> None:
    case = contiguous([5, 0, 130], 136, 400, device)
    valid = case.indices >= 0
    first, second = run_contiguous(case), run_contiguous(case)
    assert torch.equal(first[valid], second[valid])
    case = masked([5, 0, 130], 130, 136, 400, device)
    results = []
    for _ in range(2):
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, 64)
        results.append(out.tensor[2])
    assert torch.equal(*results)


@pytest.mark.gpu
class TestGraphs:
    """Counts are read on the device: a captured call follows them."""

    def replay(self, call, before, after) -> None:
        """Capture `call` once; `before` and `after` change inputs between replays."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        before()
        graph.replay()
        torch.cuda.synchronize()
        after()

    @pytest.mark.parametrize("layout", ["as_needed", "row_major"])
    def test_masked(self, cuda, layout) -> None:
        case = masked([256] * 8, 256, 576, 1024, cuda)
        scales = mn_major(case.a.scales) if layout == "as_needed" else case.a.scales
        counts = torch.zeros(8, dtype=torch.int32, device=cuda)
        d = torch.full((8, 256, 576), float("nan"), dtype=torch.bfloat16, device=cuda)
        call = lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(  # noqa: E731
            (case.a.data, scales), case.b, d, counts, 16
        )
        for values in ([256] * 8, [0] * 8, [1, 0, 200, 17, 0, 3, 128, 256]):
            wanted = torch.tensor(values, dtype=torch.int32, device=cuda)
            case.counts = wanted

            def before(wanted=wanted) -> None:
                d.fill_(float("nan"))
                counts.copy_(wanted)

            self.replay(call, before, lambda: case.check(d))

    @pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
    def test_contiguous(self, cuda, psum) -> None:
        case = contiguous([300, 0, 5, 700], 576, 1024, cuda)
        other = contiguous([5, 700, 0, 300], 576, 1024, cuda, seed=5)
        assert case.m == other.m
        a, layout = Operand(case.a.data.clone(), case.a.scales.clone()), case.layout(psum)
        d = torch.full((case.m, 576), float("nan"), dtype=torch.bfloat16, device=cuda)

        def call() -> None:
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, case.b, d, layout, use_psum_layout=psum)

        def before() -> None:
            d.fill_(float("nan"))
            a.data.view(torch.uint8).copy_(other.a.data.view(torch.uint8))
            a.scales.copy_(other.a.scales)
            layout.copy_(other.layout(psum))

        other.b = case.b
        self.replay(call, before, lambda: other.check(d))


class TestBatchInvariance:
    """A row's bits do not depend on how many rows there are, where it stands, or what the others hold."""

    N, K = 136, 1024

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("per_row_b", [False, True], ids=["blocks", "rows"])
    def test_contiguous_and_masked_agree(self, device, per_row_b) -> None:
        more = {"recipe": (1, 1, 128) if per_row_b else None}
        small = contiguous([3, 0, 40], self.N, self.K, device, per_row_b=per_row_b)
        expected = run_contiguous(small, dtype=torch.float32, **more)
        large = contiguous([200, 7, 300], self.N, self.K, device, per_row_b=per_row_b, seed=9)
        large.b = small.b
        for start, count, at in ((0, 3, 150), (128, 40, large.starts[2] + 260)):
            large.a.data.view(torch.uint8)[at : at + count] = small.a.data.view(torch.uint8)[start : start + count]
            large.a.scales[at : at + count] = small.a.scales[start : start + count]
        for psum in (False, True):
            found = run_contiguous(large, psum, torch.float32, **more)
            assert torch.equal(found[150:153], expected[:3])
            at = large.starts[2] + 260
            assert torch.equal(found[at : at + 40], expected[128:168])
        wide = masked([3, 0, 40], 300, self.N, self.K, device, per_row_b)
        wide.b = small.b
        for expert, start, count in ((0, 0, 3), (2, 128, 40)):
            wide.a.data.view(torch.uint8)[expert, :count] = small.a.data.view(torch.uint8)[start : start + count]
            wide.a.scales[expert, :count] = small.a.scales[start : start + count]
        for expected_m in (1, 40, 300):
            out = wide.output(torch.float32)
            deep_gemm.m_grouped_fp8_gemm_nt_masked(wide.a, wide.b, out.tensor, wide.counts, expected_m, **more)
            assert torch.equal(out.tensor[0, :3], expected[:3])
            assert torch.equal(out.tensor[2, :40], expected[128:168])

    @pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
    def test_dense_calls_on_request(self, device, batch_invariant) -> None:
        case = contiguous([300], self.N, 3584, device)
        b = Operand(case.b.data[0], case.b.scales[0])
        expected = case.output(torch.float32).tensor[:300]
        deep_gemm.fp8_gemm_nt(Operand(case.a.data[:300], case.a.scales[:300]), b, expected)
        for first, last in ((0, 1), (5, 21), (17, 150), (299, 300)):
            d = torch.empty((last - first, self.N), device=device)
            deep_gemm.fp8_gemm_nt(Operand(case.a.data[first:last], case.a.scales[first:last]), b, d)
            assert torch.equal(d, expected[first:last]), (first, last)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_garbage_in_one_expert_stays_there(device) -> None:
    """NaN in an expert's real rows and weights reaches no other expert."""
    case = contiguous([5, 40, 130], 136, 256, device)
    case.a.data.view(torch.uint8)[case.indices == 1] = FP8_NAN
    case.b.data.view(torch.uint8)[1] = FP8_NAN
    if not takes_powers_of_two(device):  # which refuses such scales where it can read them
        case.a.scales[case.indices == 1] = float("nan")
        case.b.scales[1] = float("nan")
    case.counts[1] = 0
    for psum in (False, True):
        out = case.output()
        layout = torch.tensor([5, 168, 386], dtype=torch.int32, device=device) if psum else case.indices
        if not psum:
            layout[128:168] = 1
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout, use_psum_layout=psum)
        out.check(complete=False)
        case.check(out.tensor)
        assert out.tensor[128:168].isnan().all()
