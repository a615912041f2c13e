"""The GEMM calls of FP8 operands.

`D = C + A @ B` in the layouts that the names give; `(t, sf)` is a pair of a data tensor and its scale tensor. Every
function writes into `d` and returns None. CUDA tensors run on their GPU, on torch's current stream; CPU tensors run on
the PTX simulator.

SM100 is B200 and B300, SM90 H100 and H200, SM120 RTX 50, RTX PRO Blackwell and DGX Spark, SM80 every other GPU from
compute capability 8.0 on.

Scales. On SM80 and SM90 they are float32, one for each row (or 128 x 128 block) and 128 of K, or for each row and 32 of
K (blocks of these are repeated for each row first); float8_e8m0fnu becomes that on the way, and so do int32 words of
exponents as SM100 takes them, which are per row. SM120 does the same with float32 scales, and multiplies exponents as
they are where both operands have bytes or words of them. SM100 multiplies exponents,
of powers of two, one for each row and 128 or 32 of K, as the recipe says of each operand. They may come as

- int32 `[rows, ceil(K / 512)]` (of 32 of K a scale: `ceil(K / 128)`), four exponents each, as
  `get_mn_major_tma_aligned_packed_ue8m0_tensor` packs them: used as they are where rows are contiguous and columns
  16-byte aligned, else brought into that layout first;
- float8_e8m0fnu or float32, one for each row, for each 128 rows, or for 32 rows and 32 of K: packed on the way.

Float32 scales that are no powers of two are never rounded there, since that would change what the data mean. With
`disable_ue8m0_cast=True`, or after `set_fp32_scales(True)`, they are multiplied as they are, one for each 128 of K, as
on Hopper, beside words too, which are then unpacked. (Where both operands have words there is nothing to cast, and both
say nothing.) Else they are refused on CPU tensors, and on a GPU, where nobody waits to look at them, make NaN. Shapes
of scales below are those of one for each 128 of K that is not packed.

NaN. Where an operand holds E4M3's code for it (0x7f, 0xff), so do the sums that it enters; but not on GPUs of compute
capability 8.0 to 8.8, which multiply FP8 in FP16: there the code counts as 480, with its sign. Scales and C make NaN of
NaN everywhere.
"""

from __future__ import annotations

from typing import Protocol

import torch

from ._call import FP32_SCALES, NN, NT, TN, TT, Layouts, OperandRecipe, Recipe, dense, one_recipe, run
from ._output import Output, write_empty
from ._product import named, product
from .epilogue import NO_STEPS, Epilogue, step_arguments

__all__ = [
    "fp8_gemm_nn",
    "fp8_gemm_nt",
    "fp8_gemm_nt_skip_head_mid",
    "fp8_gemm_tn",
    "fp8_gemm_tt",
]

Scaled = tuple[torch.Tensor, torch.Tensor]
HeadSplits = tuple[int, int, int]

FP4 = torch.int8  # two codes a byte: weights of the functions whose names say fp8_fp4


class DenseProduct(Protocol):
    def __call__(
        self,
        a: Scaled,
        b: Scaled,
        d: Output,
        c: torch.Tensor | None = None,
        recipe: Recipe = None,
        recipe_a: OperandRecipe = None,
        recipe_b: OperandRecipe = None,
        compiled_dims: str = ...,
        disable_ue8m0_cast: bool = False,
        alpha: float | None = None,
        epilogue: Epilogue | None = None,
    ) -> None: ...


def _dense_product(lies: str, layouts: Layouts, dims: str, doc: str) -> DenseProduct:
    """`lies`: how operands lie, as names say it; `dims`: what is compiled in by default."""

    def function(
        a: Scaled,
        b: Scaled,
        d: Output,
        c: torch.Tensor | None = None,
        recipe: Recipe = None,
        recipe_a: OperandRecipe = None,
        recipe_b: OperandRecipe = None,
        compiled_dims: str = dims,
        disable_ue8m0_cast: bool = False,
        alpha: float | None = None,
        epilogue: Epilogue | None = None,
    ) -> None:
        layout = layouts[compiled_dims]
        if disable_ue8m0_cast:
            layout |= FP32_SCALES
        (a_data, a_scales), (b_data, b_scales) = a, b
        steps = NO_STEPS if alpha is None and epilogue is None else step_arguments(alpha, epilogue)
        sharing = recipe if recipe_a is None and recipe_b is None else one_recipe(recipe, recipe_a, recipe_b)
        if not dense(a_data, a_scales, b_data, b_scales, d, c, layout, steps, sharing):
            if b_data.dtype is FP4:  # asked last, since asking costs
                from . import fp8_fp4

                how = recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, alpha, epilogue
                getattr(fp8_fp4, f"fp8_fp4_gemm_{lies}")(a, b, d, c, *how)
            else:
                write_empty(d, c, steps)

    return product()(named(function, f"fp8_gemm_{lies}", doc))


fp8_gemm_nt = _dense_product(
    "nt",
    NT,
    "nk",
    """Dense FP8 GEMM: `d[m, n] = c[m, n] + sum_k a[m, k] sfa[m, k // 128] b[n, k] sfb[n // 128, k // 128]`.

    Args:
        a: float8_e4m3fn `[M, K]`. K contiguous, rows at multiples of 16 bytes (fastest: of 128): read in place; other
            rows, of which K must be a multiple of 16 except on SM100, are copied into a workspace first. M contiguous:
            read in place on SM100 where lines start at multiples of 16 bytes; transposed into a workspace elsewhere,
            where tensor cores read FP8 along K only. NaN codes: see above. With scales `[M, ceil(K / 128)]` in any
            strides, see above: MN-major ones with columns 16-byte aligned are used as they are, others are brought into
            that layout first.
        b: float8_e4m3fn `[N, K]`, likewise; with scales `[ceil(N / 128), ceil(K / 128)]`, or per row `[N,
            ceil(K / 128)]` with recipe (1, 1, 128). Packed ones are per row always. Or FP4 weights (int8, two E2M1
            codes each), as of `fp8_fp4_gemm_nt`, which this then is.
        d: bfloat16, float32 or float16 `[M, N]`, N contiguous, any row stride. Written. In float16 what would round to
            more than 65504 becomes infinite. Or a pair (q, s) as the next product takes A, of which both are written: q
            float8_e4m3fn, s float32 `[M, ceil(N / 128)]` or packed exponents, int32 `[M, ceil(N / 512)]` (of 32 columns
            each: `[M, ceil(N / 128)]`; not of N <= 128, where both are one word), MN-major and aligned; to the bit what
            `per_token_cast_to_fp8` makes of the result in FP32. Or q int8 with float32 s. Not together with c.
        c: added in FP32 before rounding; `d`'s shape and dtype, and may be `d` itself. (FP32 in place is added by the
            L2, which flushes subnormal numbers to zero.)
        recipe: rows of A, rows of B and elements of K that share a scale: (1, 128, 128) by default, or (1, 1, 128),
            which is the default where B's scales are packed. The last one may be 32, with 1, 32 or 128 rows of B: (1,
            32, 32) is of blocks of 32 x 32. Sums of 32 of K that are scaled one by one take longer, except on SM100.
        recipe_a, recipe_b: the same as pairs for each operand, which may differ in K.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        disable_ue8m0_cast: float32 scales are to be multiplied as they are, whatever they are. So they always are on
            SM80 and SM90. On SM100 another kernel does it, which takes scales of every kind, A's for each row and 128
            of K, B's for 128x128 blocks or each row, not for 32 of K: it scales sums of 128 of K in registers. It is
            about float32 scales: where both operands have packed ones it changes nothing.
        alpha: a number that multiplies complete sums in FP32, before C is added and before rounding.
        epilogue: None, or what happens to complete sums: `deep_gemm.epilogue`. Beside it alpha must be None.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)
fp8_gemm_nn = _dense_product(
    "nn",
    NN,
    "nk",
    """Dense FP8 GEMM with b [K, N]: `d[m, n] = c[m, n] + sum_k a[m, k] b[k, n]`, scaled.

    Args:
        a: float8_e4m3fn `[M, K]` with scales `[M, ceil(K / 128)]`.
        b: float8_e4m3fn `[K, N]` with scales `[ceil(K / 128), ceil(N / 128)]`, or per column `[ceil(K / 128), N]` with
            recipe (1, 1, 128). N contiguous: as M for `fp8_gemm_nt`.
        d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, alpha, epilogue: as for `fp8_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)
fp8_gemm_tn = _dense_product(
    "tn",
    TN,
    "mn",
    """Dense FP8 GEMM with a [K, M] and b [K, N]: `d[m, n] = c[m, n] + sum_k a[k, m] b[k, n]`, scaled.

    Args:
        a: float8_e4m3fn `[K, M]` with scales `[ceil(K / 128), M]`. M contiguous: as for `fp8_gemm_nt`.
        b: float8_e4m3fn `[K, N]` with scales `[ceil(K / 128), ceil(N / 128)]`, or per column `[ceil(K / 128), N]` with
            recipe (1, 1, 128); likewise.
        d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, alpha, epilogue: as for `fp8_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)
fp8_gemm_tt = _dense_product(
    "tt",
    TT,
    "mn",
    """Dense FP8 GEMM with a [K, M]: `d[m, n] = c[m, n] + sum_k a[k, m] b[n, k]`, scaled.

    Args:
        a: float8_e4m3fn `[K, M]` with scales `[ceil(K / 128), M]`. M contiguous: as for `fp8_gemm_nt`.
        b: float8_e4m3fn `[N, K]` with scales `[ceil(N / 128), ceil(K / 128)]`, or per row `[N, ceil(K / 128)]` with
            recipe (1, 1, 128).
        d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, alpha, epilogue: as for `fp8_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)


@product()
def fp8_gemm_nt_skip_head_mid(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    head_splits: HeadSplits,
    recipe: Recipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """`a @ b.T`, scaled, into columns of heads that have others between them.

    With head_splits (left, mid, right), N is heads * (left + right), and `d` has heads * (left + mid + right) columns:
    of each head the `mid` ones are not touched.

    Args:
        a, b, recipe, compiled_dims, disable_ue8m0_cast: as for `fp8_gemm_nt`.
        d: bfloat16 or float32 `[M, heads * (left + mid + right)]`, columns contiguous, any row stride. Fastest where
            left and right are multiples of 64 (of 32 in float32) and mid of 8 (of 4).

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    layout = NT[compiled_dims]
    if disable_ue8m0_cast:
        layout |= FP32_SCALES
    (a_data, a_scales), (b_data, b_scales) = a, b
    if not run(
        a=a_data,
        a_scales=a_scales,
        b=b_data,
        b_scales=b_scales,
        d=d,
        head_splits=head_splits,
        layout=layout,
        recipe=recipe,
    ):
        left, mid, right = head_splits
        heads = d.unflatten(1, (-1, left + mid + right))
        heads[..., :left].zero_()
        heads[..., left + mid :].zero_()
