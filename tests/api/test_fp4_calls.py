"""Products of FP4 with FP4: the forms that they take, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from devices import on_simulator
from fp4_operands import assert_near, operand, recipe
from inputs import GuardedOutput

import deep_gemm

SM100 = on_simulator("any", arch="sm100")
ELSEWHERE = [*on_simulator("any"), *on_simulator("any", arch="sm80")]
M, N, K = 40, 72, 96


@pytest.mark.parametrize("device", ELSEWHERE, indirect=True)
def test_other_gpus_refuse_and_name_what_they_have(device) -> None:
    a, b = operand("mxfp4", M, K, 1), operand("mxfp4", N, K, 2)
    d = GuardedOutput((M, N), torch.float32, device)
    with pytest.raises(TypeError, match=r"SM120\) only, but this is sm_\w+: fp8_fp4 and bf16_fp4 functions"):
        deep_gemm.fp4_gemm_nt(a.pair, b.pair, d.tensor)
    stacked = tuple(x[None] for x in b.pair)
    with pytest.raises(TypeError, match=r"SM120\) only"):
        deep_gemm.m_grouped_fp4_gemm_nt_contiguous(a.pair, stacked, d.tensor, torch.zeros(M, dtype=torch.int32))
    with pytest.raises(TypeError, match=r"SM120\) only"):
        deep_gemm.m_grouped_fp4_gemm_nt_masked(
            tuple(x[None] for x in a.pair), stacked, d.tensor[None], torch.tensor([M], dtype=torch.int32), M
        )
    flat = [(x.codes.flatten(), x.pair[1]) for x in (a, b)]
    with pytest.raises(TypeError, match=r"SM120\) only"):
        deep_gemm.k_grouped_fp4_gemm_nt_contiguous(*flat, d.tensor[None], [K], torch.tensor([K], dtype=torch.int32))
    d.assert_untouched()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float4_e2m1fn_x2])
@pytest.mark.parametrize("kind", ["mxfp4", "nvfp4"])
@pytest.mark.parametrize("device", SM100, indirect=True)
def test_codes_and_scales_may_be_plain_bytes(device, kind, dtype) -> None:
    a, b = operand(kind, M, K, 1), operand(kind, N, K, 2)
    d = GuardedOutput((M, N), torch.float32, device)
    a_pair, b_pair = ((x.codes.view(dtype), x.scales) for x in (a, b))
    deep_gemm.fp4_gemm_nt(a_pair, b_pair, d.tensor, recipe=recipe(kind))
    d.check()
    assert_near(d.tensor, a.exact, b.exact)


@pytest.mark.parametrize("device", SM100, indirect=True)
def test_what_cannot_be_right_is_refused(device) -> None:
    a, b = operand("mxfp4", M, K, 1), operand("mxfp4", N, K, 2)
    nv_a, nv = operand("nvfp4", M, K, 1), operand("nvfp4", N, K, 2)
    d = GuardedOutput((M, N), torch.float32, device)
    (a_codes, a_scales), (b_codes, b_scales) = a.pair, b.pair
    float_codes = b_codes.float()
    wide = torch.zeros((N, K // 2 + 1), dtype=torch.int8)
    cases = [
        ((a.pair, nv.pair), {}, TypeError, r"b's scales must be int32 \(packed UE8M0 exponents\).* got float8_e4m3fn"),
        ((nv_a.pair, b.pair), {}, TypeError, r"b's scales must be float8_e4m3fn, or int32 of four of them each"),
        (((a_codes, a_scales), (float_codes, b_scales)), {}, TypeError, r"b must be int8, of two E2M1 codes each"),
        (((a_codes.float(), a_scales), b.pair), {}, TypeError, r"a must be int8, of two E2M1 codes each"),
        ((a.pair, (wide, b_scales)), {}, ValueError, r"b has K=98 but a has K=96"),
        ((a.pair, (b_codes, b_scales[:, 1:])), {}, ValueError, r"b's scales must be \[72, 3\]"),
        (
            (a.pair, (b_codes.T.contiguous().T, b_scales)),
            {},
            ValueError,
            r"b must have K contiguous, two codes a byte, got",
        ),
        ((a.pair, b.pair), {"recipe": (1, 1, 128)}, ValueError, r"recipe \(1, 1, 32\), or 16"),
        ((a.pair, b.pair), {"recipe": (1, 128, 32)}, ValueError, r"both alike, but the recipe says \(1, 32\) and"),
        ((a.pair, b.pair), {"recipe_a": (1, 32), "recipe_b": (1, 16)}, ValueError, r"both alike"),
        ((a.pair, b.pair), {"recipe_a": (1, 32)}, ValueError, r"go together"),
        ((a.pair, b.pair), {"recipe": (1, 1, 32), "recipe_a": (1, 32)}, ValueError, r"not both"),
    ]
    for operands, keywords, error, text in cases:
        with pytest.raises(error, match=text):
            deep_gemm.fp4_gemm_nt(*operands, d.tensor, **keywords)
    scales = torch.full((M, K // 32), 0.3)
    with pytest.raises(
        ValueError, match=r"a's scales must be powers of two .*per_token_cast_to_fp4\(x, use_ue8m0=True, "
    ):
        deep_gemm.fp4_gemm_nt((a_codes, scales), b.pair, d.tensor)
    d.assert_untouched()


@pytest.mark.parametrize("device", SM100, indirect=True)
def test_k_groups_are_multiples_of_32(device) -> None:
    a, b = operand("nvfp4", M, 48, 1), operand("nvfp4", N, 48, 2)
    d = GuardedOutput((1, M, N), torch.float32, device)
    pairs = ((x.codes.flatten(), x.pair[1]) for x in (a, b))
    with pytest.raises(ValueError, match=r"each group's K must be a multiple of 32, but ks_cpu\[0\] is 48: pad"):
        deep_gemm.k_grouped_fp4_gemm_nt_contiguous(*pairs, d.tensor, [48], torch.tensor([48], dtype=torch.int32))
    a, b = operand("nvfp4", M, 64, 1), operand("nvfp4", N, 64, 2)
    pairs = ((x.codes, x.pair[1]) for x in (a, b))
    with pytest.raises(ValueError, match=r"a must be the groups' matrices \[M, k_g / 2\] flattened .*, 40 \* 32"):
        deep_gemm.k_grouped_fp4_gemm_nt_contiguous(*pairs, d.tensor, [64], torch.tensor([64], dtype=torch.int32))
    d.assert_untouched()


@pytest.mark.parametrize("device", SM100, indirect=True)
def test_no_k_leaves_c_or_zero(device) -> None:
    a, b = operand("mxfp4", M, 0, 1), operand("mxfp4", N, 0, 2)
    d, c = torch.full((M, N), 7.0), torch.ones((M, N))
    deep_gemm.fp4_gemm_nt(a.pair, b.pair, d, alpha=2.0)
    assert not d.any()
    deep_gemm.fp4_gemm_nt(a.pair, b.pair, d, c, alpha=2.0)
    assert torch.equal(d, c)


@pytest.mark.parametrize("alpha", [None, 2.0, torch.tensor(0.5)], ids=str)
@pytest.mark.parametrize("device", SM100, indirect=True)
def test_compiled_as_one_graph(device, alpha) -> None:
    def step(a_codes, a_scales, b_codes, b_scales, alpha):
        d = torch.empty((M, N))
        deep_gemm.fp4_gemm_nt((a_codes, a_scales), (b_codes, b_scales), d, alpha=alpha)
        return d * 2

    a, b = operand("nvfp4", M, K, 1), operand("nvfp4", N, K, 2)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert_near(compiled(*a.pair, *b.pair, alpha), a.exact, b.exact, 2 * (1 if alpha is None else float(alpha)))
    assert torch.equal(compiled(*a.pair, *b.pair, alpha), step(*a.pair, *b.pair, alpha))


@pytest.mark.parametrize("kind", ["mxfp4", "nvfp4"])
@pytest.mark.parametrize("device", SM100, indirect=True)
def test_bits_of_a_row_do_not_depend_on_m_where_batch_invariance_is_set(device, kind) -> None:
    long_k = 2048
    a, b = operand(kind, 136, long_k, 1), operand(kind, N, long_k, 2)
    rows = {}
    deep_gemm.set_batch_invariant(True)
    try:
        for m in (1, 40, 136):
            rows[m] = torch.empty((m, N))
            deep_gemm.fp4_gemm_nt(tuple(x[:m] for x in a.pair), b.pair, rows[m])
    finally:
        deep_gemm.set_batch_invariant(False)
    assert torch.equal(rows[136][:40], rows[40])
    assert torch.equal(rows[136][:1], rows[1])
