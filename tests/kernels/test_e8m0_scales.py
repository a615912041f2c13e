"""Scales in float8_e8m0fnu, powers of two, are taken as FP32 ones are: bits of the result are those of their values."""

from __future__ import annotations

import pytest
import torch
from devices import EACH_ARCH, PACK_PAIRS, TAKE_PACKED
from grouped_inputs import alignment_of
from inputs import FP8, ceil_div, random_values

import deep_gemm

E8M0 = torch.float8_e8m0fnu


def exponents(shape: tuple[int, ...], device: torch.device, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randint(118, 136, shape, device=device, generator=generator, dtype=torch.uint8)


def values(exponent: torch.Tensor) -> torch.Tensor:
    """In FP64 first: the least of them is subnormal in FP32."""
    return torch.exp2(exponent.double() - 127).float()


def fp8(shape: tuple[int, ...], device: torch.device, seed: int) -> torch.Tensor:
    return random_values(shape, device, seed).to(FP8)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("recipe", [(1, 128, 128), (1, 1, 128)], ids=["blocks", "rows"])
@pytest.mark.parametrize("kind", ["packed", "mn_major", "apart"])
def test_dense(request, device, recipe, kind) -> None:
    """SM120 multiplies exponents of both sides in the instruction, and so adds up in another order."""
    m, n, k = 42, 136, 272
    a, b = fp8((m, k), device, 0), fp8((n, k), device, 1)
    rows_b = n if recipe[1] == 1 else ceil_div(n, 128)

    def laid_out(exponent: torch.Tensor) -> torch.Tensor:
        if kind == "mn_major":
            return exponent.T.contiguous().T
        if kind == "apart":
            room = torch.full((2 * exponent.shape[0], 3 * exponent.shape[1]), 0xFF, dtype=torch.uint8, device=device)
            room[::2, ::3] = exponent
            return room[::2, ::3]
        return exponent

    scales = exponents((m, 3), device, 2), exponents((rows_b, 3), device, 3)
    d, expected = (torch.full((m, n), float("nan"), device=device) for _ in range(2))
    deep_gemm.fp8_gemm_nt((a, laid_out(scales[0]).view(E8M0)), (b, laid_out(scales[1]).view(E8M0)), d, recipe=recipe)
    deep_gemm.fp8_gemm_nt((a, values(scales[0])), (b, values(scales[1])), expected, recipe=recipe)
    if "sm120" in request.node.callspec.id:
        sizes_a, sizes_b = (
            x.double().abs() * values(s).double().repeat_interleave(128, 1)[:, :k].repeat_interleave(rows, 0)[: len(x)]
            for x, s, rows in ((a, scales[0], 1), (b, scales[1], recipe[1]))
        )
        assert ((d - expected).abs() <= 1e-6 * (sizes_a @ sizes_b.T)).all()
    else:
        assert torch.equal(d, expected)
    deep_gemm.fp8_gemm_nt((a, scales[0].view(E8M0)), (b, values(scales[1])), d, recipe=recipe)  # one of them
    assert torch.equal(d, expected)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_every_exponent(device) -> None:
    """0 is 2^-127, which is subnormal; 255 is NaN."""
    exponent = torch.arange(256, dtype=torch.uint8, device=device)[:, None]
    a = torch.zeros((256, 16), device=device)
    a[:, 0] = 1
    one = torch.zeros((8, 16), device=device)
    one[:, 0] = 1
    d = torch.empty((256, 8), device=device)
    deep_gemm.fp8_gemm_nt((a.to(FP8), exponent.view(E8M0)), (one.to(FP8), torch.ones((1, 1), device=device)), d)
    assert torch.equal(d[:255], values(exponent[:255]).expand(255, 8))
    assert d[255].isnan().all()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("masked", [False, True])
def test_experts(device, masked) -> None:
    a = fp8((2, 128, 144), device, 0)
    b, sfa, sfb = fp8((2, 40, 144), device, 1), exponents((2, 128, 2), device, 2), exponents((2, 1, 2), device, 3)
    results = []
    for as_scales in (lambda x: x.view(E8M0), values):
        d = torch.zeros((2, 128, 40), device=device)
        if masked:
            counts = torch.tensor([128, 7], dtype=torch.int32, device=device)
            deep_gemm.m_grouped_fp8_gemm_nt_masked((a, as_scales(sfa)), (b, as_scales(sfb)), d, counts, 64)
            d[1, 7:] = 0
        else:
            owners = torch.arange(2, dtype=torch.int32, device=device).repeat_interleave(128)
            flat = a.view(256, 144), as_scales(sfa.view(256, 2))
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(flat, (b, as_scales(sfb)), d.view(256, 40), owners)
        results.append(d)
    assert results[0].any()
    assert torch.equal(*results)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("rows_first", [False, True])
def test_k_groups(device, rows_first) -> None:
    ks, m, n = [128, 48], 40, 24
    a, b = fp8((176, m), device, 0), fp8((176, n), device, 1)
    sfa, sfb = exponents((2, m), device, 2), exponents((2, n), device, 3)
    sizes = torch.tensor(ks, dtype=torch.int32, device=device)
    results = []
    for as_scales in (lambda x: x.view(E8M0), values):
        d = torch.empty((2, m, n), device=device)
        scales = as_scales(sfa)
        if rows_first and scales.shape[0] == 2:
            scales = scales.T
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous((a, scales), (b, as_scales(sfb)), d, ks, sizes)
        results.append(d)
    assert torch.equal(*results)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("shape", [(), (1,), (20,), (20, 1), (20, 2)], ids=str)
@pytest.mark.parametrize("k", [128, 256])
def test_beside_packed_weights(device, k, shape) -> None:
    """One a token, in every shape, or for groups of K; K of one group too."""
    if shape == (20, 2) and k == 128:
        shape = (20, 1)
    q = torch.randint(-8, 8, (72, k), dtype=torch.int8, device=device, generator=torch.Generator(device).manual_seed(0))
    w = deep_gemm.pack_weights(q, torch.ones(72, device=device), element="int4", activations="fp8")
    a, scales = fp8((20, k), device, 1), exponents(shape or (1,), device, 2).view(shape)
    d, expected = (torch.full((20, 72), float("nan"), device=device) for _ in range(2))
    deep_gemm.fp8_int4_gemm_nt((a, scales.view(E8M0)), w, d)
    deep_gemm.fp8_int4_gemm_nt((a, values(scales)), w, expected)
    assert torch.equal(d, expected)


@pytest.mark.parametrize("device", PACK_PAIRS, indirect=True)
@pytest.mark.parametrize("masked", [False, True])
def test_experts_of_the_public_fp4_pair(device, masked) -> None:
    """K of one group: a scale a token."""
    a, codes = fp8((2, 16, 128), device, 0), torch.randint(-128, 128, (2, 40, 64), dtype=torch.int8, device=device)
    sfa, sfb = exponents((2, 16, 1), device, 1), exponents((2, 40, 4), device, 2)
    results = []
    for as_scales in (lambda x: x.view(E8M0), values):
        d = torch.full((2, 16, 40), float("nan"), device=device)
        if masked:
            counts = torch.tensor([16, 16], dtype=torch.int32, device=device)
            deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked((a, as_scales(sfa)), (codes, as_scales(sfb)), d, counts, 16)
        else:
            owners = torch.arange(2, dtype=torch.int32, device=device).repeat_interleave(16)
            flat = a.view(32, 128), as_scales(sfa.view(32, 1))
            with alignment_of(16):
                deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(flat, (codes, as_scales(sfb)), d.view(32, 40), owners)
        results.append(d)
    assert results[0].any()
    assert torch.equal(*results)


def test_scales_of_integers_are_float32() -> None:
    a, b = (torch.ones((8, 16), dtype=torch.int8) for _ in range(2))
    with pytest.raises(TypeError, match=r"a's scales must be float32, got float8_e8m0fnu"):
        deep_gemm.int8_gemm_nt((a, torch.ones(8).to(E8M0)), (b, 1.0), torch.empty((8, 8)))
