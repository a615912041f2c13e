"""`deep_gemm.gemm` finds the function that its operands and its grouping mean, and gives that function's bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from grouped_inputs import alignment_of
from inputs import random_blocks, random_rows, random_values

import deep_gemm
from deep_gemm import Batched, Contiguous, KGroups, Masked, simulator
from deep_gemm.epilogue import Alpha

M, N, K, GROUPS = 32, 24, 128, 2
CPU = torch.device("cpu")
INTEGERS = torch.arange(GROUPS * N * K).view(GROUPS, N, K) * 7 % 16 - 8


def fp8(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    operand = random_rows(shape, CPU, 1)
    return operand.data, operand.scales


def blocks(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    operand = random_blocks(shape, CPU, 2)
    return operand.data, operand.scales


def bf16(*shape: int) -> torch.Tensor:
    return random_values(shape, CPU, 3).bfloat16()


def int8(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return (random_values(shape, CPU, 4) * 9).to(torch.int8), torch.full(shape[:-1], 0.25)


def packed(element: str, activations: str, groups: int | None) -> deep_gemm.PackedWeights:
    codes = (INTEGERS % 16 if element == "e2m1" else INTEGERS).to(torch.int8)
    group = {"int8": None, "int4": None}.get(activations, 32 if element == "e2m1" else 128)
    scales = torch.full((GROUPS, N, *(() if group is None else (K // group,))), 0.5)
    cut = slice(None) if groups else 0
    options: dict[str, Any] = {"element": element, "activations": activations, "group_size": group}
    return deep_gemm.pack_weights(codes[cut], scales[cut], **options)


# Of each: activations of so many rows, weights (of so many experts).
FORMATS: dict[str, tuple[Any, Any]] = {
    "bf16": (bf16, lambda *g: bf16(*g, N, K)),
    "fp8": (fp8, lambda *g: blocks(*g, N, K)),
    "int8": (int8, lambda *g: int8(*g, N, K)),
    "fp8_int4": (fp8, lambda *g: packed("int4", "fp8", *g or (None,))),
    "fp8_fp4": (fp8, lambda *g: packed("e2m1", "fp8", *g or (None,))),
    "int8_int4": (int8, lambda *g: packed("int4", "int8", *g or (None,))),
    "bf16_int4": (bf16, lambda *g: packed("int4", "bf16", *g or (None,))),
    "bf16_int8": (bf16, lambda *g: packed("int8", "bf16", *g or (None,))),
    "bf16_fp4": (bf16, lambda *g: packed("e2m1", "bf16", *g or (None,))),
    "bf16_fp8": (bf16, lambda *g: blocks(*g, N, K)),
}


def result(call: Any, *shape: int) -> torch.Tensor:
    d = torch.full(shape, float("nan"))
    with alignment_of(16):
        call(d)
    assert d.isfinite().any()
    return d.nan_to_num(7)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FORMATS)
def test_dense(name) -> None:
    of_a, of_b = FORMATS[name]
    a, b = of_a(M, K), of_b()
    found = result(lambda d: deep_gemm.gemm(a, b, d), M, N)
    assert torch.equal(found, result(lambda d: getattr(deep_gemm, f"{name}_gemm_nt")(a, b, d), M, N))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
def test_contiguous(name, psum) -> None:
    of_a, of_b = FORMATS[name]
    a, b = of_a(M, K), of_b(GROUPS)
    layout = torch.tensor([5, M] if psum else [0] * 16 + [1] * 16, dtype=torch.int32)
    named = getattr(deep_gemm, f"m_grouped_{name}_gemm_nt_contiguous")
    found = result(lambda d: deep_gemm.gemm(a, b, d, grouping=Contiguous(layout, psum)), M, N)
    assert torch.equal(found, result(lambda d: named(a, b, d, layout, use_psum_layout=psum), M, N))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FORMATS)
def test_masked(name) -> None:
    of_a, of_b = FORMATS[name]
    a, b = of_a(GROUPS, 16, K), of_b(GROUPS)
    counts = torch.tensor([16, 3], dtype=torch.int32)
    named = getattr(deep_gemm, f"m_grouped_{name}_gemm_nt_masked")
    found = result(lambda d: deep_gemm.gemm(a, b, d, grouping=Masked(counts, 8)), GROUPS, 16, N)
    wanted = result(lambda d: named(a, b, d, counts, 8), GROUPS, 16, N)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1, :3], wanted[1, :3])


def test_k_groups_and_batches() -> None:
    ks, layout = [64, 64], torch.tensor([64, 64], dtype=torch.int32)
    a, b = bf16(K, M), bf16(K, N)
    found = result(lambda d: deep_gemm.gemm(a, b, d, grouping=KGroups(ks, layout)), 2, M, N)
    named = deep_gemm.k_grouped_bf16_gemm_tn_contiguous
    assert torch.equal(found, result(lambda d: named(a, b, d, ks, layout), 2, M, N))
    a, b, expr = bf16(5, 2, K), bf16(2, N, K), "bhr,hdr->bhd"
    found = result(lambda d: deep_gemm.gemm(a, b, d, grouping=Batched(expr)), 5, 2, N)
    assert torch.equal(found, result(lambda d: deep_gemm.einsum(expr, a, b, d), 5, 2, N))
    pairs, expr = (fp8(5, 2, K), blocks(2, 128, K)), "bhr,hdr->bhd"
    found = result(lambda d: deep_gemm.gemm(*pairs, d, grouping=Batched(expr)), 5, 2, 128)
    assert torch.equal(found, result(lambda d: deep_gemm.fp8_einsum(expr, *pairs, d), 5, 2, 128))


def test_flat_k_groups_lie_along_k() -> None:
    ks, layout = [128, 128], torch.tensor([128, 128], dtype=torch.int32)
    a, b = ((data.flatten(), scales) for data, scales in (fp8(2 * M, 128), fp8(2 * N, 128)))
    pairs = (a[0], a[1].view(2, M)), (b[0], b[1].view(2, N))
    found = result(lambda d: deep_gemm.gemm(*pairs, d, grouping=KGroups(ks, layout)), 2, M, N)
    named = deep_gemm.k_grouped_fp8_gemm_nt_contiguous
    assert torch.equal(found, result(lambda d: named(*pairs, d, ks, layout), 2, M, N))


def test_fp4_is_told_by_its_scales_or_its_dtype() -> None:
    with simulator.options(target="sm_100a"):
        a, b = (deep_gemm.utils.per_token_cast_to_fp4(random_values((rows, K), CPU, 5), True, 32) for rows in (M, N))
        exponents = [(codes, scales.to(torch.float8_e8m0fnu)) for codes, scales in (a, b)]
        wanted = result(lambda d: deep_gemm.fp4_gemm_nt(a, b, d), M, N)
        assert torch.equal(result(lambda d: deep_gemm.gemm(*exponents, d), M, N), wanted)
        named = [(codes.view(torch.float4_e2m1fn_x2), scales) for codes, scales in (a, b)]
        assert torch.equal(result(lambda d: deep_gemm.gemm(*named, d), M, N), wanted)
        tokens, options = fp8(M, K), {"recipe_a": (1, 128), "recipe_b": (1, 32)}
        wanted = result(lambda d: deep_gemm.fp8_fp4_gemm_nt(tokens, b, d, **options), M, N)
        assert torch.equal(result(lambda d: deep_gemm.gemm(tokens, named[1], d), M, N), wanted)
        one_for_each = (1, 128), (1, 32)
        assert torch.equal(result(lambda d: deep_gemm.gemm(tokens, b, d, recipe=one_for_each), M, N), wanted)


def test_options_go_on() -> None:
    a, b, c = bf16(M, K), bf16(N, K), random_values((M, N), CPU, 6)
    found = result(lambda d: deep_gemm.gemm(a, b, d, c=c, epilogue=Alpha(0.5), compiled_dims="mnk"), M, N)
    assert torch.equal(found, result(lambda d: deep_gemm.bf16_gemm_nt(a, b, d, c, "mnk", 0.5), M, N))
    pair, weights = int8(M, K), int8(N, K)
    found = result(lambda d: deep_gemm.gemm(pair, weights, d, bias=c[0]), M, N)
    assert torch.equal(found, result(lambda d: deep_gemm.int8_gemm_nt(pair, weights, d, bias=c[0]), M, N))


@pytest.mark.parametrize(
    ("operands", "options", "error", "message"),
    [
        (lambda: (bf16(M, K), bf16(N, K).half()), {}, TypeError, "got bfloat16 and float16"),
        (lambda: (fp8(M, K), bf16(N, K)), {}, TypeError, "got float8_e4m3fn with scales of float32 and bfloat16"),
        (lambda: (int8(M, K), packed("int4", "fp8", None)), {}, TypeError, "a must be float8_e4m3fn, got int8"),
        (
            lambda: (bf16(M, K), bf16(N, K)),
            {"bias": torch.ones(N)},
            ValueError,
            "bias must be None, since bf16_gemm_nt",
        ),
        (lambda: (bf16(M, K), bf16(N, K)), {"recipe": (1, 1, 128)}, ValueError, "recipe must be None"),
        (lambda: (bf16(M, K), bf16(N, K)), {"recipe": ((1, 128), (1, 32))}, ValueError, "recipe_a must be None"),
        (lambda: (bf16(M, K), bf16(N, K)), {"grouping": 3}, TypeError, r"grouping must be Contiguous, .* got 3"),
        (
            lambda: (int8(M, K), int8(N, K)),
            {"grouping": KGroups([K], torch.tensor([K]))},
            TypeError,
            "no products of int8 are grouped so: there is no k_grouped_int8_gemm_tn_contiguous",
        ),
        (lambda: ("a", bf16(N, K)), {}, TypeError, "got str and bfloat16"),
    ],
)
def test_refused(operands, options, error, message) -> None:
    with pytest.raises(error, match=message):
        deep_gemm.gemm(*operands(), torch.empty(M, N), **options)
