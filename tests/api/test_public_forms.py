"""Each public function in the argument forms of DeepGEMM's scripts and clients: positions, keywords, older names."""

from __future__ import annotations

import inspect

import pytest
import torch
from bf16_inputs import matches
from bf16_inputs import values as bf16_values
from devices import FEW
from grouped_inputs import alignment_of, contiguous, masked
from inputs import Operand, ceil_div, mn_major, random_blocks, random_rows, random_values
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import planned, testing, utils

M, N, K = 24, 136, 256

NAMES = {
    deep_gemm: """
        __version__ align bf16_gemm_nn bf16_gemm_nt bf16_gemm_tn bf16_gemm_tt bf16_m_grouped_gemm_nt_masked
        bf16_mega_moe cast_back_from_fp4 cast_back_from_fp8 ceil_div ceil_to_ue8m0 cublaslt_gemm_nn cublaslt_gemm_nt
        cublaslt_gemm_tn cublaslt_gemm_tt einsum fp4_gemm_nt fp8_einsum fp8_fp4_gemm_nn fp8_fp4_gemm_nt
        fp8_fp4_gemm_tn fp8_fp4_gemm_tt fp8_fp4_mega_moe fp8_fp4_mqa_logits fp8_fp4_paged_mqa_logits fp8_gemm_nn
        fp8_gemm_nt fp8_gemm_nt_skip_head_mid fp8_gemm_tn fp8_gemm_tt fp8_m_grouped_gemm_nt_masked
        fp8_mqa_logits fp8_paged_mqa_logits get_k_alignment_for_contiguous_layout
        get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor get_m_alignment_for_contiguous_layout
        get_mk_alignment_for_contiguous_layout get_mn_major_tma_aligned_packed_ue8m0_tensor
        get_mn_major_tma_aligned_tensor get_mqa_logits_metadata get_num_sms get_paged_mqa_logits_metadata get_pdl
        get_symm_buffer_for_mega_moe get_tc_util get_theoretical_mk_alignment_for_contiguous_layout
        get_tma_aligned_size int8_gemm_nt int8_row_sums jit k_grouped_bf16_gemm_tn_contiguous
        k_grouped_fp4_gemm_nt_contiguous
        k_grouped_fp8_gemm_nt_contiguous k_grouped_fp8_gemm_tn_contiguous m_grouped_bf16_gemm_nn_contiguous
        m_grouped_bf16_gemm_nt_contiguous m_grouped_bf16_gemm_nt_masked m_grouped_fp4_gemm_nt_contiguous
        m_grouped_fp4_gemm_nt_masked m_grouped_fp8_fp4_gemm_nn_contiguous m_grouped_fp8_fp4_gemm_nt_contiguous
        m_grouped_fp8_fp4_gemm_nt_masked m_grouped_fp8_gemm_nn_contiguous m_grouped_fp8_gemm_nt_contiguous
        m_grouped_fp8_gemm_nt_masked pack_ue8m0_to_int per_block_cast_to_fp8 per_channel_cast_to_fp8
        per_channel_cast_to_int8 per_token_cast_to_int8
        per_custom_dims_cast_to_fp8 per_token_cast_to_fp4 per_token_cast_to_fp8 set_block_size_multiple_of
        set_ignore_compile_dims set_mk_alignment_for_contiguous_layout set_num_sms set_pdl set_tc_util simulator
        SymmBuffer testing tf32_hc_prenorm_gemm transform_sf_into_required_layout transform_weights_for_mega_moe
        transpose_packed_fp4 unpack_ue8m0_from_int use_deterministic_algorithms utils
    """,
    testing: """
        assert_bitwise_equal bench bench_kineto calc_diff count_bytes get_arch_major ignore_env
        suppress_stdout_stderr test_filter
    """,
    utils: """
        align cast_back_from_fp4 cast_back_from_fp8 ceil_div ceil_to_ue8m0
        get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
        get_mk_alignment_for_contiguous_layout get_mn_major_tma_aligned_packed_ue8m0_tensor
        get_mn_major_tma_aligned_tensor get_tma_aligned_size layout math pack_ue8m0_to_int per_block_cast_to_fp8
        per_channel_cast_to_fp8 per_channel_cast_to_int8 per_custom_dims_cast_to_fp8 per_token_cast_to_fp4
        per_token_cast_to_fp8 per_token_cast_to_int8
        set_mk_alignment_for_contiguous_layout transform_sf_into_required_layout transpose_packed_fp4
        unpack_ue8m0_from_int
    """,
}


@pytest.mark.parametrize("module", NAMES, ids=lambda module: module.__name__)
def test_every_public_name_is_there(module) -> None:
    assert [name for name in NAMES[module].split() if not hasattr(module, name)] == []


def test_the_names_of_utils_are_the_same_objects_at_the_top() -> None:
    assert set(utils.__all__) <= set(deep_gemm.__all__)
    for name in utils.__all__:
        assert getattr(deep_gemm, name) is getattr(utils, name)


@pytest.mark.parametrize("name", planned.__all__)
def test_what_is_not_there_yet_says_what_to_use(name) -> None:
    function = getattr(deep_gemm, name)
    assert function.__name__ == name
    with pytest.raises(NotImplementedError, match=rf"^deep_gemm\.{name} is not there yet: .+\. Use .+\.$"):
        function(torch.ones(1), keyword=None)


def test_the_buffer_is_a_class() -> None:
    """Clients annotate with it."""
    assert inspect.isclass(deep_gemm.SymmBuffer)


def on(device, values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def empty(device, *shape, dtype=torch.bfloat16) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=dtype, device=device)


def transposed(operand: Operand) -> tuple[torch.Tensor, torch.Tensor]:
    """Data and scales of the transpose, both contiguous, as callers hand over a weight in another layout."""
    return operand.data.mT.contiguous(), operand.scales.mT.contiguous()


@pytest.mark.parametrize("device", FEW, indirect=True)
class TestDense:
    @pytest.mark.parametrize("name", ["fp8_gemm", "fp8_fp4_gemm"])
    @pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
    def test_each_layout_by_keyword(self, device, name, layout) -> None:
        a, b = random_rows((32, K), device, 0), random_blocks((N - 8, K), device, 1)
        given_a = tuple(a) if layout[0] == "n" else transposed(a)
        given_b = tuple(b) if layout[1] == "t" else transposed(b)
        d = empty(device, 32, N - 8)
        function = getattr(deep_gemm, f"{name}_{layout}")
        function(given_a, given_b, d, c=None, disable_ue8m0_cast=True, recipe=None, recipe_a=None, recipe_b=None)
        assert_matches(d, product_nt(a, b))

    def test_weight_gradient_in_place(self, device) -> None:
        """Scales per row of both operands; C is D."""
        a, b = random_rows((40, K), device, 0), random_rows((N, K), device, 1)
        d = random_values((40, N), device, 2)
        wanted = product_nt(a, b, d.clone())
        deep_gemm.fp8_fp4_gemm_nt(tuple(a), tuple(b), d, c=d, disable_ue8m0_cast=True, recipe=(1, 1, 128))
        assert_matches(d, wanted)

    def test_all_by_position(self, device) -> None:
        a, b = random_rows((M, K), device, 0), random_blocks((N, K), device, 1)
        d = empty(device, M, N)
        deep_gemm.fp8_gemm_nt(tuple(a), tuple(b), d, None, None, (1, 128), (128, 128), "nk", False)
        assert_matches(d, product_nt(a, b))
        d = empty(device, M, N)
        deep_gemm.fp8_gemm_nt([*a], [*b], d, None, (1, 128, 128))
        assert_matches(d, product_nt(a, b))

    @pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
    def test_bf16(self, device, layout) -> None:
        a, b, c = bf16_values((32, 64), device, 0), bf16_values((40, 64), device, 1), bf16_values((32, 40), device, 2)
        given_a = a if layout[0] == "n" else a.mT.contiguous()
        given_b = b if layout[1] == "t" else b.mT.contiguous()
        d = c.clone()
        getattr(deep_gemm, f"bf16_gemm_{layout}")(given_a, given_b, d, c=d)
        matches(d, a, b, c)
        d = empty(device, 32, 40)
        getattr(deep_gemm, f"bf16_gemm_{layout}")(given_a, given_b, d, None, "mn")
        matches(d, a, b)
        d = empty(device, 32, 40, dtype=torch.float32)
        getattr(deep_gemm, f"cublaslt_gemm_{layout}")(given_a, given_b, d, c=None)
        matches(d, a, b)

    @pytest.mark.parametrize("dims", ["kn", "mkn", "knm", "nmk"])
    def test_compiled_dims_in_any_order(self, device, dims) -> None:
        a, b = random_rows((M, K), device, 0), random_blocks((N, K), device, 1)
        d = empty(device, M, N)
        deep_gemm.fp8_gemm_nt(tuple(a), tuple(b), d, compiled_dims=dims)
        assert_matches(d, product_nt(a, b))

    @pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
    @pytest.mark.parametrize("dims", ["nn", "nkn", "x", "NK", "n k"])
    def test_other_compiled_dims_are_refused(self, device, layout, dims) -> None:
        x = torch.ones((16, 16), dtype=torch.bfloat16, device=device)
        with pytest.raises(ValueError, match=f"must name some of 'm', 'n', 'k', each once, got '{dims}'"):
            getattr(deep_gemm, f"bf16_gemm_{layout}")(x, x, torch.empty_like(x), compiled_dims=dims)


@pytest.mark.parametrize("device", FEW, indirect=True)
class TestExperts:
    @pytest.mark.parametrize("psum", [False, True])
    @pytest.mark.parametrize("layout", ["nt", "nn"])
    def test_contiguous_by_keyword(self, device, layout, psum) -> None:
        case = contiguous([5, 0, 130], N - 8, K, device)
        b = tuple(case.b) if layout == "nt" else transposed(case.b)
        for name in ("fp8", "fp8_fp4"):
            d = empty(device, case.m, N - 8)
            getattr(deep_gemm, f"m_grouped_{name}_gemm_{layout}_contiguous")(
                tuple(case.a),
                b,
                d,
                case.layout(psum),
                disable_ue8m0_cast=True,
                use_psum_layout=psum,
                ensure_zero_padding=False,
                recipe=None,
                recipe_a=(1, 128),
                recipe_b=(128, 128),
            )
            case.check(d)

    def test_alignment_that_suits_the_counts(self, device) -> None:
        """Asked for, set, and used for the layout, as the scripts do before each case."""
        alignment = deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout(int(20 * 1.2))
        with alignment_of(alignment):
            case = contiguous(
                [3, 20, 0, 25], N, K, device, alignment=deep_gemm.get_mk_alignment_for_contiguous_layout()
            )
            d = empty(device, case.m, N)
            deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(
                tuple(case.a), tuple(case.b), d, case.ends, use_psum_layout=True, expected_m_for_psum_layout=24
            )
            case.check(d)

    @pytest.mark.parametrize(
        "name", ["m_grouped_fp8_gemm_nt_masked", "m_grouped_fp8_fp4_gemm_nt_masked", "fp8_m_grouped_gemm_nt_masked"]
    )
    def test_masked(self, device, name) -> None:
        case = masked([5, 0, 40], 48, N, K, device)
        function = getattr(deep_gemm, name)
        recipes = {"recipe": None, "recipe_a": None, "recipe_b": None}
        for arguments, keywords in [
            ((case.counts, 18), {"disable_ue8m0_cast": True, **recipes}),
            ((), {"masked_m": case.counts, "expected_m": 18, "recipe": (1, 128, 128)}),
            ((case.counts, 18, (1, 128, 128), None, None, "nk", False), {}),
        ]:
            d = empty(device, 3, 48, N)
            function(tuple(case.a), tuple(case.b), d, *arguments, **keywords)
            case.check(d)

    @pytest.mark.parametrize("psum", [False, True])
    def test_bf16_contiguous(self, device, psum) -> None:
        a, b = bf16_values((256, 64), device, 0), bf16_values((2, 40, 64), device, 1)
        indices = on(device, [0] * 100 + [-1] * 28 + [1] * 128)
        layout = on(device, [100, 256]) if psum else indices
        for lying_otherwise in (False, True):
            d = empty(device, 256, 40)
            name = f"m_grouped_bf16_gemm_{'nn' if lying_otherwise else 'nt'}_contiguous"
            given = b.mT.contiguous() if lying_otherwise else b
            getattr(deep_gemm, name)(a, given, d, layout, use_psum_layout=psum, ensure_zero_padding=True)
            matches(d[:100], a[:100], b[0])
            matches(d[128:], a[128:], b[1])
        d = empty(device, 256, 40)
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, d, on(device, [100, 256]), "nk", True, True, 128)
        matches(d[:100], a[:100], b[0])

    def test_bf16_masked(self, device) -> None:
        a, b = bf16_values((2, 16, 64), device, 0), bf16_values((2, 40, 64), device, 1)
        for function in (deep_gemm.m_grouped_bf16_gemm_nt_masked, deep_gemm.bf16_m_grouped_gemm_nt_masked):
            d = empty(device, 2, 16, 40)
            function(a, b, d, on(device, [16, 3]), 8)
            matches(d[0], a[0], b[0])
            matches(d[1, :3], a[1, :3], b[1])


@pytest.mark.parametrize("device", FEW, indirect=True)
class TestKGroups:
    KS = (128, 0, 256)

    def check(self, d, c, parts) -> None:
        for group, (a, b) in enumerate(parts):
            assert_matches(d[group], product_nt(a, b, c[group]), f"group {group}")

    def parts(self, device) -> list[tuple[Operand, Operand]]:
        return [(random_rows((40, k), device, k), random_rows((N, k), device, k + 1)) for k in self.KS]

    @pytest.mark.parametrize("older", [False, True])
    def test_tn(self, device, older) -> None:
        parts, ks = self.parts(device), [*self.KS]
        a, b = (
            tuple(torch.cat([part[side][field].mT for part in parts]).contiguous() for field in range(2))
            for side in range(2)
        )
        d = random_values((3, 40, N), device, 3)
        c = d.clone()
        function = deep_gemm.k_grouped_fp8_gemm_tn_contiguous
        if older:
            function(a, b, d, ks=ks, ks_tensor=on(device, ks), c=d)
        else:
            function(a, b, d, ks, on(device, ks), d, recipe=(1, 1, 128), use_psum_layout=False)
        self.check(d, c, parts)

    def test_nt(self, device) -> None:
        """Each group's matrices flattened, one after the other."""
        parts, ks = self.parts(device), [*self.KS]
        a, b = (
            (
                torch.cat([part[side].data.flatten() for part in parts]),
                torch.cat([part[side].scales.mT for part in parts]),
            )
            for side in range(2)
        )
        d = random_values((3, 40, N), device, 3)
        c = d.clone()
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, ks, on(device, ks), d, recipe=(1, 1, 128))
        self.check(d, c, parts)

    def test_psum_without_sizes_on_the_host(self, device) -> None:
        parts, ends = self.parts(device), on(device, [128, 128, 384])
        a, b = (
            tuple(torch.cat([part[side][field].mT for part in parts]).contiguous() for field in range(2))
            for side in range(2)
        )
        for sizes in (None, [], [*self.KS]):
            d = random_values((3, 40, N), device, 3)
            c = d.clone()
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
                a, b, d, sizes, ends, d, recipe=(1, 1, 128), use_psum_layout=True
            )
            self.check(d, c, parts)

    def test_bf16(self, device) -> None:
        ks = [64, 0, 40]
        a, b = bf16_values((104, 32), device, 0), bf16_values((104, 40), device, 1)
        d = random_values((3, 32, 40), device, 2)
        c = d.clone()
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, ks, on(device, ks), d, use_psum_layout=False)
        matches(d[0], a[:64].mT, b[:64].mT, c[0])
        assert torch.equal(d[1], c[1])
        matches(d[2], a[64:].mT, b[64:].mT, c[2])


@pytest.mark.parametrize("device", FEW, indirect=True)
class TestScales:
    def test_layouts_by_position_and_keyword(self, device) -> None:
        sf = random_rows((33, K), device, 0).scales
        for aligned in (
            deep_gemm.get_mn_major_tma_aligned_tensor(sf),
            utils.layout.transform_sf_into_required_layout(sf, 33, K, (1, 128, 128), None, True, True),
            utils.transform_sf_into_required_layout(sf=sf, mn=33, k=K, recipe=(1, 128), psum_layout=None),
        ):
            assert torch.equal(aligned, sf)
            assert aligned.stride() == (1, deep_gemm.get_tma_aligned_size(33, sf.element_size()))
        assert utils.get_mn_major_tma_aligned_packed_ue8m0_tensor(mn_major(utils.ceil_to_ue8m0(sf))).shape == (33, 1)

    def test_casts_feed_a_product(self, device) -> None:
        """Quantised with the helpers as the scripts call them, multiplied, compared with calc_diff."""
        x, weight = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in ((M, K), (N, K)))
        a = utils.per_token_cast_to_fp8(x.to(device, torch.bfloat16), use_ue8m0=False, gran_k=128)
        b = utils.per_block_cast_to_fp8(weight.to(device, torch.bfloat16), use_ue8m0=False, gran_k=128)
        d = empty(device, M, N)
        deep_gemm.fp8_gemm_nt(a, b, d)
        assert testing.calc_diff(d, (x @ weight.T).to(device)) < 1e-3
        assert testing.count_bytes(a, b, d) == M * K + N * K + 4 * (M + ceil_div(N, 128)) * ceil_div(K, 128) + 2 * M * N


@pytest.mark.parametrize("device", FEW, indirect=True)
class TestTransformers:
    """As that library's integration finds the functions, quantises activations and chains an expert's products."""

    def test_linear(self, device) -> None:
        x = bf16_values((21, K), device, 0)
        weight = random_blocks((N, K), device, 1)
        quantised = utils.per_token_cast_to_fp8(x, use_ue8m0=False, gran_k=128)
        d = empty(device, 21, N)
        deep_gemm.fp8_fp4_gemm_nt(quantised, (weight.data, weight.scales.float()), d, recipe=None)
        assert_matches(d, product_nt(Operand(*quantised), weight))

    def test_two_products_of_experts(self, device) -> None:
        """Rows sorted by expert, each expert padded to the alignment; D of the first product is quantised whole."""
        case = contiguous([5, 0, 30], 128, K, device)
        hidden = torch.zeros((case.m, 128), dtype=torch.bfloat16, device=device)
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(
            tuple(case.a), tuple(case.b), hidden, case.indices, recipe=None, use_psum_layout=False
        )
        case.check(hidden)
        act = utils.per_token_cast_to_fp8(hidden, use_ue8m0=False, gran_k=128)
        down = random_blocks((3, N, 128), device, 7)
        out = empty(device, case.m, N)
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(
            act, tuple(down), out, case.indices, recipe=None, use_psum_layout=False
        )
        for expert, (start, count) in enumerate(zip(case.starts, case.counts, strict=True)):
            rows = slice(start, start + count)
            a, b = Operand(act[0][rows], act[1][rows]), Operand(down.data[expert], down.scales[expert])
            assert_matches(out[rows], product_nt(a, b), f"expert {expert}")
