"""GEMM calls of activations of 8 bits with weights of 4 bits.

Named activations_weights. `w` is what `deep_gemm.pack_weights` has made for these activations: weights `[N, K]`, or
`[G, N, K]` of experts. They are converted in registers on their way to the tensor cores, so that memory moves 4 bits
for each. `a` is a pair (data, scales); scales are float32: one for all of it (a Python number or a tensor `[]` or
`[1]`), one for each token (`[M]`, `[M, 1]`; masked `[G, max_m]`), or, of FP8, one for each token and 128 of K (`[M,
ceil(K / 128)]`). See `deep_gemm.gemm` for what the functions have in common with those of FP8.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch

from ._extension import C
from ._numbers import integer
from ._product import product
from .gemm import _NT, OperandRecipe, Recipe, Scaled, _write_empty_product, fp8_gemm_nt
from .grouped import _one_layout, m_grouped_fp8_gemm_nt_contiguous, m_grouped_fp8_gemm_nt_masked
from .weights import PackedWeights

__all__ = [
    "fp8_fp4_gemm_nt",
    "fp8_int4_gemm_nt",
    "int8_int4_gemm_nt",
    "m_grouped_fp8_fp4_gemm_nt_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_masked",
    "m_grouped_fp8_int4_gemm_nt_contiguous",
    "m_grouped_fp8_int4_gemm_nt_masked",
    "m_grouped_int8_int4_gemm_nt_contiguous",
    "m_grouped_int8_int4_gemm_nt_masked",
]

Activations = tuple[torch.Tensor, torch.Tensor | float]

_INTEGERS = ("int4", "uint4")
_FP4 = ("e2m1",)
_S4, _S4M, _E2M1 = 8, 9, 10  # of `enum class Element` in deep_gemm/include/deep_gemm/format.cuh
_NO_NUMBER = -1
_MOST_EXACT_K = 131071  # products of any values then add up within s32


@product()
def fp8_int4_gemm_nt(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """FP8 activations, int4 weights: `d[m, n] = c[m, n] + sum_k a[m, k] sfa[m, k] w[n, k] + bias[n]`.

    Sums over 128 of K each are scaled and added up in FP32.

    Args:
        a: float8_e4m3fn `[M, K]`, K contiguous and a multiple of 16, with scales as the module says.
        w: int4 `[N, K]`, packed for 'fp8' activations, groups of any size.
        d: bfloat16, float16 or float32 `[M, N]`, N contiguous, any row stride. Written.
        c: added; `d`'s shape and dtype, and may be `d` itself.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[N]`, added in FP32: where scales are not for groups of K.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        NotImplementedError: the weights have zero points.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    _run(a, w, d, c, bias, compiled_dims, "fp8")


@product()
def int8_int4_gemm_nt(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """INT8 activations, int4 weights: `d[m, n] = c[m, n] + float(sum_k a[m, k] q[n, k]) sfa[m] sfw[n] + bias[n]`.

    The sum is an exact integer, of the weights' codes q, for K up to 131,071.

    Args:
        a: int8 `[M, K]`, K contiguous and a multiple of 16, with one scale or one for each token.
        w: int4 `[N, K]`, packed for 'int8' activations with one scale a channel (group_size None).
        d, c, compiled_dims, bias: as for `fp8_int4_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        NotImplementedError: the weights have zero points, or scales for groups of K.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    _run(a, w, d, c, bias, compiled_dims, "int8")


@product()
def m_grouped_fp8_int4_gemm_nt_contiguous(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
) -> None:
    """`fp8_int4_gemm_nt` of experts whose rows follow each other: `d[rows of g] = a[rows of g] @ w[g].T`.

    Args:
        a: float8_e4m3fn `[M, K]` with scales as the module says; rows of padding may hold anything.
        w: int4 `[G, N, K]`, packed for 'fp8' activations.
        d: bfloat16, float16 or float32 `[M, N]`.
        grouped_layout, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout: as for
            `m_grouped_fp8_gemm_nt_contiguous`.
        compiled_dims: which of M, N, K are constants of the compiled kernel.

    Raises:
        as `fp8_int4_gemm_nt`.
    """
    _run_contiguous(
        a, w, d, grouped_layout, compiled_dims, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout, "fp8"
    )


@product()
def m_grouped_int8_int4_gemm_nt_contiguous(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
) -> None:
    """`int8_int4_gemm_nt` of experts whose rows follow each other: `d[rows of g] = a[rows of g] @ w[g].T`.

    Args:
        a: int8 `[M, K]` with one scale or one for each token; rows of padding may hold anything.
        w: int4 `[G, N, K]`, packed for 'int8' activations with one scale a channel.
        d, grouped_layout, compiled_dims, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout: as for
            `m_grouped_fp8_int4_gemm_nt_contiguous`.

    Raises:
        as `int8_int4_gemm_nt`.
    """
    _run_contiguous(
        a, w, d, grouped_layout, compiled_dims, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout, "int8"
    )


@product()
def m_grouped_fp8_int4_gemm_nt_masked(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
) -> None:
    """`fp8_int4_gemm_nt` of experts with matrices of their own: `d[g] = a[g] @ w[g].T` for its first masked_m[g] rows.

    Args:
        a: float8_e4m3fn `[G, max_m, K]` with scales as the module says; other rows may hold anything.
        w: int4 `[G, N, K]`, packed for 'fp8' activations.
        d: bfloat16, float16 or float32 `[G, max_m, N]`.
        masked_m: int32 `[G]` on the device.
        expected_m: rows of an expert that the caller expects; a hint.
        compiled_dims: which of M, N, K are constants of the compiled kernel.

    Raises:
        as `fp8_int4_gemm_nt`.
    """
    _run_masked(a, w, d, masked_m, expected_m, compiled_dims, "fp8")


@product()
def m_grouped_int8_int4_gemm_nt_masked(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
) -> None:
    """`int8_int4_gemm_nt` of experts with matrices of their own: `d[g] = a[g] @ w[g].T` for its first masked_m[g] rows.

    Args:
        a: int8 `[G, max_m, K]` with one scale or one for each row; other rows may hold anything.
        w: int4 `[G, N, K]`, packed for 'int8' activations with one scale a channel.
        d, masked_m, expected_m, compiled_dims: as for `m_grouped_fp8_int4_gemm_nt_masked`.

    Raises:
        as `int8_int4_gemm_nt`.
    """
    _run_masked(a, w, d, masked_m, expected_m, compiled_dims, "int8")


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
    _run(a, w, d, c, bias, compiled_dims, "fp8", _FP4)


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
    _run_contiguous(
        a,
        w,
        d,
        grouped_layout,
        compiled_dims,
        use_psum_layout,
        ensure_zero_padding,
        expected_m_for_psum_layout,
        "fp8",
        _FP4,
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
    _run_masked(a, w, d, masked_m, expected_m, compiled_dims, "fp8", _FP4)


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


def _run(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    c: torch.Tensor | None,
    bias: torch.Tensor | None,
    compiled_dims: str,
    activations: str,
    elements: tuple[str, ...] = _INTEGERS,
) -> None:
    codes, scales, told, data, data_scales = _told(a, w, activations, elements)
    if not C.packed_gemm(data, data_scales, codes, scales, d, c, bias, told, _NT[compiled_dims]):
        _write_empty_product(d, c)


def _run_contiguous(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    grouped_layout: torch.Tensor,
    compiled_dims: str,
    use_psum_layout: bool,
    ensure_zero_padding: bool,
    expected_m_for_psum_layout: int | None,
    activations: str,
    elements: tuple[str, ...] = _INTEGERS,
) -> None:
    codes, scales, told, data, data_scales = _told(a, w, activations, elements)
    hint = (
        0 if expected_m_for_psum_layout is None else integer("expected_m_for_psum_layout", expected_m_for_psum_layout)
    )
    if not C.packed_m_grouped_gemm_contiguous(
        data,
        data_scales,
        codes,
        scales,
        d,
        grouped_layout,
        told,
        _NT[compiled_dims],
        use_psum_layout,
        ensure_zero_padding,
        hint,
    ):
        d.zero_()


def _run_masked(
    a: Activations,
    w: PackedWeights,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str,
    activations: str,
    elements: tuple[str, ...] = _INTEGERS,
) -> None:
    codes, scales, told, data, data_scales = _told(a, w, activations, elements)
    expected_m = integer("expected_m", expected_m)
    if not C.packed_m_grouped_gemm_masked(
        data, data_scales, codes, scales, d, masked_m, expected_m, told, _NT[compiled_dims]
    ):
        d.zero_()


Told = tuple[torch.Tensor, torch.Tensor, Sequence[int], torch.Tensor, torch.Tensor | None]


def _told(a: Activations, w: PackedWeights, activations: str, elements: tuple[str, ...]) -> Told:
    """What the runtime takes: the weights' codes and scales, four numbers about them, a's data and scales."""
    if w.activations != activations:
        raise ValueError(
            f"w is packed for {w.activations!r} activations, but this function has {activations!r} ones: pack it anew "
            f"with pack_weights(..., activations={activations!r})"
        )
    if w.element not in elements:
        raise ValueError(f"w must be of {' or '.join(elements)}, but is of {w.element}")
    if w.needs_zeros:
        raise NotImplementedError("weights with zero points are not multiplied yet: pack symmetric ones")
    if activations == "int8" and w.group_size is not None:
        raise NotImplementedError(
            f"w has scales for groups of {w.group_size} of K, but INT8 activations want one scale a channel as yet: "
            "pack with group_size=None, or for 'fp8' activations"
        )
    if activations == "int8" and w.shape[-1] > _MOST_EXACT_K:
        raise NotImplementedError(f"K must be at most {_MOST_EXACT_K} with INT8 activations, but is {w.shape[-1]}")
    data, given = a
    data_scales = given if isinstance(given, torch.Tensor) else None
    number = _NO_NUMBER if data_scales is not None else _fp32_bits(given)
    n, k = w.shape[-2:]
    return w.codes.view(w.experts, -1), w.scales, (_number_of(w), n, k, w.scale_group or 0, number), data, data_scales


def _number_of(w: PackedWeights) -> int:
    """The element that kernels convert from."""
    if w.element == "e2m1":
        return _E2M1
    return _S4 if w.activations == "int8" or w.holds_minus_eight else _S4M


def _fp32_bits(number: Any) -> int:
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", number))[0]
    except OverflowError:
        raise ValueError(f"a's scale must be a number that FP32 can hold, but is {number}") from None
    return bits
