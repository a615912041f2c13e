"""GEMM calls of FP8 activations with FP4 weights: the public names, which take FP8 pairs too.

The public pair of FP4 weights is int8 of two codes a byte. On Blackwell (SM100) tensor cores multiply it by FP8, and it
is read where it lies: K contiguous and a multiple of 128, rows at multiples of 32 bytes. Other rows are copied into a
workspace first, and MN-major codes transposed. Elsewhere each call packs the pair into a workspace: right, and captured
in graphs as any other call, but slower than `PackedWeights`, which are packed once.
"""

from __future__ import annotations

from typing import Protocol

import torch

from ._call import A_TRANSPOSED, B_TRANSPOSED, OperandRecipe, Recipe
from ._fp4_pairs import ACCEPTED, is_fp4, options_of_packed, require_fp4_only, require_no_bias, unpacked_pair
from ._output import Output
from ._packed import ScaledTokens, run_dense
from ._product import named, product
from .epilogue import Epilogue
from .fp4 import fp4_gemm_nt
from .fp8 import DenseProduct as Fp8Product
from .fp8 import Scaled, fp8_gemm_nn, fp8_gemm_nt, fp8_gemm_tn, fp8_gemm_tt
from .weights import PackedWeights

__all__ = ["fp8_fp4_gemm_nn", "fp8_fp4_gemm_nt", "fp8_fp4_gemm_tn", "fp8_fp4_gemm_tt"]


@product()
def fp8_fp4_gemm_nt(
    a: ScaledTokens,
    b: Scaled | PackedWeights,
    d: Output,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    recipe_a: OperandRecipe = None,
    recipe_b: OperandRecipe = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    alpha: float | None = None,
    epilogue: Epilogue | None = None,
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
            follow each other along N (`transpose_packed_fp4(w).T`; of N = 2 the one line of bytes is read along K),
            which are transposed into a workspace. Elsewhere each call packs it into one, which takes longer than
            reading it. PackedWeights of 'e2m1' are packed for 'fp8' activations, on SM100 for it: then recipe and
            recipe_b are None.
        a: as for `fp8_gemm_nt`; with FP4 weights its scales may be one for all or one for each token, too, but on
            SM100. There it may be FP4, as b may: beside FP8 with a recipe (`recipe_a` (1, 32)), beside FP4 as for
            `fp4_gemm_nt`.
        d, c, compiled_dims, disable_ue8m0_cast, alpha, epilogue: as for `fp8_gemm_nt`. With FP4 weights SM100
            multiplies exponents only: it refuses float32 scales together with `disable_ue8m0_cast`.
        recipe, recipe_a, recipe_b: of FP8 as for `fp8_gemm_nt`. Of FP4 pairs, a has scales for 128 of K (`recipe_a` (1,
            128)), on SM100 also for 32, and b for 32 (`recipe_b` (1, 32), the default), for 128, or except on SM100 for
            another multiple of 32.
        bias: with FP4 weights, as for `fp8_int4_gemm_nt`.

    Raises:
        ValueError, TypeError: as of `fp8_gemm_nt`, and where arguments are of the other kind of b.
    """
    recipes = recipe, recipe_a, recipe_b
    if isinstance(b, PackedWeights):
        options = options_of_packed(recipes, disable_ue8m0_cast, alpha, epilogue)
        run_dense(a, b, d, c, bias, compiled_dims, ACCEPTED, options)
    elif not is_fp4(b):
        require_no_bias(bias)
        fp8_gemm_nt(a, b, d, c, *recipes, compiled_dims, disable_ue8m0_cast, alpha, epilogue)  # type: ignore[arg-type]
    elif is_fp4(a):
        require_fp4_only(bias)
        fp4_gemm_nt(a, b, d, c, *recipes, compiled_dims, disable_ue8m0_cast, alpha, epilogue)  # type: ignore[arg-type]
    else:
        w, options = unpacked_pair(b, recipes, disable_ue8m0_cast, alpha, epilogue)
        run_dense(a, w, d, c, bias, compiled_dims, ACCEPTED, options)


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
        *,
        bias: torch.Tensor | None = None,
    ) -> None: ...


def _dense_product(lies: str, of_fp8: Fp8Product, transposed: int, dims: str, doc: str) -> DenseProduct:
    """As in `fp8`; `transposed`: bits of operands that lie the other way round."""

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
        *,
        bias: torch.Tensor | None = None,
    ) -> None:
        recipes = recipe, recipe_a, recipe_b
        if not is_fp4(b):
            require_no_bias(bias)
            return of_fp8(a, b, d, c, *recipes, compiled_dims, disable_ue8m0_cast, alpha, epilogue)
        w, options = unpacked_pair(b, recipes, disable_ue8m0_cast, alpha, epilogue, transposed)
        run_dense(a, w, d, c, bias, compiled_dims, ACCEPTED, options)

    return product()(named(function, f"fp8_fp4_gemm_{lies}", doc))


fp8_fp4_gemm_nn = _dense_product(
    "nn",
    fp8_gemm_nn,
    B_TRANSPOSED,
    "nk",
    """`fp8_gemm_nn`, or on Blackwell (SM100) the product with MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_nn`; or FP4 weights as of `fp8_fp4_gemm_nt`, int8 `[K / 2, N]` or, where N is
            contiguous, `[K, N / 2]`, with scales `[ceil(K / 32), N]`.
        a, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, alpha, epilogue, bias: as for
            `fp8_fp4_gemm_nt`, a and b as `fp8_gemm_nn` has them.

    Raises:
        ValueError, TypeError: as of `fp8_fp4_gemm_nt`.
    """,
)
fp8_fp4_gemm_tn = _dense_product(
    "tn",
    fp8_gemm_tn,
    A_TRANSPOSED | B_TRANSPOSED,
    "mn",
    """`fp8_gemm_tn`, or on Blackwell (SM100) the product with MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_tn`; or FP4 weights as of `fp8_fp4_gemm_nt`, int8 `[K / 2, N]` or, where N is
            contiguous, `[K, N / 2]`, with scales `[ceil(K / 32), N]`.
        a, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, alpha, epilogue, bias: as for
            `fp8_fp4_gemm_nt`, a and b as `fp8_gemm_tn` has them.

    Raises:
        ValueError, TypeError: as of `fp8_fp4_gemm_nt`.
    """,
)
fp8_fp4_gemm_tt = _dense_product(
    "tt",
    fp8_gemm_tt,
    A_TRANSPOSED,
    "mn",
    """`fp8_gemm_tt`, or on Blackwell (SM100) the product with MXFP4 weights.

    Args:
        b: a pair as of `fp8_gemm_tt`, or FP4 weights as of `fp8_fp4_gemm_nt`.
        a, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, alpha, epilogue, bias: as for
            `fp8_fp4_gemm_nt`, a and b as `fp8_gemm_tt` has them.

    Raises:
        ValueError, TypeError: as of `fp8_fp4_gemm_nt`.
    """,
)
