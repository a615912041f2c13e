"""GEMM calls of FP8 activations with int4 weights, which are converted in registers on their way to the tensor cores.

`w` is what `deep_gemm.pack_weights` has made for 'fp8' activations. `a` is a pair (data, scales); scales are float32:
one for all of it (a Python number or a tensor `[]` or `[1]`), one for each token (`[M]`, `[M, 1]`; masked `[G,
max_m]`), or one for each token and 128 of K (`[M, ceil(K / 128)]`). See `deep_gemm.fp8` for what the functions have
in common with those of FP8.
"""

from __future__ import annotations

import torch

from ._output import Output
from ._packed import AcceptedWeights, ScaledTokens, run, run_contiguous, run_masked, with_epilogue
from ._product import product
from .epilogue import Epilogue
from .weights import PackedWeights

__all__ = ["fp8_int4_gemm_nt", "m_grouped_fp8_int4_gemm_nt_contiguous", "m_grouped_fp8_int4_gemm_nt_masked"]

_TAKES = AcceptedWeights("fp8", ("int4", "uint4"))


@product()
def fp8_int4_gemm_nt(
    a: ScaledTokens,
    w: PackedWeights,
    d: Output,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """FP8 activations, int4 weights: `d[m, n] = c[m, n] + sum_k a[m, k] sfa[m, k] w[n, k] + bias[n]`.

    Sums over 128 of K each are scaled and added up in FP32.

    Args:
        a: float8_e4m3fn `[M, K]`, K contiguous and a multiple of 16, with scales as the module says.
        w: int4 `[N, K]`, packed for 'fp8' activations, groups of any size, with or without zero points.
        d: bfloat16, float16 or float32 `[M, N]`, N contiguous, any row stride. Written.
        c: added; `d`'s shape and dtype, and may be `d` itself.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[N]`, added in FP32.
        epilogue: as for `bf16_int4_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    run(a, w, d, c, bias, compiled_dims, _TAKES, with_epilogue(epilogue))


@product()
def m_grouped_fp8_int4_gemm_nt_contiguous(
    a: ScaledTokens,
    w: PackedWeights,
    d: Output,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`fp8_int4_gemm_nt` of experts whose rows follow each other: `d[rows of g] = a[rows of g] @ w[g].T`.

    Args:
        a: float8_e4m3fn `[M, K]` with scales as the module says; rows of padding may hold anything.
        w: int4 `[G, N, K]`, packed for 'fp8' activations.
        d: bfloat16, float16 or float32 `[M, N]`.
        grouped_layout, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout: as for
            `m_grouped_fp8_gemm_nt_contiguous`.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[G, N]`, added in FP32.
        epilogue: as for `bf16_int4_gemm_nt`.

    Raises:
        as `fp8_int4_gemm_nt`.
    """
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    run_contiguous(a, w, d, grouped_layout, compiled_dims, rows, _TAKES, bias, with_epilogue(epilogue))


@product()
def m_grouped_fp8_int4_gemm_nt_masked(
    a: ScaledTokens,
    w: PackedWeights,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`fp8_int4_gemm_nt` of experts with matrices of their own: `d[g] = a[g] @ w[g].T` for its first masked_m[g] rows.

    Args:
        a: float8_e4m3fn `[G, max_m, K]` with scales as the module says; other rows may hold anything.
        w: int4 `[G, N, K]`, packed for 'fp8' activations.
        d: bfloat16, float16 or float32 `[G, max_m, N]`.
        masked_m: int32 `[G]` on the device.
        expected_m: rows of an expert that the caller expects; a hint.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[G, N]`, added in FP32.
        epilogue: as for `bf16_int4_gemm_nt`.

    Raises:
        as `fp8_int4_gemm_nt`.
    """
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES, bias, with_epilogue(epilogue))
