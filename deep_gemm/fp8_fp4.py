"""GEMM calls of FP8 activations with FP4 weights: the public names, which take FP8 pairs too."""

from __future__ import annotations

from typing import Any

import torch

from ._packed import Activations, Takes, run, run_contiguous, run_masked
from ._product import product
from .gemm import OperandRecipe, Recipe, Scaled, fp8_gemm_nt
from .grouped import _one_layout, m_grouped_fp8_gemm_nt_contiguous, m_grouped_fp8_gemm_nt_masked
from .weights import PackedWeights

__all__ = ["fp8_fp4_gemm_nt", "m_grouped_fp8_fp4_gemm_nt_contiguous", "m_grouped_fp8_fp4_gemm_nt_masked"]

_TAKES = Takes("fp8", ("e2m1",))


@product()
def fp8_packed_fp4_gemm_nt(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """FP8 activations, MXFP4 weights: what `fp8_fp4_gemm_nt` does with PackedWeights of 'e2m1'.

    Sums over 32 of K each are scaled and added up in FP32.

    Args:
        a, d, c, compiled_dims, bias: as for `fp8_int4_gemm_nt`.
        w: e2m1 `[N, K]`, packed for 'fp8' activations with groups of 32 (or of a multiple of it).

    Raises:
        as `fp8_int4_gemm_nt`.
    """
    run(a, w, d, c, bias, compiled_dims, _TAKES)


@product()
def m_grouped_fp8_packed_fp4_gemm_nt_contiguous(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
) -> None:
    """`fp8_packed_fp4_gemm_nt` of experts, as `m_grouped_fp8_int4_gemm_nt_contiguous`."""
    run_contiguous(
        a,
        w,
        d,
        grouped_layout,
        compiled_dims,
        use_psum_layout,
        ensure_zero_padding,
        expected_m_for_psum_layout,
        _TAKES,
    )


@product()
def m_grouped_fp8_packed_fp4_gemm_nt_masked(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
) -> None:
    """`fp8_packed_fp4_gemm_nt` of experts, as `m_grouped_fp8_int4_gemm_nt_masked`."""
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES)


def fp8_fp4_gemm_nt(
    a: Activations,
    b: Scaled | PackedWeights,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """`fp8_gemm_nt`, or the product with packed MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_nt`, with FP8 data; or PackedWeights of 'e2m1', packed for 'fp8' activations (Hopper):
            then recipes are None, and a's scales may be one for all or one for each token, too.
        a, d, c, compiled_dims, disable_ue8m0_cast: as for `fp8_gemm_nt`.
        bias: with PackedWeights, as for `fp8_int4_gemm_nt`.

    Raises:
        as `fp8_gemm_nt`, and ValueError where arguments are of the other kind of b.
    """
    if isinstance(b, PackedWeights):
        _require_none(recipe=recipe, recipe_a=recipe_a, recipe_b=recipe_b)
        return fp8_packed_fp4_gemm_nt(a, b, d, c, compiled_dims, bias=bias)
    if bias is not None:
        raise ValueError("bias goes with PackedWeights only")
    return fp8_gemm_nt(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)  # type: ignore[arg-type]


def m_grouped_fp8_fp4_gemm_nt_contiguous(
    a: Activations,
    b: Scaled | PackedWeights,
    d: torch.Tensor,
    grouped_layout: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    m_indices: torch.Tensor | None = None,
) -> None:
    """`m_grouped_fp8_gemm_nt_contiguous`, or the same with packed MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nt_contiguous`; or PackedWeights of 'e2m1' `[G, N, K]`, as of
            `fp8_fp4_gemm_nt`.
        a, d, grouped_layout, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, use_psum_layout,
        ensure_zero_padding, expected_m_for_psum_layout, m_indices: as for `m_grouped_fp8_gemm_nt_contiguous`.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if isinstance(b, PackedWeights):
        _require_none(recipe=recipe, recipe_a=recipe_a, recipe_b=recipe_b)
        layout = _one_layout(grouped_layout, m_indices)
        return m_grouped_fp8_packed_fp4_gemm_nt_contiguous(
            a, b, d, layout, compiled_dims, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
        )
    return m_grouped_fp8_gemm_nt_contiguous(
        a,  # type: ignore[arg-type]
        b,
        d,
        grouped_layout,
        recipe,
        recipe_a,
        recipe_b,
        compiled_dims,
        disable_ue8m0_cast,
        use_psum_layout,
        ensure_zero_padding,
        expected_m_for_psum_layout,
        m_indices=m_indices,
    )


def m_grouped_fp8_fp4_gemm_nt_masked(
    a: Activations,
    b: Scaled | PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """`m_grouped_fp8_gemm_nt_masked`, or the same with packed MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nt_masked`; or PackedWeights of 'e2m1' `[G, N, K]`, as of `fp8_fp4_gemm_nt`.
        a, d, masked_m, expected_m, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast: as for
            `m_grouped_fp8_gemm_nt_masked`.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if isinstance(b, PackedWeights):
        _require_none(recipe=recipe, recipe_a=recipe_a, recipe_b=recipe_b)
        return m_grouped_fp8_packed_fp4_gemm_nt_masked(a, b, d, masked_m, expected_m, compiled_dims)
    return m_grouped_fp8_gemm_nt_masked(
        a,  # type: ignore[arg-type]
        b,
        d,
        masked_m,
        expected_m,
        recipe,
        recipe_a,
        recipe_b,
        compiled_dims,
        disable_ue8m0_cast,
    )


def _require_none(**recipes: Any) -> None:
    for name, recipe in recipes.items():
        if recipe is not None:
            raise ValueError(f"{name} must be None with PackedWeights, which know their groups, but is {recipe}")
