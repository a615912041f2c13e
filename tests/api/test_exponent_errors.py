"""Scales that cannot be right where exponents are multiplied are refused, saying what was wanted and what came."""

from __future__ import annotations

import pytest
import torch
from devices import BUT_SM100, devices_of, on_simulator
from inputs import FP8, GuardedOutput, Operand
from scale_forms import words

import deep_gemm

M, N, K = 40, 136, 640
SM100 = pytest.mark.parametrize("device", devices_of("sm100", "any"), indirect=True)
SM100_ON_THE_CPU = pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
E8M0 = torch.float8_e8m0fnu


def operand(rows: int, scales: torch.Tensor, *groups: int) -> Operand:
    return Operand(torch.ones((*groups, rows, K), device=scales.device).to(FP8), scales)


def ones(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.ones(shape, device=device)


def packed(*shape: int, device: torch.device) -> torch.Tensor:
    return words(torch.ones(shape)).to(device)


# Scales of a and of b by their shapes, the recipe, the exception, and what its message must say.
WRONG = {
    "words of too few rows": (
        lambda d: (packed(M - 1, 5, device=d), packed(N, 5, device=d)),
        {},
        ValueError,
        r"a's scales must be \[40, 2\] \(one int32 of 4 exponents per row and 512 of K of a\), got shape \[39, 2\]",
    ),
    "words of the other granularity": (
        lambda d: (packed(M, 20, device=d), packed(N, 5, device=d)),
        {},
        ValueError,
        r"a's scales must be \[40, 2\].*512 of K of a\), got shape \[40, 5\]",
    ),
    "words of 32 of K": (
        lambda d: (packed(M, 5, device=d), packed(N, 20, device=d)),
        {"recipe_a": (1, 32), "recipe_b": (1, 32)},
        ValueError,
        r"a's scales must be \[40, 5\] \(one int32 of 4 exponents per row and 128 of K of a\), got shape \[40, 2\]",
    ),
    "granularities the other way round": (
        lambda d: (packed(M, 20, device=d), packed(N, 5, device=d)),
        {"recipe_a": (1, 128), "recipe_b": (1, 32)},
        ValueError,
        r"a's scales must be \[40, 2\].*got shape \[40, 5\]",
    ),
    "words of blocks": (
        lambda d: (packed(M, 5, device=d), packed(2, 5, device=d)),
        {"recipe": (1, 128, 128)},
        ValueError,
        r"packed scales must be per row, but the recipe says one per 128 rows of b",
    ),
    "FP32 per row without a recipe": (
        lambda d: (ones(M, 5, device=d), ones(N, 5, device=d)),
        {},
        ValueError,
        r"b's scales must be \[2, 5\] \(one float32 per 128 rows and 128 of K of b\), got shape \[136, 5\]",
    ),
    "E8M0 per row without a recipe": (
        lambda d: (ones(M, 5, device=d), ones(N, 5, device=d).to(E8M0)),
        {},
        ValueError,
        r"b's scales must be \[2, 5\] \(one float8_e8m0fnu per 128 rows and 128 of K of b\)",
    ),
    "blocks of 32 of K": (
        lambda d: (ones(M, 20, device=d), ones(2, 5, device=d)),
        {"recipe": (1, 128, 32)},
        ValueError,
        r"b's scales must be \[2, 20\] \(one float32 per 128 rows and 32 of K of b\), got shape \[2, 5\]",
    ),
    "64 of K": (
        lambda d: (ones(M, 10, device=d), ones(2, 10, device=d)),
        {"recipe": (1, 128, 64)},
        ValueError,
        r"along K must be 128 or 32, but recipe says 64",
    ),
    "64 of K of one": (
        lambda d: (ones(M, 10, device=d), ones(2, 10, device=d)),
        {"recipe_a": (1, 128), "recipe_b": (1, 64)},
        ValueError,
        r"along K must be 128 or 32, but recipe_b says 64",
    ),
    "BF16": (
        lambda d: (ones(M, 5, device=d), ones(2, 5, device=d).bfloat16()),
        {},
        TypeError,
        r"b's scales must be int32 \(packed UE8M0 exponents\), float8_e8m0fnu or float32, got bfloat16",
    ),
    "words of 32 of K beside FP32 scales that are asked for": (
        lambda d: (packed(M, 20, device=d), ones(2, 20, device=d)),
        {"disable_ue8m0_cast": True, "recipe": (1, 128, 32)},
        ValueError,
        r"a's scales must be one float32 per row and 128 of K, not one float32 per row and 32 of K: see recipe",
    ),
    "FP32 scales for 32 of K": (
        lambda d: (ones(M, 20, device=d), ones(2, 20, device=d)),
        {"disable_ue8m0_cast": True, "recipe": (1, 128, 32)},
        ValueError,
        r"a's scales must be one float32 per row and 128 of K, not one float32 per row and 32 of K: see recipe",
    ),
}


@SM100
@pytest.mark.parametrize("case", WRONG)
def test_wrong_scales(device, case) -> None:
    scales, arguments, error, message = WRONG[case]
    of_a, of_b = scales(device)
    out = GuardedOutput((M, N), torch.bfloat16, device)
    with pytest.raises(error, match=message):
        deep_gemm.fp8_gemm_nt(operand(M, of_a), operand(N, of_b), out.tensor, **arguments)
    out.assert_untouched()


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
@pytest.mark.parametrize(
    ("of_a", "of_b", "recipe", "message"),
    [
        ((M, 20), (N, 5), None, r"a's scales must be \[40, 2\] \(one int32 of 4 exponents per row and 512 of K of a\)"),
        ((M, 5), (2, 5), None, r"b's scales must be \[136, 2\] \(one int32 of 4 exponents per row and 512 of K of b\)"),
        ((M, 5), (2, 5), (1, 128, 128), r"packed scales must be per row, but the recipe says one per 128 rows of b"),
    ],
)
def test_words_of_another_shape_elsewhere(device, of_a, of_b, recipe, message) -> None:
    out = GuardedOutput((M, N), torch.float32, device)
    a, b = operand(M, packed(*of_a, device=device)), operand(N, packed(*of_b, device=device))
    with pytest.raises(ValueError, match=message):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, recipe=recipe)
    out.assert_untouched()


@SM100_ON_THE_CPU
def test_scales_of_integers_are_not_words_of_exponents_where_those_of_fp8_are(device) -> None:
    values, scales = torch.ones((M, K), device=device).to(torch.int8), ones(M, 5, device=device).to(torch.int32)
    out = GuardedOutput((M, M), torch.float32, device)
    with pytest.raises(TypeError, match=r"a's scales must be float32 or float8_e8m0fnu, got int32"):
        deep_gemm.int8_gemm_nt((values, scales), (values, 1.0), out.tensor)
    out.assert_untouched()


@pytest.mark.parametrize("device", on_simulator("any", arch="sm80"), indirect=True)
@pytest.mark.parametrize("k", [8, 136, 200])
def test_bytes_of_k_that_16_does_not_divide_are_refused(device, k) -> None:
    x = torch.ones((8, k), device=device)
    out = GuardedOutput((8, 8), torch.float32, device)
    scales = ones(8, -(-k // 128), device=device)
    with pytest.raises(ValueError, match=rf"K.*multiple of 16.*{k}"):
        deep_gemm.fp8_gemm_nt((x.to(FP8), scales), (x.to(FP8), scales), out.tensor, recipe=(1, 1, 128))
    with pytest.raises(ValueError, match=rf"K.*multiple of 16.*{k}"):
        deep_gemm.int8_gemm_nt(x.to(torch.int8), x.to(torch.int8), torch.empty((8, 8), dtype=torch.int32))
    out.assert_untouched()


class TestNoPowersOfTwo:
    """On CPU tensors they are refused before anything runs, with the function that quantises anew."""

    CAST = r"deep_gemm\.utils\.{}\(x, use_ue8m0=True, gran_k={}\)"

    @staticmethod
    def refused(call, message: str) -> None:
        with pytest.raises(ValueError, match=rf"must be powers of two on Blackwell.*{message}"):
            call()

    @SM100_ON_THE_CPU
    @pytest.mark.parametrize("wrong", [1.5, -1.0, float("nan"), 1e-40])
    def test_dense(self, device, wrong) -> None:
        a, b = operand(M, ones(M, 5, device=device)), operand(N, ones(2, 5, device=device))
        out = GuardedOutput((M, N), torch.bfloat16, device)

        def call() -> None:
            deep_gemm.fp8_gemm_nt(a, b, out.tensor)

        a.scales[7, 3] = wrong
        self.refused(call, r"that of row 7 and K from 384 is .*" + self.CAST.format("per_token_cast_to_fp8", 128))
        a.scales[7, 3] = 1
        b.scales[1, 4] = wrong
        self.refused(call, r"row 128 and K from 512 .*" + self.CAST.format("per_block_cast_to_fp8", 128))
        out.assert_untouched()
        b.scales[1, 4] = 0.25
        call()
        out.check()

    @SM100_ON_THE_CPU
    def test_the_cast_is_that_of_the_recipe_and_of_how_the_operand_lies(self, device) -> None:
        d = ones(M, N, device=device)
        right, fine, blocks = ones(M, 5, device=device), ones(N, 20, device=device), ones(2, 20, device=device)
        fine[3, 3] = blocks[1, 3] = 3.0
        a = operand(M, right)
        for scales, rows, message in [
            (fine, 1, self.CAST.format("per_token_cast_to_fp8", 32)),
            (blocks, 128, r"deep_gemm\.utils\.ceil_to_ue8m0"),
        ]:
            recipes = {"recipe_a": (1, 128), "recipe_b": (rows, 32)}
            self.refused(lambda s=scales, r=recipes: deep_gemm.fp8_gemm_nt(a, operand(N, s), d, **r), message)
        b = Operand(ones(K, N, device=device).to(FP8), fine.T)
        recipes = {"recipe_a": (1, 128), "recipe_b": (1, 32)}
        message = self.CAST.format("per_channel_cast_to_fp8", 32)
        self.refused(lambda: deep_gemm.fp8_gemm_nn(a, b, d, **recipes), message)

    @SM100_ON_THE_CPU
    @pytest.mark.parametrize("kind", ["indices", "psum", "masked"])
    def test_rows_that_count(self, device, kind) -> None:
        """Those of no expert are not judged, whatever they hold, and change nothing."""
        masked, rows = kind == "masked", 256
        scales = ones(2, 128, 5, device=device) if masked else ones(rows, 5, device=device)
        flat = scales.view(rows, 5)
        belongs = torch.zeros(rows, dtype=torch.bool, device=device)
        belongs[:100] = belongs[128:135] = True
        flat[~belongs] = torch.tensor([1.5, float("nan"), -1.0, 0.3, float("inf")], device=device)
        b = operand(N, ones(2, 2, 5, device=device), 2)
        out = GuardedOutput((2, 128, N) if masked else (rows, N), torch.float32, device)

        def call() -> None:
            if masked:
                a, counts = operand(128, scales, 2), torch.tensor([100, 7], dtype=torch.int32, device=device)
                return deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, out.tensor, counts, 64)
            layout = torch.tensor([100, 135], dtype=torch.int32, device=device)
            if kind == "indices":
                layout = torch.full((rows,), -1, dtype=torch.int32, device=device)
                layout[:100], layout[128:135] = 0, 1
            psum = kind == "psum"
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(operand(rows, flat), b, out.tensor, layout, use_psum_layout=psum)

        call()
        assert (out.tensor.view(rows, N)[belongs] == K).all()
        for row in (99, 134):
            flat[row, 4] = 1.5
            self.refused(call, "row " + str(row % 128 if masked else row))
            flat[row, 4] = 1
        b.scales[1, 1, 2] = 1.5
        self.refused(call, "row 128 .*per_block_cast_to_fp8")

    @SM100_ON_THE_CPU
    def test_e8m0_and_words_need_no_look(self, device) -> None:
        """Every exponent is a power of two, or NaN."""
        out = GuardedOutput((M, N), torch.float32, device)
        a = operand(M, torch.full((M, 5), 255, dtype=torch.uint8, device=device).view(E8M0))
        deep_gemm.fp8_gemm_nt(a, operand(N, packed(N, 5, device=device)), out.tensor)
        assert out.tensor.isnan().all()
