"""GEMM calls of FP8 activations with FP4 weights: the public names, which take FP8 pairs too.

The public pair of FP4 weights is int8 of two codes a byte. On Blackwell (SM100) tensor cores multiply it by FP8, and it
is read where it lies: K contiguous and a multiple of 128, rows at multiples of 32 bytes. Other rows are copied into a
workspace first, and MN-major codes transposed. Elsewhere each call packs the pair into a workspace: right, and captured
in graphs as any other call, but slower than `PackedWeights`, which are packed once.
"""

from __future__ import annotations

from typing import Any

import torch

from ._packed import Asked, ScaledTokens, Takes, UnpackedFp4, run, run_contiguous, run_masked
from ._product import product
from .fp4 import fp4_gemm_nt, m_grouped_fp4_gemm_nt_contiguous, m_grouped_fp4_gemm_nt_masked
from .gemm import (
    _A_TRANSPOSED,
    _B_TRANSPOSED,
    _FP32_SCALES,
    OperandRecipe,
    Recipe,
    Scaled,
    fp8_gemm_nn,
    fp8_gemm_nt,
    fp8_gemm_tn,
    fp8_gemm_tt,
)
from .grouped import (
    _one_layout,
    m_grouped_fp8_gemm_nn_contiguous,
    m_grouped_fp8_gemm_nt_contiguous,
    m_grouped_fp8_gemm_nt_masked,
)
from .weights import PackedWeights

__all__ = [
    "fp8_fp4_gemm_nn",
    "fp8_fp4_gemm_nt",
    "fp8_fp4_gemm_tn",
    "fp8_fp4_gemm_tt",
    "m_grouped_fp8_fp4_gemm_nn_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_masked",
]

_TAKES = Takes("fp8", ("e2m1",))
_MXFP4_GROUP, _ACTIVATION_GROUP = 32, 128


@product()
def fp8_packed_fp4_gemm_nt(
    a: ScaledTokens,
    w: PackedWeights,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    recipe_a: OperandRecipe = None,
    disable_ue8m0_cast: bool = False,
) -> None:
    """FP8 activations, MXFP4 weights: what `fp8_fp4_gemm_nt` does with PackedWeights of 'e2m1'.

    Sums over 32 of K each are scaled and added up in FP32; on Blackwell (SM100) tensor cores do that.

    Args:
        a, d, c, compiled_dims, bias: as for `fp8_int4_gemm_nt`; on SM100 a is that of `fp8_fp4_gemm_nt`.
        w: e2m1 `[N, K]`, packed for 'fp8' activations with groups of 32 (or of a multiple of it).
        recipe_a: of what a scale of a is for: (1, 128), or on SM100 (1, 32).
        disable_ue8m0_cast: refused on SM100, and without a meaning elsewhere.

    Raises:
        as `fp8_int4_gemm_nt`.
    """
    run(a, w, d, c, bias, compiled_dims, _TAKES, _asked(recipe_a, disable_ue8m0_cast))


@product()
def m_grouped_fp8_packed_fp4_gemm_nt_contiguous(
    a: ScaledTokens,
    w: PackedWeights,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    bias: torch.Tensor | None = None,
    recipe_a: OperandRecipe = None,
    disable_ue8m0_cast: bool = False,
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
        bias,
        _asked(recipe_a, disable_ue8m0_cast),
    )


@product()
def m_grouped_fp8_packed_fp4_gemm_nt_masked(
    a: ScaledTokens,
    w: PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    recipe_a: OperandRecipe = None,
    disable_ue8m0_cast: bool = False,
) -> None:
    """`fp8_packed_fp4_gemm_nt` of experts, as `m_grouped_fp8_int4_gemm_nt_masked`."""
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES, bias, _asked(recipe_a, disable_ue8m0_cast))


@product("fp8_fp4_gemm_nt")
def fp8_unpacked_fp4_gemm_nt(
    a: ScaledTokens,
    b: Scaled,
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
    """What `fp8_fp4_gemm_nt` does with a pair, of FP4 or of FP8."""
    if not _is_fp4(b):
        _require_no_bias(bias)
        return fp8_gemm_nt(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)  # type: ignore[arg-type]
    if _is_fp4(a):
        _require_fp4_only(bias, disable_ue8m0_cast)
        return fp4_gemm_nt(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims)  # type: ignore[arg-type]
    w, asked = _pair(b, recipe, recipe_a, recipe_b, disable_ue8m0_cast)
    run(a, w, d, c, bias, compiled_dims, _TAKES, asked)


@product("m_grouped_fp8_fp4_gemm_nt_contiguous")
def m_grouped_fp8_unpacked_fp4_gemm_nt_contiguous(
    a: ScaledTokens,
    b: Scaled,
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
    bias: torch.Tensor | None = None,
) -> None:
    """What `m_grouped_fp8_fp4_gemm_nt_contiguous` does with a pair, of FP4 or of FP8."""
    if not _is_fp4(b):
        _require_no_bias(bias)
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
    if _is_fp4(a):
        _require_fp4_only(bias, disable_ue8m0_cast)
        return m_grouped_fp4_gemm_nt_contiguous(
            a,  # type: ignore[arg-type]
            b,
            d,
            _one_layout(grouped_layout, m_indices),
            recipe,
            recipe_a,
            recipe_b,
            compiled_dims,
            use_psum_layout,
            ensure_zero_padding,
            expected_m_for_psum_layout,
        )
    w, asked = _pair(b, recipe, recipe_a, recipe_b, disable_ue8m0_cast)
    run_contiguous(
        a,
        w,
        d,
        _one_layout(grouped_layout, m_indices),
        compiled_dims,
        use_psum_layout,
        ensure_zero_padding,
        expected_m_for_psum_layout,
        _TAKES,
        bias,
        asked,
    )


@product("m_grouped_fp8_fp4_gemm_nt_masked")
def m_grouped_fp8_unpacked_fp4_gemm_nt_masked(
    a: ScaledTokens,
    b: Scaled,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """What `m_grouped_fp8_fp4_gemm_nt_masked` does with a pair, of FP4 or of FP8."""
    if not _is_fp4(b):
        _require_no_bias(bias)
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
    if _is_fp4(a):
        _require_fp4_only(bias, disable_ue8m0_cast)
        return m_grouped_fp4_gemm_nt_masked(
            a,  # type: ignore[arg-type]
            b,
            d,
            masked_m,
            expected_m,
            recipe,
            recipe_a,
            recipe_b,
            compiled_dims,
        )
    w, asked = _pair(b, recipe, recipe_a, recipe_b, disable_ue8m0_cast)
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES, bias, asked)


def fp8_fp4_gemm_nt(
    a: ScaledTokens,
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
    """`fp8_gemm_nt`, or the product with MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_nt`, with FP8 data; or FP4 weights, as a pair or as PackedWeights. Of a pair, int8
            `[N, K / 2]` of two E2M1 codes a byte, the first one in the low nibble, K contiguous, with scales
            `[N, ceil(K / 32)]` in any strides: float32, float8_e8m0fnu, or int32 of four exponents each `[N,
            ceil(K / 128)]`. On SM100 it is read where it lies if K is a multiple of 128 and rows start at multiples of
            32 bytes, and copied into such rows otherwise; N may be contiguous too, int8 `[N / 2, K]` of codes that
            follow each other along N (`transpose_packed_fp4(w).T`), which are transposed into a workspace. Elsewhere
            each call packs it into one, which takes longer than reading it. PackedWeights of 'e2m1' are packed for
            'fp8' activations, on SM100 for it: then recipe and recipe_b are None.
        a: as for `fp8_gemm_nt`; with FP4 weights its scales may be one for all or one for each token, too, but on
            SM100. There it may be FP4, as b may: beside FP8 with a recipe (`recipe_a` (1, 32)), beside FP4 as for
            `fp4_gemm_nt`.
        d, c, compiled_dims, disable_ue8m0_cast: as for `fp8_gemm_nt`. With FP4 weights SM100 refuses
            `disable_ue8m0_cast`.
        recipe, recipe_a, recipe_b: of FP8 as for `fp8_gemm_nt`. Of FP4 pairs, a has scales for 128 of K (`recipe_a` (1,
            128)), on SM100 also for 32, and b for 32 (`recipe_b` (1, 32), the default), for 128, or but on SM100 for
            another multiple of 32.
        bias: with FP4 weights, as for `fp8_int4_gemm_nt`.

    Raises:
        as `fp8_gemm_nt`, and ValueError where arguments are of the other kind of b.
    """
    if isinstance(b, PackedWeights):
        _require_none(recipe=recipe, recipe_b=recipe_b)
        return fp8_packed_fp4_gemm_nt(
            a, b, d, c, compiled_dims, bias=bias, recipe_a=recipe_a, disable_ue8m0_cast=disable_ue8m0_cast
        )
    if _is_fp4(b):
        return fp8_unpacked_fp4_gemm_nt(
            a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, bias=bias
        )
    _require_no_bias(bias)
    return fp8_gemm_nt(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)  # type: ignore[arg-type]


@product()
def fp8_fp4_gemm_nn(
    a: Scaled,
    b: Scaled,
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
    """`fp8_gemm_nn`, or on Blackwell (SM100) the product with MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_nn`; or FP4 weights as of `fp8_fp4_gemm_nt`, int8 `[K / 2, N]` or, where N is
            contiguous, `[K, N / 2]`, with scales `[ceil(K / 32), N]`.
        a, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, bias: as for `fp8_fp4_gemm_nt`, a and b
            as `fp8_gemm_nn` has them.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if not _is_fp4(b):
        _require_no_bias(bias)
        return fp8_gemm_nn(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)
    w, asked = _pair(b, recipe, recipe_a, recipe_b, disable_ue8m0_cast, _B_TRANSPOSED)
    run(a, w, d, c, bias, compiled_dims, _TAKES, asked)


@product()
def fp8_fp4_gemm_tn(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """`fp8_gemm_tn`, or on Blackwell (SM100) the product with MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_tn`; or FP4 weights as of `fp8_fp4_gemm_nt`, int8 `[K / 2, N]` or, where N is
            contiguous, `[K, N / 2]`, with scales `[ceil(K / 32), N]`.
        a, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, bias: as for `fp8_fp4_gemm_nt`, a and b
            as `fp8_gemm_tn` has them.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if not _is_fp4(b):
        _require_no_bias(bias)
        return fp8_gemm_tn(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)
    w, asked = _pair(b, recipe, recipe_a, recipe_b, disable_ue8m0_cast, _A_TRANSPOSED | _B_TRANSPOSED)
    run(a, w, d, c, bias, compiled_dims, _TAKES, asked)


@product()
def fp8_fp4_gemm_tt(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """`fp8_gemm_tt`, or on Blackwell (SM100) the product with MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_tt`, or FP4 weights as of `fp8_fp4_gemm_nt`.
        a, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, bias: as for `fp8_fp4_gemm_nt`, a and b
            as `fp8_gemm_tt` has them.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if not _is_fp4(b):
        _require_no_bias(bias)
        return fp8_gemm_tt(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)
    w, asked = _pair(b, recipe, recipe_a, recipe_b, disable_ue8m0_cast, _A_TRANSPOSED)
    run(a, w, d, c, bias, compiled_dims, _TAKES, asked)


def m_grouped_fp8_fp4_gemm_nt_contiguous(
    a: ScaledTokens,
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
    bias: torch.Tensor | None = None,
) -> None:
    """`m_grouped_fp8_gemm_nt_contiguous`, or the same with MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nt_contiguous`; or FP4 weights as of `fp8_fp4_gemm_nt`, with G in front.
        a, d, grouped_layout, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, use_psum_layout,
        ensure_zero_padding, expected_m_for_psum_layout, m_indices: as for `m_grouped_fp8_gemm_nt_contiguous`.
        bias: with FP4 weights, bfloat16, float16 or float32 `[G, N]`, added in FP32.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if isinstance(b, PackedWeights):
        _require_none(recipe=recipe, recipe_b=recipe_b)
        return m_grouped_fp8_packed_fp4_gemm_nt_contiguous(
            a,
            b,
            d,
            _one_layout(grouped_layout, m_indices),
            compiled_dims,
            use_psum_layout,
            ensure_zero_padding,
            expected_m_for_psum_layout,
            bias=bias,
            recipe_a=recipe_a,
            disable_ue8m0_cast=disable_ue8m0_cast,
        )
    if _is_fp4(b):
        return m_grouped_fp8_unpacked_fp4_gemm_nt_contiguous(
            a,
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
            bias=bias,
        )
    _require_no_bias(bias)
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


@product()
def m_grouped_fp8_fp4_gemm_nn_contiguous(
    a: Scaled,
    b: Scaled,
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
    bias: torch.Tensor | None = None,
) -> None:
    """`m_grouped_fp8_gemm_nn_contiguous`, or on Blackwell (SM100) the same with MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nn_contiguous`; or FP4 weights as of `fp8_fp4_gemm_nn`, with G in front.
        a, d, grouped_layout, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, use_psum_layout,
        ensure_zero_padding, expected_m_for_psum_layout, m_indices, bias: as for
            `m_grouped_fp8_fp4_gemm_nt_contiguous`.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if not _is_fp4(b):
        _require_no_bias(bias)
        return m_grouped_fp8_gemm_nn_contiguous(
            a,
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
    w, asked = _pair(b, recipe, recipe_a, recipe_b, disable_ue8m0_cast, _B_TRANSPOSED)
    run_contiguous(
        a,
        w,
        d,
        _one_layout(grouped_layout, m_indices),
        compiled_dims,
        use_psum_layout,
        ensure_zero_padding,
        expected_m_for_psum_layout,
        _TAKES,
        bias,
        asked,
    )


def m_grouped_fp8_fp4_gemm_nt_masked(
    a: ScaledTokens,
    b: Scaled | PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """`m_grouped_fp8_gemm_nt_masked`, or the same with MXFP4 weights.

    Args:
        b: a pair as of `m_grouped_fp8_gemm_nt_masked`; or FP4 weights as of `fp8_fp4_gemm_nt`, with G in front.
        a, d, masked_m, expected_m, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast: as for
            `m_grouped_fp8_gemm_nt_masked`.
        bias: with FP4 weights, bfloat16, float16 or float32 `[G, N]`, added in FP32.

    Raises:
        as `fp8_fp4_gemm_nt`.
    """
    if isinstance(b, PackedWeights):
        _require_none(recipe=recipe, recipe_b=recipe_b)
        return m_grouped_fp8_packed_fp4_gemm_nt_masked(
            a,
            b,
            d,
            masked_m,
            expected_m,
            compiled_dims,
            bias=bias,
            recipe_a=recipe_a,
            disable_ue8m0_cast=disable_ue8m0_cast,
        )
    if _is_fp4(b):
        return m_grouped_fp8_unpacked_fp4_gemm_nt_masked(
            a,
            b,
            d,
            masked_m,
            expected_m,
            recipe,
            recipe_a,
            recipe_b,
            compiled_dims,
            disable_ue8m0_cast,
            bias=bias,
        )
    _require_no_bias(bias)
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


def _require_no_bias(bias: torch.Tensor | None) -> None:
    if bias is not None:
        raise ValueError("bias goes with FP4 weights only")


def _require_fp4_only(bias: torch.Tensor | None, disable_ue8m0_cast: bool) -> None:
    if bias is not None or disable_ue8m0_cast:
        raise ValueError("FP4 by FP4 takes no bias, and no float32 scales as they are (disable_ue8m0_cast)")


def _is_fp4(operand: Any) -> bool:
    """Of a pair, or of what is none, which products refuse."""
    return isinstance(operand, (tuple, list)) and len(operand) == 2 and getattr(operand[0], "dtype", None) == torch.int8


def _asked(recipe_a: OperandRecipe, disable_ue8m0_cast: bool) -> Asked:
    """What a call with PackedWeights says of its operands."""
    if recipe_a is not None and recipe_a[0] != 1:
        raise ValueError(f"with PackedWeights scales of a must be for one row, but recipe_a says {recipe_a}")
    return Asked(0 if recipe_a is None else recipe_a[1], _FP32_SCALES if disable_ue8m0_cast else 0)


def _pair(
    b: Scaled,
    recipe: Recipe,
    recipe_a: OperandRecipe,
    recipe_b: OperandRecipe,
    disable_ue8m0_cast: bool,
    transposed: int = 0,
) -> tuple[UnpackedFp4, Asked]:
    """A pair of FP4 weights, and what a call says of its operands."""
    of_a, of_b = _groups(recipe, recipe_a, recipe_b)
    return UnpackedFp4(*b, of_b), Asked(of_a, transposed | (_FP32_SCALES if disable_ue8m0_cast else 0))


def _groups(recipe: Recipe, recipe_a: OperandRecipe, recipe_b: OperandRecipe) -> tuple[int, int]:
    """The K that a scale of a, and of b, is for."""
    if recipe is not None:
        if recipe_a is not None or recipe_b is not None:
            raise ValueError("give either recipe or recipe_a and recipe_b, not both")
        of_a, of_b = (recipe[0], recipe[2]), (recipe[1], recipe[2])
    elif recipe_a is None and recipe_b is None:
        return _ACTIVATION_GROUP, _MXFP4_GROUP
    elif recipe_a is None or recipe_b is None:
        raise ValueError("recipe_a and recipe_b go together: give both or none")
    else:
        of_a, of_b = recipe_a, recipe_b
    if of_a[0] != 1 or of_b[0] != 1:
        raise ValueError(
            f"with FP4 weights scales of a and those of b must be for one row (recipe_a=(1, {_ACTIVATION_GROUP}), "
            f"recipe_b=(1, {_MXFP4_GROUP})), but the recipe says {of_a} and {of_b}"
        )
    return of_a[1], of_b[1]
