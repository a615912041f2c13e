"""GEMM calls of experts, of FP8 activations with FP4 weights: the public names, which take FP8 pairs too.

See `deep_gemm.fp8_fp4` for how weights come, and `deep_gemm.grouped` for how rows of experts lie.
"""

from __future__ import annotations

import torch

from ._call import B_TRANSPOSED, OperandRecipe, Recipe, one_layout
from ._fp4_pairs import ACCEPTED, is_fp4, options_of_packed, require_fp4_only, require_no_bias, unpacked_pair
from ._output import Output
from ._packed import ScaledTokens, run_contiguous, run_masked
from ._product import product
from .epilogue import Epilogue
from .fp4 import m_grouped_fp4_gemm_nt_contiguous, m_grouped_fp4_gemm_nt_masked
from .fp8 import Scaled
from .grouped import (
    m_grouped_fp8_gemm_nn_contiguous,
    m_grouped_fp8_gemm_nt_contiguous,
    m_grouped_fp8_gemm_nt_masked,
)
from .weights import PackedWeights

__all__ = [
    "m_grouped_fp8_fp4_gemm_nn_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_masked",
]


@product()
def m_grouped_fp8_fp4_gemm_nt_contiguous(
    a: ScaledTokens,
    b: Scaled | PackedWeights,
    d: Output,
    grouped_layout: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    epilogue: Epilogue | None = None,
    *,
    m_indices: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """`m_grouped_fp8_gemm_nt_contiguous`, or the same with MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nt_contiguous`; or FP4 weights as of `fp8_fp4_gemm_nt`, with G in front.
        others: as for `m_grouped_fp8_gemm_nt_contiguous`.
        bias: with FP4 weights, bfloat16, float16 or float32 `[G, N]`, added in FP32.

    Raises:
        ValueError, TypeError: as of `fp8_fp4_gemm_nt`.
    """
    recipes = recipe, recipe_a, recipe_b
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    grouped_layout = one_layout(grouped_layout, m_indices)
    if isinstance(b, PackedWeights):
        options = options_of_packed(recipes, disable_ue8m0_cast, None, epilogue)
        run_contiguous(a, b, d, grouped_layout, compiled_dims, rows, ACCEPTED, bias, options)
    elif not is_fp4(b):
        require_no_bias(bias)
        m_grouped_fp8_gemm_nt_contiguous(
            a,  # type: ignore[arg-type]
            b,
            d,
            grouped_layout,
            *recipes,
            compiled_dims,
            disable_ue8m0_cast,
            *rows,
            epilogue,
        )
    elif is_fp4(a):
        require_fp4_only(bias)
        m_grouped_fp4_gemm_nt_contiguous(
            a,  # type: ignore[arg-type]
            b,
            d,
            grouped_layout,
            *recipes,
            compiled_dims,
            disable_ue8m0_cast,
            *rows,
            None,
            epilogue,
        )
    else:
        w, options = unpacked_pair(b, recipes, disable_ue8m0_cast, None, epilogue)
        run_contiguous(a, w, d, grouped_layout, compiled_dims, rows, ACCEPTED, bias, options)


@product()
def m_grouped_fp8_fp4_gemm_nn_contiguous(
    a: Scaled,
    b: Scaled,
    d: Output,
    grouped_layout: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    epilogue: Epilogue | None = None,
    *,
    m_indices: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """`m_grouped_fp8_gemm_nn_contiguous`, or on Blackwell (SM100) the same with MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nn_contiguous`; or FP4 weights as of `fp8_fp4_gemm_nn`, with G in front.
        others: as for `m_grouped_fp8_fp4_gemm_nt_contiguous`.

    Raises:
        ValueError, TypeError: as of `fp8_fp4_gemm_nt`.
    """
    recipes = recipe, recipe_a, recipe_b
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    grouped_layout = one_layout(grouped_layout, m_indices)
    if not is_fp4(b):
        require_no_bias(bias)
        return m_grouped_fp8_gemm_nn_contiguous(
            a, b, d, grouped_layout, *recipes, compiled_dims, disable_ue8m0_cast, *rows, epilogue
        )
    w, options = unpacked_pair(b, recipes, disable_ue8m0_cast, None, epilogue, B_TRANSPOSED)
    run_contiguous(a, w, d, grouped_layout, compiled_dims, rows, ACCEPTED, bias, options)


@product()
def m_grouped_fp8_fp4_gemm_nt_masked(
    a: ScaledTokens,
    b: Scaled | PackedWeights,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    epilogue: Epilogue | None = None,
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """`m_grouped_fp8_gemm_nt_masked`, or the same with MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nt_masked`; or FP4 weights as of `fp8_fp4_gemm_nt`, with G in front.
        a, d, masked_m, expected_m, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, epilogue: as for
            `m_grouped_fp8_gemm_nt_masked`.
        bias: with FP4 weights, bfloat16, float16 or float32 `[G, N]`, added in FP32.

    Raises:
        ValueError, TypeError: as of `fp8_fp4_gemm_nt`.
    """
    recipes = recipe, recipe_a, recipe_b
    if isinstance(b, PackedWeights):
        options = options_of_packed(recipes, disable_ue8m0_cast, None, epilogue)
        run_masked(a, b, d, masked_m, expected_m, compiled_dims, ACCEPTED, bias, options)
    elif not is_fp4(b):
        require_no_bias(bias)
        how = (*recipes, compiled_dims, disable_ue8m0_cast, epilogue)
        m_grouped_fp8_gemm_nt_masked(a, b, d, masked_m, expected_m, *how)  # type: ignore[arg-type]
    elif is_fp4(a):
        require_fp4_only(bias)
        how_fp4 = (*recipes, compiled_dims, disable_ue8m0_cast, None, epilogue)
        m_grouped_fp4_gemm_nt_masked(a, b, d, masked_m, expected_m, *how_fp4)  # type: ignore[arg-type]
    else:
        w, options = unpacked_pair(b, recipes, disable_ue8m0_cast, None, epilogue)
        run_masked(a, w, d, masked_m, expected_m, compiled_dims, ACCEPTED, bias, options)
