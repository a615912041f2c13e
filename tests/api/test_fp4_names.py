"""FP4 weights under the names of FP8, and disable_ue8m0_cast under those of FP4, as DeepGEMM has them."""

from __future__ import annotations

import pytest
import torch
from devices import ONE_OF_EACH_ARCH, devices_of
from grouped_inputs import alignment_of
from inputs import FP8, GuardedOutput, random_values
from scale_forms import words

import deep_gemm

M, N, K = 16, 48, 256
BLACKWELL = devices_of("sm100", "any")


def scales(*shape: int, device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.exp2(torch.randint(-3, 4, shape, generator=generator).float()).to(device)


def codes(*shape: int, device) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(1)).to(device)


def tokens(*shape: int, device) -> tuple[torch.Tensor, torch.Tensor]:
    return random_values(shape, device, 0).to(FP8), scales(*shape[:-1], shape[-1] // 128, device=device)


def weights(*shape: int, device) -> tuple[torch.Tensor, torch.Tensor]:
    *rows, k = shape
    return codes(*rows, k // 2, device=device), words(scales(*rows, k // 32, device=device))


RECIPES = {"recipe_a": (1, 128), "recipe_b": (1, 32)}


def both(call, fp8_name: str, *shape: int, device) -> None:
    """The same call under either name, of which the second is known to be right (test_public_fp4_pair.py)."""
    results = []
    for name in (fp8_name, fp8_name.replace("fp8", "fp8_fp4", 1)):
        out = GuardedOutput(shape, torch.float32, device)
        call(getattr(deep_gemm, name), out.tensor)
        out.check()
        results.append(out.tensor)
    assert results[0].any()
    assert torch.equal(*results)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("recipes", [RECIPES, {}], ids=["recipes", "default"])
def test_dense(device, recipes) -> None:
    a, b = tokens(M, K, device=device), weights(N, K, device=device)
    both(lambda f, d: f(a, b, d, **recipes), "fp8_gemm_nt", M, N, device=device)


@pytest.mark.parametrize("device", BLACKWELL, indirect=True)
@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
def test_other_layouts(device, layout) -> None:
    a, b = (tuple(x.T for x in pair) for pair in (tokens(M, K, device=device), weights(N, K, device=device)))
    a = a if layout[0] == "t" else tuple(x.T for x in a)
    b = b if layout[1] == "n" else tuple(x.T for x in b)
    both(lambda f, d: f(a, b, d, **RECIPES, disable_ue8m0_cast=False), f"fp8_gemm_{layout}", M, N, device=device)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("psum", [False, True])
def test_experts_contiguous(device, psum) -> None:
    a, b = tokens(64, K, device=device), weights(2, N, K, device=device)
    layout = torch.tensor([20, 64] if psum else [0] * 32 + [1] * 32, dtype=torch.int32, device=device)
    with alignment_of(32):
        both(
            lambda f, d: f(a, b, d, layout, **RECIPES, use_psum_layout=psum),
            "m_grouped_fp8_gemm_nt_contiguous",
            64,
            N,
            device=device,
        )


@pytest.mark.parametrize("device", BLACKWELL, indirect=True)
def test_experts_with_k_before_n(device) -> None:
    a, b = tokens(64, K, device=device), tuple(x.mT for x in weights(2, N, K, device=device))
    layout = torch.tensor([0] * 32 + [1] * 32, dtype=torch.int32, device=device)
    with alignment_of(32):
        both(lambda f, d: f(a, b, d, layout), "m_grouped_fp8_gemm_nn_contiguous", 64, N, device=device)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_experts_masked_under_the_older_name(device) -> None:
    a, b = tokens(2, M, K, device=device), weights(2, N, K, device=device)
    counts = torch.tensor([M, M], dtype=torch.int32, device=device)
    results = []
    for name in ("fp8_m_grouped_gemm_nt_masked", "m_grouped_fp8_fp4_gemm_nt_masked"):
        d = torch.full((2, M, N), torch.nan, device=device)
        getattr(deep_gemm, name)(a, b, d, masked_m=counts, expected_m=M, **RECIPES)
        results.append(d)
    assert results[0].isfinite().all()
    assert torch.equal(*results)


@pytest.mark.parametrize("device", BLACKWELL, indirect=True)
def test_fp4_by_fp4_under_all_names(device) -> None:
    pairs = weights(M, K, device=device), weights(N, K, device=device)
    results = []
    for name in ("fp4_gemm_nt", "fp8_fp4_gemm_nt", "fp8_gemm_nt"):
        d = torch.full((M, N), torch.nan, device=device)
        # By position as DeepGEMM has them: words are taken with disable_ue8m0_cast, which is about float32 scales.
        getattr(deep_gemm, name)(*pairs, d, None, (1, 1, 32), None, None, "nk", True)
        results.append(d)
    assert results[0].isfinite().all()
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("device", BLACKWELL, indirect=True)
@pytest.mark.parametrize("name", ["fp4_gemm_nt", "fp8_fp4_gemm_nt", "fp8_gemm_nt"])
def test_float32_scales_of_fp4_as_they_are_are_refused(device, name) -> None:
    a, b = codes(M, K // 2, device=device), codes(N, K // 2, device=device)
    out = GuardedOutput((M, N), torch.float32, device)
    pairs = (a, scales(M, K // 32, device=device)), (b, scales(N, K // 32, device=device))
    with pytest.raises(ValueError, match=r"disable_ue8m0_cast=True asks for a kernel .* none for e2m1r by e2m1r"):
        getattr(deep_gemm, name)(*pairs, out.tensor, disable_ue8m0_cast=True)
    out.assert_untouched()


@pytest.mark.parametrize("device", BLACKWELL, indirect=True)
@pytest.mark.parametrize("masked", [False, True])
def test_experts_of_fp4_with_the_flag_at_its_position(device, masked) -> None:
    a = weights(2, 32, K, device=device) if masked else weights(64, K, device=device)
    b = weights(2, N, K, device=device)
    shape = (2, 32, N) if masked else (64, N)
    given = [32, 32] if masked else [0] * 32 + [1] * 32
    layout = torch.tensor(given, dtype=torch.int32, device=device)
    results = []
    for flag in (True, False):
        d = torch.full(shape, torch.nan, device=device)
        with alignment_of(32):
            if masked:
                deep_gemm.m_grouped_fp4_gemm_nt_masked(a, b, d, layout, 32, (1, 1, 32), None, None, "nk", flag)
            else:
                deep_gemm.m_grouped_fp4_gemm_nt_contiguous(
                    a, b, d, layout, (1, 1, 32), None, None, "nk", flag, False, True, None
                )
        results.append(d)
    assert results[0].isfinite().all()
    assert torch.equal(*results)
