"""Sums of INT8 weights' rows, which zero points of activations want: made once, or in each call."""

from __future__ import annotations

import pytest
import torch
import torch.fx.experimental.proxy_tensor
from candidates import forced_tile, least_rows
from devices import ONE_OF_EACH_ARCH
from inputs import GuardedOutput
from int8_inputs import operands, scales, values, wanted
from test_asymmetric import packed, shifted, zero_points
from test_int8_grouped import COUNTS, EVERY_GROUPING, Experts

import deep_gemm
from deep_gemm import PackedWeights


class TestSumsMadeAhead:
    """`b_sums` and `w_sums`: products read them, and no longer add up the weights' rows."""

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("lies", ["rows", "between_16_bytes", "n_major", "experts", "expert_columns"])
    @pytest.mark.parametrize(("n", "k"), [(9, 2704), (75, 400), (130, 21)])
    def test_are_exact(self, device, lies, n, k) -> None:
        if k % 16 != 0 and lies in ("rows", "between_16_bytes", "experts"):
            k = 144  # rows that must be copied have whole pieces of 16
        b = values((3, n, k) if "expert" in lies else (n, k), device, 7)
        if lies == "between_16_bytes":
            b = torch.zeros((n, k + 3), dtype=torch.int8, device=device)[:, :k].copy_(b)
        if lies in ("n_major", "expert_columns"):
            b = b.mT.contiguous().mT
        sums = deep_gemm.int8_row_sums(b)
        assert sums.dtype == torch.int32
        assert torch.equal(sums, b.sum(-1, dtype=torch.int32))

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("k", [16, 130, 2064])
    def test_of_part_of_a_row(self, device, k) -> None:
        """Nothing behind K is read, nor between rows."""
        whole = values((5, 2064), device, 8)
        b = whole[:, :k]
        assert torch.equal(deep_gemm.int8_row_sums(b), b.sum(-1, dtype=torch.int32))

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("rows", [1, 128])
    @pytest.mark.parametrize("experts", [False, True])
    @pytest.mark.parametrize("k", [130, 2704])
    def test_with_scales_of_groups(self, device, experts, rows, k) -> None:
        n = 139
        shape = (2, n, k) if experts else (n, k)
        k_groups = -(-k // 128)
        count = -(-n // rows) * k_groups * (2 if experts else 1)
        scale = scales(count, device, 2).view(*shape[:-2], k_groups, -1).mT
        b = values((*shape[:-1], 2704), device, 7)[..., :k]
        sums = deep_gemm.int8_row_sums(b, scale, (1, rows, 128))
        every = scale.double().repeat_interleave(rows, -2)[..., :n, :].repeat_interleave(128, -1)[..., :k]
        exact = b.double() * every
        assert sums.dtype == torch.float32
        assert ((sums.double() - exact.sum(-1)).abs() <= 1e-6 * exact.abs().sum(-1)).all()

    def test_of_nothing_are_zero(self) -> None:
        assert torch.equal(deep_gemm.int8_row_sums(torch.empty(3, 0, dtype=torch.int8)), torch.zeros(3).int())
        assert deep_gemm.int8_row_sums(torch.empty(2, 0, 16, dtype=torch.int8)).shape == (2, 0)

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize(("m", "n", "k"), [(1, 75, 400), (129, 136, 272)])
    @pytest.mark.parametrize("swapped", [False, True])
    def test_are_what_a_product_subtracts(self, device, m, n, k, swapped) -> None:
        """As given, even if they are other weights' (here each row's is one more)."""
        a, b = operands(m, n, k, device)
        zeros, scale_a, scale_b = zero_points(m, device), scales(m, device, 1), scales(n, device, 2)
        sums = deep_gemm.int8_row_sums(b) + 1
        out = GuardedOutput((m, n), torch.float32, device)
        with forced_tile(device, (m, n, k), swapped, least_rows(device), 32):
            deep_gemm.int8_gemm_nt((a, scale_a, zeros), (b, scale_b), out.tensor, b_sums=sums)
        out.check()
        one_more = (
            torch.cat([a.int() - zeros[:, None], -zeros[:, None]], 1),
            torch.cat([b, torch.ones_like(b[:, :1])], 1),
        )
        assert torch.equal(out.tensor, wanted(one_more[0], scale_a, one_more[1], scale_b, torch.float32))

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @pytest.mark.parametrize("rows", [None, 1, 128])
    def test_leave_the_same_bits(self, device, rows) -> None:
        m, n, k = 7, 136, 400
        a, b = operands(m, n, k, device)
        shape = (n,) if rows is None else (-(-n // rows), 4)
        weights = b, scales(shape[0] * (4 if rows else 1), device, 2).view(shape)
        recipe = None if rows is None else (1, rows, 128)
        sums = deep_gemm.int8_row_sums(b) if rows is None else deep_gemm.int8_row_sums(*weights, recipe)
        tokens = a, scales(m, device, 1), zero_points(m, device)
        want, found = torch.zeros(m, n, device=device), torch.zeros(m, n, device=device)
        deep_gemm.int8_gemm_nt(tokens, weights, want, recipe=recipe)
        deep_gemm.int8_gemm_nt(tokens, weights, found, recipe=recipe, b_sums=sums)
        assert torch.equal(found, want)

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
    @EVERY_GROUPING
    def test_of_experts(self, device, grouping) -> None:
        n, k = 75, 272
        experts = Experts.make(grouping, n, k, device)
        rows = len(experts.a)
        zeros, of_tokens = zero_points(rows, device), scales(rows, device, 1)
        sums = torch.full((len(COUNTS), n + 5), 99, dtype=torch.int32, device=device)[:, :n]
        sums.copy_(deep_gemm.int8_row_sums(experts.w))
        out = experts.output(torch.float32)
        experts.run(of_tokens, 0.5, out.tensor, zeros=zeros, w_sums=sums)
        want = experts.output(torch.float32)
        experts.run(of_tokens, 0.5, want.tensor, zeros=zeros)
        experts.check(out, lambda expert, rows: want.tensor[rows])

    def test_are_not_read_without_zero_points(self) -> None:
        a, b = operands(5, 24, 128, torch.device("cpu"))
        want, found = torch.zeros(5, 24), torch.zeros(5, 24)
        deep_gemm.int8_gemm_nt((a, 0.5), (b, 2.0), want)
        deep_gemm.int8_gemm_nt((a, 0.5), (b, 2.0), found, b_sums=torch.full((24,), 77, dtype=torch.int32))
        assert torch.equal(found, want)

    def test_where_k_is_split_parts_have_their_own(self) -> None:
        k = 65808
        a, b = torch.full((1, k), 127, dtype=torch.int8), torch.full((8, k), -128, dtype=torch.int8)
        want, found = torch.zeros(1, 8), torch.zeros(1, 8)
        deep_gemm.int8_gemm_nt((a, 0.5, -128), (b, 1.0), want)
        deep_gemm.int8_gemm_nt((a, 0.5, -128), (b, 1.0), found, b_sums=deep_gemm.int8_row_sums(b))
        assert torch.equal(found, want)

    @pytest.mark.parametrize(
        ("error", "match", "sums"),
        [
            (TypeError, "b_sums must be int32 where b's scales are for all of K, got float32", torch.zeros(24)),
            (
                ValueError,
                r"b_sums must be \[N\] = \[24\], a sum for each row of b, got shape \[1, 24\]",
                torch.zeros(1, 24).int(),
            ),
            (ValueError, r"b_sums must be \[N\] = \[24\], .* got shape \[23\]", torch.zeros(23).int()),
            (ValueError, "b_sums must have N contiguous, but their strides are", torch.zeros(48).int()[::2]),
            (TypeError, "b_sums must be a tensor or None, got 3", 3),
        ],
    )
    def test_wrong_ones_are_refused(self, error, match, sums) -> None:
        a, b = operands(16, 24, 256, torch.device("cpu"))
        d = GuardedOutput((16, 24), torch.float32, "cpu")
        for tokens in ((a, 1.0, 3), (a, 1.0)):
            with pytest.raises(error, match=match):
                deep_gemm.int8_gemm_nt(tokens, (b, 1.0), d.tensor, b_sums=sums)
        d.assert_untouched()

    def test_wrong_ones_of_experts_are_refused(self) -> None:
        a, w = values((2, 8, 128), "cpu", 0), values((2, 24, 128), "cpu", 1)
        d, counts = torch.zeros(2, 8, 24), torch.tensor([1, 2], dtype=torch.int32)
        with pytest.raises(ValueError, match=r"w_sums must be \[G, N\] = \[2, 24\], .* got shape \[24\]"):
            deep_gemm.m_grouped_int8_gemm_nt_masked((a, 1.0, 3), (w, 1.0), d, counts, 2, w_sums=torch.zeros(24).int())

    def test_may_not_be_d(self) -> None:
        a, b = operands(1, 24, 128, torch.device("cpu"))
        d = torch.zeros(1, 24)
        with pytest.raises(ValueError, match=r"d.*b_sums"):
            deep_gemm.int8_gemm_nt((a, 1.0, 3), (b, 1.0), d, b_sums=d.view(torch.int32)[0])

    @pytest.mark.parametrize(
        ("error", "match", "arguments"),
        [
            (TypeError, "b must be int8, got float32", (torch.zeros(3, 16),)),
            (ValueError, r"b must be \[N, K\] or \[G, N, K\], got shape \[16\]", (torch.zeros(16).char(),)),
            (
                ValueError,
                "scales must be None where recipe is None: sums of integers have none",
                (torch.zeros(3, 16).char(), torch.ones(3, 1)),
            ),
            (
                ValueError,
                "scales must be there where recipe is given",
                (torch.zeros(3, 16).char(), None, (1, 1, 128)),
            ),
            (
                ValueError,
                r"scales must be \[3, 1\] \(one float32 per row and 128 of K of b\), got shape \[3, 2\]",
                (torch.zeros(3, 16).char(), torch.ones(3, 2), (1, 1, 128)),
            ),
        ],
    )
    def test_of_wrong_weights_are_refused(self, error, match, arguments) -> None:
        with pytest.raises(error, match=match):
            deep_gemm.int8_row_sums(*arguments)

    def test_in_traced_programs(self) -> None:
        a, b = operands(5, 24, 128, torch.device("cpu"))
        zeros = zero_points(5, torch.device("cpu"))

        def run(b: torch.Tensor) -> torch.Tensor:
            d = torch.zeros(5, 24)
            deep_gemm.int8_gemm_nt((a, 0.5, zeros), (b, 2.0), d, b_sums=deep_gemm.int8_row_sums(b))
            return d

        traced = torch.fx.experimental.proxy_tensor.make_fx(run)(b)
        names = [str(node.target) for node in traced.graph.nodes]
        assert "deep_gemm_jit.int8_row_sums.default" in names
        assert "deep_gemm_jit.int8_gemm_nt.default" in names
        other = values((24, 128), "cpu", 9)
        assert torch.equal(traced(other), wanted(shifted(a, zeros), 0.5, other, 2.0, torch.float32))


class TestSumsOfPackedRows:
    """They follow what becomes of the weights."""

    @pytest.mark.parametrize("group_size", [None, 128])
    def test_parts_have_their_own(self, group_size) -> None:
        w, codes, every = packed(group_size, (2, 192, 512))

        def want(part: PackedWeights, rows: slice, columns: slice) -> None:
            factor = 16 if group_size is None else every[:, rows, columns]
            sums = (codes[:, rows, columns].double() * factor).sum(-1)
            assert part.sums is not None
            torch.testing.assert_close(part.sums[:, : sums.shape[1]].double(), sums, rtol=1e-6, atol=1e-5)
            assert not part.sums[:, sums.shape[1] :].any()

        everything = slice(None)
        want(w, everything, everything)
        want(w.slice_n(64, 128), slice(64, 128), everything)
        want(w.slice_k(128, 512), everything, slice(128, 512))
        assert w[1].sums.data_ptr() == w.sums[1].data_ptr()
        assert torch.equal(PackedWeights.from_state_dict(w.state_dict()).sums, w.sums)
        other, _, _ = packed(group_size, (192, 512))
        w[0] = other
        assert torch.equal(w.sums[0], other.sums[0])

    def test_weights_without_them_are_refused(self) -> None:
        """As an earlier release has packed them."""
        w, _, _ = packed(None, (24, 128))
        tensors, form = w.tensors()
        form = {**form, "tensors": [name for name in form["tensors"] if name != "sums"]}
        older = PackedWeights.from_tensors(tensors[:-1], form)
        d = GuardedOutput((3, 24), torch.float32, "cpu")
        a = values((3, 128), "cpu", 0)
        with pytest.raises(ValueError, match=r"w has no sums of its rows, .* pack it anew"):
            deep_gemm.int8_int4_gemm_nt((a, 1.0, 3), older, d.tensor)
        d.assert_untouched()
        deep_gemm.int8_int4_gemm_nt((a, 1.0), older, d.tensor)
        d.check()
