"""`alpha=` and `epilogue=`: None and Identity change no bit, Alpha multiplies the complete sum in FP32."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from batched_inputs import FORMS, bf16_batch, laid_out
from devices import EACH_ARCH, ONE_OF_EACH_ARCH, TAKE_PACKED, on_simulator
from epilogue_products import PRODUCTS, K, M, N, bf16, fp8, real_rows
from grouped_inputs import alignment_of
from inputs import GuardedOutput, random_values
from packed_inputs import random

import deep_gemm
from deep_gemm.epilogue import (
    Alpha,
    BF16StochasticRounding,
    Chain,
    Epilogue,
    Identity,
    RowScale,
)

ALPHA = -0.3125e-3 / 7  # no power of two


@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("product", PRODUCTS)
def test_alpha_multiplies_the_complete_sum(device, product) -> None:
    """To the bit, as the sum is FP32 and so is D. What is not written stays, padding becomes zero."""
    with alignment_of(16):
        shape, call = PRODUCTS[product](device)
        plain, same, scaled = (GuardedOutput(shape, torch.float32, device) for _ in range(3))
        call(plain.tensor)
        call(same.tensor, epilogue=Identity())
        call(scaled.tensor, epilogue=Alpha(ALPHA))
    for out in (plain, same, scaled):
        out.check(complete=False)
    found = [real_rows(product, out.tensor) for out in (plain, same, scaled)]
    assert found[0].isfinite().all()
    assert found[0].any()
    assert torch.equal(found[1], found[0])
    assert torch.equal(found[2], found[0] * torch.tensor(ALPHA, dtype=torch.float32, device=device))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("product", ["fp8_nt", "bf16_tn", "einsum", "bf16 K groups"])
def test_c_is_added_behind_alpha(device, product) -> None:
    shape, call = PRODUCTS[product](device)
    plain, d = torch.empty(shape, device=device), GuardedOutput(shape, torch.float32, device)
    call(plain)
    c = random_values(shape, device, 5)
    call(d.tensor, c=c, epilogue=Alpha(ALPHA))
    d.check()
    assert torch.allclose(d.tensor.double(), c.double() + ALPHA * plain.double(), rtol=1e-6, atol=1e-6)
    in_place = c.clone()
    call(in_place, c=in_place, epilogue=Alpha(ALPHA))
    assert torch.allclose(in_place, d.tensor, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("product", ["fp8_nn", "bf16_nt"])
def test_one_rounding(device, product, dtype) -> None:
    shape, call = PRODUCTS[product](device)
    wide, d = torch.empty(shape, device=device), GuardedOutput(shape, dtype, device)
    call(wide, alpha=0.3)
    call(d.tensor, alpha=0.3)
    d.check()
    assert torch.equal(d.tensor, wide.to(dtype))


@pytest.mark.parametrize("product", PRODUCTS)
def test_what_is_no_epilogue_is_refused_before_anything_is_written(product) -> None:
    device = torch.device("cpu")
    shape, call = PRODUCTS[product](device)
    d = torch.full(shape, float("nan"))
    with pytest.raises(TypeError, match=r"epilogue must be an Epilogue of deep_gemm\.epilogue or None, got 2"):
        call(d, epilogue=2)
    assert d.isnan().all()


def test_alpha_and_an_epilogue_exclude_each_other() -> None:
    _, call = PRODUCTS["bf16_nt"](torch.device("cpu"))
    for epilogue in (Identity(), Alpha(2)):
        with pytest.raises(ValueError, match="alpha must be None where there is an epilogue"):
            call(torch.empty(M, N), alpha=1.0, epilogue=epilogue)


@pytest.mark.parametrize("wrong", ["2", 1e39, torch.ones(1), None])
def test_alpha_is_a_number(wrong) -> None:
    with pytest.raises((TypeError, ValueError), match="alpha must be a number"):
        Alpha(wrong)
    if wrong is not None:
        _, call = PRODUCTS["fp8_nt"](torch.device("cpu"))
        with pytest.raises((TypeError, ValueError), match="alpha must be a number"):
            call(torch.empty(M, N), alpha=wrong)


def test_the_place_of_use_cublaslt_in_einsum() -> None:
    """2.6 has that bool there, 2.8 the epilogue."""
    a, b = bf16(torch.device("cpu"), 5, 3, 64), bf16(torch.device("cpu"), 3, 40, 64)
    d, wanted = torch.empty(5, 3, 40), torch.empty(5, 3, 40)
    for given, factor in ((False, 1), (None, 1), (Identity(), 1), (Alpha(0.5), 0.5), (True, 1)):
        deep_gemm.einsum("bhr,hdr->bhd", a, b, wanted)
        deep_gemm.einsum("bhr,hdr->bhd", a, b, d, None, given)
        assert torch.allclose(d, factor * wanted, rtol=1e-5, atol=1e-5)


def test_the_sum_over_a_batch_takes_none() -> None:
    a = bf16(torch.device("cpu"), 2, 16, 64)
    with pytest.raises(ValueError, match="takes no alpha"):
        deep_gemm.einsum("bmk,bnk->mn", a, a, torch.empty(16, 16), epilogue=Alpha(2))


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
def test_mxfp4_weights_on_blackwell(device) -> None:
    a, weights = fp8(device, M, K), random_values((N, K), device, 9)
    b = deep_gemm.utils.per_token_cast_to_fp4(weights, use_ue8m0=True, gran_k=32)
    plain, d = torch.empty(M, N), torch.empty(M, N)
    deep_gemm.fp8_fp4_gemm_nt(a, b, plain, recipe_a=(1, 128), recipe_b=(1, 32))
    deep_gemm.fp8_fp4_gemm_nt(a, b, d, recipe_a=(1, 128), recipe_b=(1, 32), alpha=ALPHA)
    assert torch.equal(d, plain * torch.tensor(ALPHA))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("grouping", ["dense", "contiguous", "masked"])
def test_packed_weights(device, grouping, far) -> None:
    """Of exponents near to each other, which go into the weights, and far from each other."""
    exponents = torch.arange(2 * N * K // 32).view(2, N, K // 32) % (29 if far else 2) - 14
    codes, scales = random((2, N, K), 0, 15).to(device, torch.int8), torch.exp2(exponents.float()).to(device)
    packing: Any = {"element": "e2m1", "activations": "fp8", "group_size": 32}
    token_scales = torch.exp2(random((M, K // 128), -3, 0).float()).to(device)
    a = random_values((M, K), device, 0).to(torch.float8_e4m3fn), token_scales
    if grouping == "dense":
        w = deep_gemm.pack_weights(codes[0], scales[0], **packing)
        shape, call = (M, N), functools.partial(deep_gemm.fp8_fp4_gemm_nt, a, w)
    else:
        w = deep_gemm.pack_weights(codes, scales, **packing)
        layout = torch.tensor([20, M], dtype=torch.int32, device=device)
        shape, call = (M, N), functools.partial(_in_psum_layout, a, w, layout)
    if grouping == "masked":
        both = tuple(part.view(2, M // 2, -1) for part in a)
        counts = torch.full((2,), M // 2, dtype=torch.int32, device=device)
        shape = (2, M // 2, N)
        call = functools.partial(_masked, both, w, counts)
    plain, d = torch.empty(shape, device=device), GuardedOutput(shape, torch.float32, device)
    with alignment_of(16):
        call(plain)
        call(d.tensor, epilogue=Alpha(ALPHA))
    d.check()
    assert torch.equal(d.tensor, plain * torch.tensor(ALPHA, device=device))


def _in_psum_layout(a: Any, w: Any, layout: torch.Tensor, d: torch.Tensor, **more: Any) -> None:
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a, w, d, layout, use_psum_layout=True, **more)


def _masked(a: Any, w: Any, counts: torch.Tensor, d: torch.Tensor, **more: Any) -> None:
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(a, w, d, counts, M // 2, **more)


def test_compiled_programs_have_it() -> None:
    a, b = bf16(torch.device("cpu"), M, K), bf16(torch.device("cpu"), N, K)

    def run(a: torch.Tensor, epilogue: Epilogue | None) -> torch.Tensor:
        d = torch.zeros(M, N)
        deep_gemm.bf16_gemm_nt(a, b, d, epilogue=epilogue)
        return d

    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda a: run(a, Alpha(0.5)))(a)
    assert torch.equal(traced(a), 0.5 * run(a, None))


ROWS_OF_D = [name for name in PRODUCTS if "K groups" not in name]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("chained", [False, True], ids=["alone", "behind alpha"])
@pytest.mark.parametrize("product", ROWS_OF_D)
def test_row_scale(device, product, chained) -> None:
    """To the bit; rows of padding stay zero, whatever their weights are."""
    with alignment_of(16):
        shape, call = PRODUCTS[product](device)
        weights = random_values(shape[:-1], device, 7)
        plain, scaled = (GuardedOutput(shape, torch.float32, device) for _ in range(2))
        call(plain.tensor, epilogue=Alpha(ALPHA) if chained else None)
        padding = (plain.tensor == 0).all(-1)
        strided = torch.full((*shape[:-1], 3), float("nan"), device=device)[..., 1]
        strided.copy_(torch.where(padding, float("nan"), weights))
        call(scaled.tensor, epilogue=Chain(Alpha(ALPHA), RowScale(strided)) if chained else RowScale(strided))
    for out in (plain, scaled):
        out.check(complete=False)
    expected = torch.where(padding.unsqueeze(-1), 0.0, plain.tensor * weights.unsqueeze(-1))
    assert real_rows(product, expected).any()
    assert torch.equal(real_rows(product, scaled.tensor), real_rows(product, expected))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("product", ["fp8_nt", "bf16_nt"])
def test_row_scale_multiplies_c_too(device, product, in_place) -> None:
    shape, call = PRODUCTS[product](device)
    plain, d = torch.empty(shape, device=device), GuardedOutput(shape, torch.float32, device)
    call(plain)
    c, weights = random_values(shape, device, 5), random_values(shape[:1], device, 7)
    if in_place:
        d.tensor.copy_(c)
    call(d.tensor, c=d.tensor if in_place else c, epilogue=RowScale(weights))
    d.check()
    exact = (plain.double() + c.double()) * weights.double().unsqueeze(-1)
    assert torch.allclose(d.tensor.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("k", [0, 64])
@pytest.mark.parametrize("expr", FORMS)
def test_row_scale_of_each_batched_form(device, expr, k) -> None:
    """Weights lie as D's rows do, wherever its matrices are; C is multiplied too, also where there is no K."""
    product = bf16_batch(expr, 3, 16, 24, k, device)
    shape = laid_out(torch.empty(3, 16, 24), FORMS[expr][2]).shape
    c, weights = random_values(shape, device, 5), random_values(shape[:-1], device, 7)
    plain, d = torch.empty(shape, device=device), GuardedOutput(shape, torch.float32, device)
    product.run(plain, c=c)
    product.run(d.tensor, c=c, epilogue=RowScale(weights))
    d.check()
    assert torch.equal(d.tensor, plain * weights.unsqueeze(-1))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("k", [0, K])
@pytest.mark.parametrize("grouping", ["dense", "contiguous", "masked"])
def test_row_scale_beside_fp4_pairs(device, grouping, k, biased) -> None:
    """Which are packed by each call before Blackwell; without K the bias is what is scaled."""
    groups = () if grouping == "dense" else (2,)
    codes = random((*groups, N, k // 2), 0, 255).to(torch.uint8).view(torch.int8).to(device)
    b = codes, torch.exp2(random((*groups, N, k // 32), -6, 0).float()).to(device)
    lead = (2, M // 2) if grouping == "masked" else (M,)
    a = random_values((*lead, k), device, 0).to(torch.float8_e4m3fn), torch.ones((*lead, k // 128), device=device)
    bias = random_values((*groups, N), device, 3) if biased else None
    weights = random_values(lead, device, 4)
    recipes: Any = {"recipe_a": (1, 128), "recipe_b": (1, 32), "bias": bias}
    if grouping == "dense":
        call = functools.partial(deep_gemm.fp8_fp4_gemm_nt, a, b, **recipes)
    elif grouping == "masked":
        counts = torch.full((2,), M // 2, dtype=torch.int32, device=device)
        call = functools.partial(_masked, a, b, counts, **recipes)
    else:
        call = functools.partial(
            _in_psum_layout, a, b, torch.tensor([16, M], dtype=torch.int32, device=device), **recipes
        )
    plain, d = torch.empty((*lead, N), device=device), GuardedOutput((*lead, N), torch.float32, device)
    with alignment_of(16):
        call(plain)
        call(d.tensor, epilogue=RowScale(weights))
    d.check()
    assert torch.equal(d.tensor, plain * weights.unsqueeze(-1))


def test_row_scale_in_traced_programs_and_its_gradient() -> None:
    a, b = bf16(torch.device("cpu"), M, K), bf16(torch.device("cpu"), N, K)
    weights = random_values((M,), torch.device("cpu"), 7)

    def run(a: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        d = torch.zeros(M, N)
        deep_gemm.bf16_gemm_nt(a, b, d, epilogue=RowScale(weights))
        return d

    traced = torch.fx.experimental.proxy_tensor.make_fx(run)(a, weights)
    other = weights.flip(0)
    assert torch.equal(traced(a, other), run(a, other))
    assert not torch.equal(traced(a, other), run(a, weights))
    with pytest.raises(RuntimeError, match="the epilogue's row weights must have a gradient"):
        run(a, weights.clone().requires_grad_())


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (torch.ones(M - 1), ValueError, r"row weights must be \[M\] = \[48\], got shape \[47\]"),
        (torch.ones(M, 1), ValueError, r"row weights must be \[M\] = \[48\], got shape \[48, 1\]"),
        (torch.ones(M).double(), TypeError, "row weights must be float32, got float64"),
    ],
)
def test_row_weights_are_checked(weights, error, message) -> None:
    _, call = PRODUCTS["bf16_nt"](torch.device("cpu"))
    d = torch.full((M, N), float("nan"))
    with pytest.raises(error, match=message):
        call(d, epilogue=RowScale(weights))
    assert d.isnan().all()


def test_row_weights_of_a_batch_are_checked() -> None:
    shape, call = PRODUCTS["einsum"](torch.device("cpu"))
    with pytest.raises(ValueError, match=r"row weights must be d's shape without columns, 5 x 3, got shape \[3, 5\]"):
        call(torch.empty(shape), epilogue=RowScale(torch.ones(3, 5)))
    a = torch.ones(2, 16, 64).bfloat16()
    with pytest.raises(ValueError, match="no gated activation and no RowScale where a batch is added up"):
        deep_gemm.einsum("bmk,bnk->mn", a, a, torch.empty(16, 16), epilogue=RowScale(torch.ones(16)))


def test_what_cannot_be_chained() -> None:
    for steps in ([RowScale(torch.ones(1)), Alpha(1)], [Alpha(1), Alpha(2)], [BF16StochasticRounding(), Alpha(1)]):
        with pytest.raises(
            ValueError,
            match="steps must be Alpha, SwiGLU or GeGLU, RowScale, BF16StochasticRounding or FP8CastWithClamp, each at "
            "most once and in this order, got ",
        ):
            Chain(*steps)
    for name in ("fp8 K groups", "bf16 K groups"):
        shape, call = PRODUCTS[name](torch.device("cpu"))
        with pytest.raises(ValueError, match="must have no RowScale where products are grouped along K"):
            call(torch.empty(shape), epilogue=RowScale(torch.ones(shape[:-1])))
