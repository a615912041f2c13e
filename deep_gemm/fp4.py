"""GEMM calls of FP4 with FP4, on Blackwell only: SM100, and SM120 (RTX 50, RTX PRO, DGX Spark).

Operands are `(codes, scales)`. Codes are int8 of two E2M1 codes a byte, the first one of K in the low nibble; uint8 and
float4_e2m1fn_x2 of the same bytes are taken too. K is contiguous, rows lie any number of bytes apart (fastest: a
multiple of 128; where rows do not start at multiples of 16 bytes, they are copied into a workspace first). Both
operands have scales of the same kind, one for each row and

- 32 of K (MXFP4): UE8M0, powers of two, as float8_e8m0fnu or uint8 `[rows, ceil(K / 32)]`, as float32 of the same
  shape, of which others than powers of two are treated as `deep_gemm.fp8` says, or as int32 `[rows, ceil(K / 128)]` of
  four exponents each;
- 16 of K (NVFP4): E4M3, of which the sign means nothing, as float8_e4m3fn `[rows, ceil(K / 16)]`, or, with recipe
  (1, 1, 16), as int32 `[rows, ceil(K / 64)]` of four each, or uint8.

Scales have any strides, and no other layout: rows of them in tiles, as other libraries swizzle them, must be brought
into these first. int32 of which rows are contiguous and columns 16-byte aligned are used as they are
(`get_mn_major_tma_aligned_packed_ue8m0_tensor`); what its bytes hold behind the end of K does not matter. All others
are packed on the way, in each call. NVFP4's words, of K a multiple of 64 and rows of 4, are
`scales.view(torch.int32).mT.contiguous().mT`. K is any even number. See `deep_gemm.fp8` for what the functions have
in common.

FP8 or BF16 activations with FP4 weights are `fp8_fp4_gemm_nt` and `bf16_fp4_gemm_nt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._call import (
    FP4_PAIRS,
    FP32_SCALES,
    NT,
    OperandRecipe,
    Recipe,
    contiguous_fields,
    one_layout,
    operand_recipes,
    run,
    write_empty_experts,
    write_empty_masked,
)
from ._dtypes import FP4_PAIR, e8m0
from ._numbers import integer
from ._output import Output, data_of, write_empty
from ._product import product
from .epilogue import Epilogue, steps_of, sum_record
from .fp8 import Scaled
from .k_grouped import groups_of, without_padding

__all__ = [
    "fp4_gemm_nt",
    "k_grouped_fp4_gemm_nt_contiguous",
    "m_grouped_fp4_gemm_nt_contiguous",
    "m_grouped_fp4_gemm_nt_masked",
]

Alpha = torch.Tensor | float | None

_MXFP4_GROUP, _NVFP4_GROUP = 32, 16
_CODES = (torch.uint8, *FP4_PAIR)


@product()
def fp4_gemm_nt(
    a: Scaled,
    b: Scaled,
    d: Output,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    alpha: Alpha = None,
    epilogue: Epilogue | None = None,
) -> None:
    """Dense FP4 GEMM: `d[m, n] = c[m, n] + sum_k a[m, k] sfa[m, k // g] b[n, k] sfb[n, k // g]`.

    `g` is 32 (MXFP4) or 16 (NVFP4). With `alpha` it is `c[m, n] + alpha * sum_k ...`.

    Args:
        a: int8 `[M, K / 2]`, K contiguous, with scales `[M, ceil(K / g)]`: see above.
        b: int8 `[N, K / 2]`, with scales `[N, ceil(K / g)]`.
        d: bfloat16, float32 or float16 `[M, N]`, N contiguous, any row stride. Written.
        c: added in FP32 before rounding; `d`'s shape and dtype, and may be `d` itself.
        recipe: (1, 1, g); recipe_a, recipe_b: (1, g) each. By default what a's scales say: 16 where they are
            float8_e4m3fn, else 32.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        disable_ue8m0_cast: refused beside float32 scales, which nothing multiplies as they are; changes nothing else.
        alpha: an FP32 factor on complete sums, such as the product of NVFP4's global scales: a number, or a float32
            tensor of one element on `a`'s device, which the kernel reads, so that it may change between replays of a
            graph. (A CPU tensor without dimensions beside CUDA operands is read as a number.)
        epilogue: as for `fp8_gemm_nt`. Beside it alpha must be None.

    Raises:
        ValueError, TypeError: an argument cannot be right, or this is neither SM100 nor SM120; nothing was launched or
            written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    layout = NT[compiled_dims]
    if disable_ue8m0_cast:
        layout |= FP32_SCALES
    steps = _step_fields(alpha, epilogue, data_of(d))
    if not run(**_operands(a, b, recipe, recipe_a, recipe_b), **steps, d=d, c=c, layout=layout):
        write_empty(d, c, (None, steps["row_scale"], None))


@product()
def m_grouped_fp4_gemm_nt_contiguous(
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
    alpha: Alpha = None,
    epilogue: Epilogue | None = None,
    *,
    m_indices: torch.Tensor | None = None,
) -> None:
    """Each row times the weights of its expert, as `m_grouped_fp8_gemm_nt_contiguous`.

    Args:
        a: int8 `[M, K / 2]`, with scales `[M, ceil(K / g)]`.
        b: int8 `[G, N, K / 2]`, with scales `[G, N, ceil(K / g)]`.
        d, grouped_layout, compiled_dims, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout, m_indices:
            as for `m_grouped_fp8_gemm_nt_contiguous`.
        recipe, recipe_a, recipe_b, disable_ue8m0_cast: as for `fp4_gemm_nt`.
        alpha, epilogue: as for `fp4_gemm_nt`; alpha may be float32 `[G]`, one for each expert.

    Raises:
        ValueError, TypeError: as of `fp4_gemm_nt`.
    """
    layout = NT[compiled_dims]
    if disable_ue8m0_cast:
        layout |= FP32_SCALES
    where = one_layout(grouped_layout, m_indices)
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    operands = _operands(a, b, recipe, recipe_a, recipe_b)
    steps = _step_fields(alpha, epilogue, data_of(d))
    if not run(**operands, **contiguous_fields(where, rows), **steps, d=d, layout=layout):
        write_empty_experts(d, where, use_psum_layout, operands["b"].shape[0])


@product()
def m_grouped_fp4_gemm_nt_masked(
    a: Scaled,
    b: Scaled,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    alpha: Alpha = None,
    epilogue: Epilogue | None = None,
) -> None:
    """The first `masked_m[g]` rows of each expert times its weights, as `m_grouped_fp8_gemm_nt_masked`.

    Args:
        a: int8 `[G, max_m, K / 2]`, with scales `[G, max_m, ceil(K / g)]`.
        b: int8 `[G, N, K / 2]`, with scales `[G, N, ceil(K / g)]`.
        d, masked_m, expected_m, compiled_dims: as for `m_grouped_fp8_gemm_nt_masked`.
        recipe, recipe_a, recipe_b, disable_ue8m0_cast: as for `fp4_gemm_nt`.
        alpha, epilogue: as for `fp4_gemm_nt`; alpha may be float32 `[G]`, one for each expert.

    Raises:
        ValueError, TypeError: as of `fp4_gemm_nt`.
    """
    layout = NT[compiled_dims]
    if disable_ue8m0_cast:
        layout |= FP32_SCALES
    expected_m = integer("expected_m", expected_m)
    operands = _operands(a, b, recipe, recipe_a, recipe_b)
    steps = _step_fields(alpha, epilogue, data_of(d))
    if not run(**operands, **steps, masked_m=masked_m, expected_m=expected_m, d=d, layout=layout):
        write_empty_masked(d, masked_m)


@product()
def k_grouped_fp4_gemm_nt_contiguous(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    alpha: Alpha = None,
    epilogue: Epilogue | None = None,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: torch.Tensor | None = None,
    use_padded_sf_layout: bool = False,
) -> None:
    """`d[g, m, n] = c[g, m, n] + sum over g's K range of a[m, k] b[n, k]`, scaled.

    Args:
        a: int8, one dimension: the groups' matrices `[M, k_g / 2]` flattened one after the other, with scales
            `[blocks, M]` or `[M, blocks]`, where `blocks` is the sum of `ceil(k_g / g)`, of words that of
            `ceil(k_g / (4 g))`: no word is of two groups. They are told apart as those of
            `k_grouped_fp8_gemm_tn_contiguous`.
        b: the same of `[N, k_g / 2]`.
        d: bfloat16, float32 or float16 `[G, M, N]`, N contiguous. Written.
        ks_cpu: each group's K, on the host: multiples of 32, or 0. Such a group gets c, or zero.
        grouped_layout, c, compiled_dims, use_psum_layout, ks, ks_tensor, use_padded_sf_layout: as for
            `k_grouped_fp8_gemm_nt_contiguous`.
        recipe, alpha, epilogue: as for `fp4_gemm_nt`.

    Raises:
        ValueError, TypeError: as of `fp4_gemm_nt`.
    """
    groups = groups_of(ks_cpu, grouped_layout, ks, ks_tensor, use_psum_layout)
    operands = _operands(a, b, recipe, None, None)
    if use_padded_sf_layout or use_psum_layout:
        for name, rows in (("a_scales", d.shape[-2]), ("b_scales", d.shape[-1])):
            operands[name] = without_padding(operands[name], rows, groups, operands["a_group_k"], use_padded_sf_layout)
    steps = _step_fields(alpha, epilogue, d)
    layout = NT[compiled_dims]
    if not run(**operands, **groups.fields(), **steps, group_by_group=True, d=d, c=c, layout=layout):
        write_empty(d, c)


def _operands(a: Scaled, b: Scaled, recipe: Recipe, recipe_a: OperandRecipe, recipe_b: OperandRecipe) -> dict[str, Any]:
    """Fields of the record."""
    (a_codes, a_scales), (b_codes, b_scales) = a, b
    gran_k = _gran_k(a_scales, recipe, recipe_a, recipe_b)
    scale = torch.float8_e4m3fn if gran_k == _NVFP4_GROUP else e8m0()
    return {
        "a": a_codes.view(torch.int8) if a_codes.dtype in _CODES else a_codes,
        "a_scales": a_scales.view(scale) if a_scales.dtype == torch.uint8 else a_scales,
        "a_element": FP4_PAIRS,
        "a_group_k": gran_k,
        "b": b_codes.view(torch.int8) if b_codes.dtype in _CODES else b_codes,
        "b_scales": b_scales.view(scale) if b_scales.dtype == torch.uint8 else b_scales,
        "b_element": FP4_PAIRS,
        "b_group_k": gran_k,
    }


def _step_fields(alpha: Alpha, epilogue: Epilogue | None, d: torch.Tensor) -> dict[str, Any]:
    """Fields of the record: alpha as a tensor, or as a number's bits; and the rows' weights."""
    factor, row_scale, gate, rounding = steps_of(alpha, epilogue)
    tensor = None
    if isinstance(factor, torch.Tensor):
        if factor.ndim > 0 or factor.device == d.device or factor.device.type != "cpu":
            tensor, factor = factor, None
        else:
            factor = factor.item()  # as torch's own operators mix them
    return {"alpha": tensor, "alpha_bits": sum_record(factor, rounding), "row_scale": row_scale, "gate": gate}


def _gran_k(a_scales: torch.Tensor, recipe: Recipe, recipe_a: OperandRecipe, recipe_b: OperandRecipe) -> int:
    recipes = operand_recipes(recipe, recipe_a, recipe_b)
    if recipes is None:
        return _NVFP4_GROUP if a_scales.dtype == torch.float8_e4m3fn else _MXFP4_GROUP
    of_a, of_b = recipes
    if of_a != of_b or of_a not in ((1, _MXFP4_GROUP), (1, _NVFP4_GROUP)):
        raise ValueError(
            f"FP4 operands have a scale for each row and {_MXFP4_GROUP} of K, recipe (1, 1, {_MXFP4_GROUP}), or "
            f"{_NVFP4_GROUP}, recipe (1, 1, {_NVFP4_GROUP}), both alike, but the recipe says {of_a} and {of_b}"
        )
    return of_a[1]
