"""The call patterns of the programs that use this API, with tensors laid out as they lay them out."""

from __future__ import annotations

import pytest
import torch
from devices import FEW
from grouped_inputs import FP8_NAN, Contiguous, Masked, contiguous, masked
from inputs import Operand, ceil_div, mn_major, random_blocks, random_rows, random_values
from reference import assert_matches, product_nt

import deep_gemm

pytestmark = pytest.mark.parametrize("device", FEW, indirect=True)

N, K = 136, 384


def garbage_like(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Any bits at all, every seventh element NaN: what uninitialised memory may hold. The same on every device."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 256, (x.numel(), x.element_size()), dtype=torch.uint8, generator=generator)
    words[::7] = 0xFF  # NaN in every float type
    return words.to(x.device).view(x.dtype).view(x.shape)


class TestVllm:
    def test_dense_warm_up_and_serving(self, device) -> None:
        """Row-major slices of one buffer of scales while it warms up, MN-major scales afterwards."""
        b = random_blocks((N, K), device, 1)
        buffer = garbage_like(torch.empty((128, ceil_div(K, 128)), device=device), 2)
        for m in (1, 24, 128):
            a = random_rows((m, K), device, m)
            buffer[:m] = a.scales
            for scales in (buffer[:m], deep_gemm.get_mn_major_tma_aligned_tensor(buffer[:m]), mn_major(a.scales)):
                d = torch.empty((m, N), dtype=torch.bfloat16, device=device)
                deep_gemm.fp8_gemm_nt((a.data, scales), (b.data, b.scales), d, disable_ue8m0_cast=True)
                assert_matches(d, product_nt(a, b))

    def test_masked_under_the_old_name(self, device) -> None:
        """`expected_m` is rounded up to 16; the keyword `disable_ue8m0_cast` comes along."""
        case = masked([3, 0, 20, 16], 64, N, K, device)
        expected_m = min(ceil_div(sum(case.counts.tolist()), 16) * 16, 64)
        out = case.output()
        deep_gemm.fp8_m_grouped_gemm_nt_masked(
            (case.a.data, case.a.scales),
            (case.b.data, case.b.scales),
            out.tensor,
            case.counts,
            expected_m,
            disable_ue8m0_cast=True,
        )
        out.check(complete=False)
        case.check(out.tensor)

    def test_contiguous(self, device) -> None:
        """Expert indices by position, alignment asked for, D a workspace of a larger buffer."""
        assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 128
        case = contiguous([5, 0, 130], N, K, device)
        workspace = torch.full((case.m * N + 64,), float("nan"), dtype=torch.bfloat16, device=device)
        d = workspace[: case.m * N].view(case.m, N)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
            (case.a.data, case.a.scales), (case.b.data, case.b.scales), d, case.indices, disable_ue8m0_cast=True
        )
        case.check(d)
        assert workspace[case.m * N :].isnan().all()

    def test_weights_are_prepared_at_load(self, device) -> None:
        """`transform_sf_into_required_layout` for weights: blocks, with and without groups, by position and keyword."""
        b = random_blocks((N, K), device, 1)
        scales = deep_gemm.transform_sf_into_required_layout(
            sf=b.scales, mn=N, k=K, recipe=(1, 128, 128), num_groups=None, is_sfa=False, disable_ue8m0_cast=True
        )
        a = random_rows((24, K), device, 0)
        d = torch.empty((24, N), dtype=torch.bfloat16, device=device)
        deep_gemm.fp8_gemm_nt((a.data, a.scales), (b.data, scales), d)
        assert_matches(d, product_nt(a, b))
        case = contiguous([5, 130], N, K, device)
        scales = deep_gemm.transform_sf_into_required_layout(
            sf=case.b.scales, mn=N, k=K, recipe=(1, 128, 128), num_groups=2, is_sfa=False, disable_ue8m0_cast=True
        )
        d = torch.empty((case.m, N), dtype=torch.bfloat16, device=device)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous((case.a.data, case.a.scales), (case.b.data, scales), d, case.indices)
        case.check(d)


class TestSglang:
    def test_reads_the_version(self, device) -> None:
        assert int(deep_gemm.__version__.split(".")[0]) >= 0

    @pytest.mark.parametrize("expected_m", [1, 256, 16384])
    def test_warms_up_with_counts_of_zero(self, device, expected_m) -> None:
        experts, max_m = 4, 256
        a = torch.empty((experts, max_m, K), dtype=torch.float8_e4m3fn, device=device)
        b = random_blocks((experts, N, K), device, 1)
        scales = torch.empty((experts, max_m, K // 128), device=device)
        d = torch.full((experts, max_m, N), float("nan"), dtype=torch.bfloat16, device=device)
        counts = torch.zeros(experts, dtype=torch.int32, device=device)
        deep_gemm.m_grouped_fp8_gemm_nt_masked((a, scales), b, d, masked_m=counts, expected_m=expected_m)
        assert d.isnan().all()

    @pytest.mark.parametrize("m", [1, 16, 128, 300])
    def test_warms_up_contiguous_with_one_expert(self, device, m) -> None:
        """Any M, all rows of expert 0, by position; M need not be a multiple of the alignment."""
        a = random_rows((m, K), device, 0)
        b = random_blocks((3, N, K), device, 1)
        d = torch.empty((m, N), dtype=torch.bfloat16, device=device)
        indices = torch.zeros(m, dtype=torch.int32, device=device)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(tuple(a), tuple(b), d, indices)
        assert_matches(d, product_nt(a, Operand(b.data[0], b.scales[0])))

    def test_older_keyword(self, device) -> None:
        case = contiguous([5, 0, 130], N, K, device)
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, m_indices=case.indices)
        case.check(out.tensor)

    def test_settings_around_a_call(self, device) -> None:
        """As it leaves SMs to communication."""
        original = deep_gemm.get_num_sms()
        deep_gemm.set_num_sms(original - 2)
        try:
            assert deep_gemm.get_num_sms() == original - 2
            case = contiguous([5, 0, 130], N, K, device)
            out = case.output()
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
            case.check(out.tensor)
            deep_gemm.set_num_sms(original)
            assert deep_gemm.get_num_sms() == original
        finally:
            deep_gemm.set_num_sms(0)


class TestTransformers:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_fp8_linear(self, device, dtype) -> None:
        """Activations are cast row by row, and D has their dtype."""
        x, b = random_values((21, K), device, 0).to(dtype), random_blocks((N, K), device, 1)
        a = deep_gemm.utils.per_token_cast_to_fp8(x, use_ue8m0=False)
        d = torch.empty((21, N), dtype=dtype, device=device)
        deep_gemm.fp8_fp4_gemm_nt(a, b, d, recipe=None)
        assert_matches(d, product_nt(a, b))
        assert deep_gemm.testing.calc_diff(d, product_nt(x, b).value) < 1e-3


class TestDeepEP:
    def low_latency(self, device, counts: list[int], tokens: int) -> Masked:
        """FP8 [E, tokens, hidden]; scales whose last two dimensions are column-major; garbage in all other rows."""
        case = masked(counts, tokens, N, K, device)
        data = garbage_like(case.a.data, 3)
        packed = garbage_like(torch.empty((len(counts), K // 128, tokens), device=device), 4)
        scales = packed.transpose(1, 2)
        for expert, count in enumerate(counts):
            data[expert, :count] = case.a.data[expert, :count]
            scales[expert, :count] = case.a.scales[expert, :count]
        case.a = Operand(data, scales)
        return case

    @pytest.mark.parametrize("tokens", [64, 130])
    @pytest.mark.parametrize("expected_m", [1, 16, 500])
    def test_low_latency_dispatch(self, device, tokens, expected_m) -> None:
        """130 tokens: columns of scales that do not start at multiples of 16 bytes."""
        case = self.low_latency(device, [3, 0, 64, 1], tokens)
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_masked(tuple(case.a), tuple(case.b), out.tensor, case.counts, expected_m)
        out.check(complete=False)
        case.check(out.tensor)

    def test_low_latency_feeds_a_second_product(self, device) -> None:
        """Gate and up projection, activation, down projection: D's garbage rows become A's."""
        case = self.low_latency(device, [3, 0, 64, 1], 64)
        hidden = torch.empty((4, 64, 256), dtype=torch.bfloat16, device=device)
        case.b = random_blocks((4, 256, K), device, 5)
        deep_gemm.m_grouped_fp8_gemm_nt_masked(tuple(case.a), tuple(case.b), hidden, case.counts, 16)
        case.check(hidden)
        amax = hidden.float().view(4, 64, 2, 128).abs().amax(-1).clamp(min=1e-4)
        scales = amax / 448
        data = (hidden.float().view(4, 64, 2, 128) / scales[..., None]).view(4, 64, 256).to(torch.float8_e4m3fn)
        second = Masked(Operand(data, scales), random_blocks((4, N, 256), device, 6), case.counts)
        out = second.output()
        deep_gemm.m_grouped_fp8_gemm_nt_masked(tuple(second.a), tuple(second.b), out.tensor, second.counts, 16)
        out.check(complete=False)
        second.check(out.tensor)

    def expanded(self, device, counts: list[int]) -> Contiguous:
        """V2: one buffer for the worst case; experts aligned; garbage in the padding and behind the last expert."""
        case = contiguous(counts, N, K, device, extra_rows=300)
        padding = case.indices < 0
        data, scales = garbage_like(case.a.data, 3), garbage_like(case.a.scales, 4)
        data[~padding], scales[~padding] = case.a.data[~padding], case.a.scales[~padding]
        case.a = Operand(data, scales)
        return case

    @pytest.mark.parametrize("expected_m", [None, 2, 64])
    def test_v2_psum_layout(self, device, expected_m) -> None:
        case = self.expanded(device, [3, 0, 130, 1])
        out = case.output()
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
            tuple(case.a),
            tuple(case.b),
            out.tensor,
            case.ends,
            use_psum_layout=True,
            expected_m_for_psum_layout=expected_m,
        )
        out.check(complete=False)
        case.check(out.tensor)
        padding = case.indices < 0
        assert (out.tensor[: case.m - 300][padding[: case.m - 300]] == 0).all()
        assert out.tensor[case.m - 300 :].isnan().all()

    def test_garbage_holds_nan(self, device) -> None:
        """What the tests above rest on."""
        case = self.low_latency(device, [3, 0, 64, 1], 64)
        assert (case.a.data[1].view(torch.uint8) & 0x7F == FP8_NAN).any()
        assert case.a.scales[1].isnan().any()


class TestMegatron:
    """Weight gradients: both operands quantised per row, D in FP32 and added to."""

    def test_accumulates_over_micro_batches(self, device) -> None:
        d = random_values((72, N), device, 3)
        start, total, magnitude = d.clone(), d.double(), d.double().abs()
        for step in range(3):
            a, b = random_rows((72, K), device, 10 + step), random_rows((N, K), device, 20 + step)
            deep_gemm.fp8_gemm_nt(tuple(a), tuple(b), d, c=d, recipe=(1, 1, 128))
            product = product_nt(a, b)
            total, magnitude = total + product.value, magnitude + product.magnitude
        assert not torch.equal(d, start)
        assert_matches(d, type(product)(total, magnitude))

    def test_fp4_names_serve_fp8(self, device) -> None:
        a, b = random_rows((40, K), device, 0), random_blocks((N, K), device, 1)
        d = torch.empty((40, N), dtype=torch.bfloat16, device=device)
        deep_gemm.fp8_fp4_gemm_nt(tuple(a), tuple(b), d, recipe_a=(1, 128), recipe_b=(128, 128))
        assert_matches(d, product_nt(a, b))
        case = contiguous([5, 130], N, K, device)
        out = case.output()
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
        case.check(out.tensor)
        small = masked([5, 0], 10, N, K, device)
        out = small.output()
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(small.a, small.b, out.tensor, small.counts, 5)
        small.check(out.tensor)
