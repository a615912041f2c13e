"""GEMM calls whose rows belong to experts, each with its own weights.

*Contiguous*: the experts' rows follow each other in one matrix, each expert starting at a multiple of
`get_mk_alignment_for_contiguous_layout()`. *Masked*: every expert has a matrix of the same height, of which only the
first `masked_m[g]` rows count. Row counts lie on the device and are read there, so every call can be captured in a
CUDA graph and replayed with other counts. See `deep_gemm.fp8` for what the functions have in common.
"""

from __future__ import annotations

import torch

from ._call import (
    FP32_SCALES,
    NN,
    NT,
    OperandRecipe,
    Recipe,
    Rows,
    contiguous,
    masked,
    one_layout,
    one_recipe,
    write_empty_experts,
    write_empty_masked,
)
from ._output import Output
from ._product import product
from .epilogue import NO_STEPS, Epilogue, step_arguments
from .fp8 import FP4, Scaled

__all__ = [
    "fp8_m_grouped_gemm_nt_masked",
    "m_grouped_fp8_gemm_nn_contiguous",
    "m_grouped_fp8_gemm_nt_contiguous",
    "m_grouped_fp8_gemm_nt_masked",
]


def _run_contiguous(
    lies: str,
    layout: int,
    a: Scaled,
    b: Scaled,
    d: Output,
    grouped_layout: torch.Tensor,
    how: tuple[Recipe, OperandRecipe, OperandRecipe, str, bool],
    rows: Rows,
    epilogue: Epilogue | None,
) -> None:
    """`lies`: how operands lie, as names say it; `how`: recipes, compiled_dims, disable_ue8m0_cast."""
    (a_data, a_scales), (b_data, b_scales) = a, b
    recipe, recipe_a, recipe_b, _, float_scales = how
    if b_data.dtype is FP4:
        from . import fp8_fp4_grouped

        function = getattr(fp8_fp4_grouped, f"m_grouped_fp8_fp4_gemm_{lies}_contiguous")
        function(a, b, d, grouped_layout, *how, *rows, epilogue)
        return
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    fields = layout | FP32_SCALES if float_scales else layout, steps, one_recipe(recipe, recipe_a, recipe_b)
    if not contiguous(a_data, a_scales, b_data, b_scales, d, grouped_layout, *rows, *fields):
        write_empty_experts(d, grouped_layout, rows[0], b_data.shape[0])


@product()
def m_grouped_fp8_gemm_nt_contiguous(
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
) -> None:
    """Each row times the weights of its expert: `d[m] = a[m] @ b[expert of m].T`.

    Every expert's rows start at a multiple of `get_mk_alignment_for_contiguous_layout()` (128 unless set). Experts
    may be empty. Padding rows of `a` and of its scales may hold anything, NaN included; no other row sees them.

    Args:
        a: float8_e4m3fn `[M, K]`, K contiguous, rows as for `fp8_gemm_nt`; with scales `[M, ceil(K / 128)]`, of any of
            the kinds that `deep_gemm.fp8` names, in any strides (MN-major ones with columns 16-byte aligned are used
            as they are, others are brought into that layout first).
        b: float8_e4m3fn `[G, N, K]`; with scales `[G, ceil(N / 128), ceil(K / 128)]`, or per row `[G, N,
            ceil(K / 128)]` with recipe (1, 1, 128). Or FP4 weights (int8), as of
            `m_grouped_fp8_fp4_gemm_nt_contiguous`.
        d: bfloat16, float32 or float16 `[M, N]`, N contiguous. Rows of experts are written, and padding rows as
            zeros: see `ensure_zero_padding`.
        grouped_layout: int32 on `a`'s device. `[M]`: the expert of each row, -1 for padding. With `use_psum_layout`,
            `[G]`: where each expert's real rows end; expert g + 1 starts at that value rounded up to the alignment.
            What no right caller hands over (an expert that starts elsewhere, ends that decrease) is refused on CPU
            tensors, on GPUs with `DG_CHECK_LAYOUTS`; otherwise it gives wrong rows of `d`.
        recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast: as for `fp8_gemm_nt`.
        use_psum_layout: what `grouped_layout` means.
        ensure_zero_padding: in the psum layout, rows from an expert's end up to that end rounded up to the alignment
            are written as zeros (rows beyond the last of them are never touched). Without it they may hold anything
            afterwards. In the layout of indices, rows that name no expert always become zeros.
        expected_m_for_psum_layout: rows of an expert to choose the kernel for. A hint: any count gives right results.
        epilogue: None, or what happens to complete sums: `deep_gemm.epilogue`.
        m_indices: older name of `grouped_layout`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    where = one_layout(grouped_layout, m_indices)
    how = recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    _run_contiguous("nt", NT[compiled_dims], a, b, d, where, how, rows, epilogue)


@product()
def m_grouped_fp8_gemm_nn_contiguous(
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
) -> None:
    """Each row times the weights of its expert, which are [K, N]: `d[m] = a[m] @ b[expert of m]`.

    Args:
        b: float8_e4m3fn `[G, K, N]` with scales `[G, ceil(K / 128), ceil(N / 128)]`, or per column `[G, ceil(K / 128),
            N]` with recipe (1, 1, 128). Tensor cores but SM100's read FP8 along K only: there weights with N contiguous
            are transposed into a workspace first.
        The others: as for `m_grouped_fp8_gemm_nt_contiguous`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    where = one_layout(grouped_layout, m_indices)
    how = recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    _run_contiguous("nn", NN[compiled_dims], a, b, d, where, how, rows, epilogue)


@product("fp8_m_grouped_gemm_nt_masked")
def m_grouped_fp8_gemm_nt_masked(
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
    epilogue: Epilogue | None = None,
    *,
    enable_overlap: bool = False,
    max_block_n: int = 256,
    signal: torch.Tensor | None = None,
) -> None:
    """The first rows of each expert's matrix: `d[g, m] = a[g, m] @ b[g].T` for `m < masked_m[g]`.

    Args:
        a: float8_e4m3fn `[G, max_m, K]`, K contiguous; with scales `[G, max_m, ceil(K / 128)]`, of any of the kinds
            that `deep_gemm.fp8` names, in any strides (those whose last two dimensions are MN-major and 16-byte
            aligned are used as they are). Rows from `masked_m[g]` on may hold anything, NaN included, in `a` and in its
            scales; no other row sees them.
        b: float8_e4m3fn `[G, N, K]`; with scales `[G, ceil(N / 128), ceil(K / 128)]`, or per row `[G, N,
            ceil(K / 128)]` with recipe (1, 1, 128). Or FP4 weights (int8), as of `m_grouped_fp8_fp4_gemm_nt_masked`.
        d: bfloat16, float32 or float16 `[G, max_m, N]`, N contiguous. Rows from `masked_m[g]` on are garbage as
            far as the last tile of the expert reaches, and stay as they are beyond.
        masked_m: int32 `[G]` on `a`'s device, each from 0 to max_m. Negative ones are refused on CPU tensors, on GPUs
            with `DG_CHECK_LAYOUTS`.
        expected_m: rows of an expert to choose the kernel for. A hint: any counts give right results.
        recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, epilogue: as for `fp8_gemm_nt`.
        enable_overlap, max_block_n, signal: what SGLang's single-batch overlap passes. enable_overlap must be False,
            which makes the others mean nothing.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    if enable_overlap:
        raise NotImplementedError(
            "enable_overlap must be False, since no tile signals that it is done: start SGLang without "
            "--enable-single-batch-overlap"
        )
    layout = NT[compiled_dims]
    if disable_ue8m0_cast:
        layout |= FP32_SCALES
    (a_data, a_scales), (b_data, b_scales) = a, b
    if b_data.dtype is FP4:
        from .fp8_fp4_grouped import m_grouped_fp8_fp4_gemm_nt_masked

        return m_grouped_fp8_fp4_gemm_nt_masked(
            a, b, d, masked_m, expected_m, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, epilogue
        )
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    how = layout, steps, one_recipe(recipe, recipe_a, recipe_b)
    if not masked(a_data, a_scales, b_data, b_scales, d, masked_m, expected_m, *how):
        write_empty_masked(d, masked_m)


# Names that callers of DeepGEMM use for the same functions.
fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_gemm_nt_masked
