"""GEMM calls of BF16 or FP16 activations with weights of few bits, converted in registers on their way to the tensor
cores.

`w` is what `deep_gemm.pack_weights` has made for 'bf16' activations, which serves both. `a` is a tensor without scales.
See `deep_gemm.fp8` for what the functions have in common with those of FP8.
"""

from __future__ import annotations

import torch

from ._output import Output
from ._packed import AcceptedWeights, UnpackedFp8, run, run_contiguous, run_masked, with_epilogue
from ._product import product
from .epilogue import Epilogue
from .fp8 import Scaled
from .weights import PackedWeights

__all__ = [
    "bf16_fp4_gemm_nt",
    "bf16_fp8_gemm_nt",
    "bf16_int4_gemm_nt",
    "bf16_int8_gemm_nt",
    "m_grouped_bf16_fp4_gemm_nt_contiguous",
    "m_grouped_bf16_fp4_gemm_nt_masked",
    "m_grouped_bf16_fp8_gemm_nt_contiguous",
    "m_grouped_bf16_fp8_gemm_nt_masked",
    "m_grouped_bf16_int4_gemm_nt_contiguous",
    "m_grouped_bf16_int4_gemm_nt_masked",
    "m_grouped_bf16_int8_gemm_nt_contiguous",
    "m_grouped_bf16_int8_gemm_nt_masked",
]

_TAKES_INT4 = AcceptedWeights("bf16", ("int4", "uint4"))
_TAKES_INT8 = AcceptedWeights("bf16", ("int8", "uint8"))
_TAKES_FP4 = AcceptedWeights("bf16", ("e2m1",))
_TAKES_FP8 = AcceptedWeights("bf16", ("e4m3",))


@product()
def bf16_int4_gemm_nt(
    a: torch.Tensor,
    w: PackedWeights,
    d: Output,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """BF16 or FP16 activations, int4 weights: `d[m, n] = c[m, n] + sum_k a[m, k] w[n, k] + bias[n]`.

    Values are exact in the tensor cores, which add up in FP32; the sums of each group of K, of up to 128, are scaled in
    FP32.

    Args:
        a: bfloat16 or float16 `[M, K]`, K contiguous. Rows that do not start at multiples of 16 bytes are copied first.
        w: int4 `[N, K]`, packed for 'bf16' activations, groups of any size, with zero points or without.
        d: bfloat16, float16 or float32 `[M, N]`, N contiguous, any row stride. Written.
        c: added; `d`'s shape and dtype, and may be `d` itself.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[N]`, added in FP32.
        epilogue: None, or what happens to complete sums: `deep_gemm.epilogue`. A gated activation wants weights packed
            with its layout as `gate_up`; rows of C and bias lie as the checkpoint's do.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    run(a, w, d, c, bias, compiled_dims, _TAKES_INT4, with_epilogue(epilogue))


@product()
def m_grouped_bf16_int4_gemm_nt_contiguous(
    a: torch.Tensor,
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
    """`bf16_int4_gemm_nt` of experts whose rows follow each other: `d[rows of g] = a[rows of g] @ w[g].T`.

    Args:
        a: bfloat16 or float16 `[M, K]`, as for `bf16_int4_gemm_nt`; rows of padding may hold anything.
        w: int4 `[G, N, K]`, packed for 'bf16' activations.
        d: bfloat16, float16 or float32 `[M, N]`.
        grouped_layout, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout: as for
            `m_grouped_fp8_gemm_nt_contiguous`.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[G, N]`, added in FP32.
        epilogue: as for `bf16_int4_gemm_nt`.

    Raises:
        as `bf16_int4_gemm_nt`.
    """
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    run_contiguous(a, w, d, grouped_layout, compiled_dims, rows, _TAKES_INT4, bias, with_epilogue(epilogue))


@product()
def m_grouped_bf16_int4_gemm_nt_masked(
    a: torch.Tensor,
    w: PackedWeights,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`bf16_int4_gemm_nt` of experts with matrices of their own: `d[g] = a[g] @ w[g].T` for the first masked_m[g] rows.

    Args:
        a: bfloat16 or float16 `[G, max_m, K]`, as for `bf16_int4_gemm_nt`; other rows may hold anything.
        w: int4 `[G, N, K]`, packed for 'bf16' activations.
        d: bfloat16, float16 or float32 `[G, max_m, N]`.
        masked_m: int32 `[G]` on the device.
        expected_m: rows of an expert that the caller expects; a hint.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[G, N]`, added in FP32.
        epilogue: as for `bf16_int4_gemm_nt`.

    Raises:
        as `bf16_int4_gemm_nt`.
    """
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES_INT4, bias, with_epilogue(epilogue))


@product()
def bf16_int8_gemm_nt(
    a: torch.Tensor,
    w: PackedWeights,
    d: Output,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """BF16 or FP16 activations, weights of 8 bits (W8A16): `d[m, n] = c[m, n] + sum_k a[m, k] w[n, k] + bias[n]`.

    Values, less their zero points, are exact in the tensor cores; the sums of each group of K, of up to 128, are scaled
    in FP32.

    Args:
        a, d, c, compiled_dims, bias, epilogue: as for `bf16_int4_gemm_nt`.
        w: int8 or uint8 `[N, K]`, packed for 'bf16' activations, groups of any size, with zero points or without.

    Raises:
        as `bf16_int4_gemm_nt`.
    """
    run(a, w, d, c, bias, compiled_dims, _TAKES_INT8, with_epilogue(epilogue))


@product()
def m_grouped_bf16_int8_gemm_nt_contiguous(
    a: torch.Tensor,
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
    """`bf16_int8_gemm_nt` of experts, as `m_grouped_bf16_int4_gemm_nt_contiguous`."""
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    run_contiguous(a, w, d, grouped_layout, compiled_dims, rows, _TAKES_INT8, bias, with_epilogue(epilogue))


@product()
def m_grouped_bf16_int8_gemm_nt_masked(
    a: torch.Tensor,
    w: PackedWeights,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`bf16_int8_gemm_nt` of experts, as `m_grouped_bf16_int4_gemm_nt_masked`."""
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES_INT8, bias, with_epilogue(epilogue))


@product()
def bf16_fp4_gemm_nt(
    a: torch.Tensor,
    w: PackedWeights,
    d: Output,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """BF16 or FP16 activations, MXFP4 or NVFP4 weights: `d[m, n] = c[m, n] + sum_k a[m, k] w[n, k] + bias[n]`.

    Scales of groups of 16 or 32 are multiplied into the weights, exactly, on their way to the tensor cores, and NVFP4's
    global scale to complete sums. Other scales (packing says which) are applied to the sums of each group in FP32.

    Args:
        a, d, c, compiled_dims, bias, epilogue: as for `bf16_int4_gemm_nt`.
        w: e2m1 `[N, K]`, packed for 'bf16' activations.

    Raises:
        as `bf16_int4_gemm_nt`.
    """
    run(a, w, d, c, bias, compiled_dims, _TAKES_FP4, with_epilogue(epilogue))


@product()
def m_grouped_bf16_fp4_gemm_nt_contiguous(
    a: torch.Tensor,
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
    """`bf16_fp4_gemm_nt` of experts, as `m_grouped_bf16_int4_gemm_nt_contiguous`."""
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    run_contiguous(a, w, d, grouped_layout, compiled_dims, rows, _TAKES_FP4, bias, with_epilogue(epilogue))


@product()
def m_grouped_bf16_fp4_gemm_nt_masked(
    a: torch.Tensor,
    w: PackedWeights,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`bf16_fp4_gemm_nt` of experts, as `m_grouped_bf16_int4_gemm_nt_masked`."""
    run_masked(a, w, d, masked_m, expected_m, compiled_dims, _TAKES_FP4, bias, with_epilogue(epilogue))


@product()
def bf16_fp8_gemm_nt(
    a: torch.Tensor,
    w: Scaled | PackedWeights,
    d: Output,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """BF16 or FP16 activations, E4M3 weights: `d[m, n] = c[m, n] + sum_k a[m, k] w[n, k] + bias[n]`.

    Values are exact in the tensor cores; the sums of each group of K, of up to 128, are scaled in FP32.

    Args:
        a, d, c, compiled_dims, bias, epilogue: as for `bf16_int4_gemm_nt`.
        w: e4m3 `[N, K]`, packed for 'bf16' activations, groups of any size; or a pair, (float8_e4m3fn `[N, K]`, K
            contiguous, with scales of 128x128 blocks, float32 or float8_e8m0fnu in any strides, or int32 words of four
            exponents each per row), which each call packs
            into a workspace: right, NaN included, but it takes longer than reading it.

    Raises:
        as `bf16_int4_gemm_nt`.
    """
    run(a, _fp8_weights(w), d, c, bias, compiled_dims, _TAKES_FP8, with_epilogue(epilogue))


@product()
def m_grouped_bf16_fp8_gemm_nt_contiguous(
    a: torch.Tensor,
    w: Scaled | PackedWeights,
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
    """`bf16_fp8_gemm_nt` of experts, as `m_grouped_bf16_int4_gemm_nt_contiguous`; w may be a pair, `[G, N, K]`."""
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    run_contiguous(
        a, _fp8_weights(w), d, grouped_layout, compiled_dims, rows, _TAKES_FP8, bias, with_epilogue(epilogue)
    )


@product()
def m_grouped_bf16_fp8_gemm_nt_masked(
    a: torch.Tensor,
    w: Scaled | PackedWeights,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`bf16_fp8_gemm_nt` of experts, as `m_grouped_bf16_int4_gemm_nt_masked`; w may be a pair, `[G, N, K]`."""
    run_masked(a, _fp8_weights(w), d, masked_m, expected_m, compiled_dims, _TAKES_FP8, bias, with_epilogue(epilogue))


def _fp8_weights(w: Scaled | PackedWeights) -> UnpackedFp8 | PackedWeights:
    return w if isinstance(w, PackedWeights) else UnpackedFp8(*w)
