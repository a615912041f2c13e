"""GEMM calls of BF16 operands, or of FP16 ones, dense and grouped.

`D = C + A @ B`, accumulated in FP32 by the tensor cores, without scales. A and B have one dtype. An operand
lies K-major or MN-major as the name says, and is multiplied as it lies: nothing is transposed first. Where lines do not
start at multiples of 16 bytes, the operand is copied into a workspace in which they do, which takes about as long as
reading and writing it once. Extents are free. See `deep_gemm.fp8`, `deep_gemm.grouped` and `deep_gemm.k_grouped` for
what the functions have in common with those of FP8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from ._call import (
    NN,
    NT,
    TN,
    TT,
    Layouts,
    contiguous,
    dense,
    masked,
    one_layout,
    write_empty_experts,
    write_empty_masked,
)
from ._output import Output, write_empty
from ._product import named, product
from .epilogue import NO_STEPS, Epilogue, step_arguments
from .k_grouped import groups_of, run_k_groups

__all__ = [
    "bf16_gemm_nn",
    "bf16_gemm_nt",
    "bf16_gemm_tn",
    "bf16_gemm_tt",
    "bf16_m_grouped_gemm_nt_masked",
    "k_grouped_bf16_gemm_tn_contiguous",
    "m_grouped_bf16_gemm_nn_contiguous",
    "m_grouped_bf16_gemm_nt_contiguous",
    "m_grouped_bf16_gemm_nt_masked",
]


class DenseProduct(Protocol):
    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        d: Output,
        c: torch.Tensor | None = None,
        compiled_dims: str = ...,
        alpha: float | None = None,
        epilogue: Epilogue | None = None,
    ) -> None: ...


def _dense_product(lies: str, layouts: Layouts, dims: str, doc: str) -> DenseProduct:
    """`lies`: how operands lie, as names say it; `dims`: what is compiled in by default."""

    def function(
        a: torch.Tensor,
        b: torch.Tensor,
        d: Output,
        c: torch.Tensor | None = None,
        compiled_dims: str = dims,
        alpha: float | None = None,
        epilogue: Epilogue | None = None,
    ) -> None:
        steps = NO_STEPS if alpha is None and epilogue is None else step_arguments(alpha, epilogue)
        if not dense(a, None, b, None, d, c, layouts[compiled_dims], steps):
            write_empty(d, c, steps)

    return product()(named(function, f"bf16_gemm_{lies}", doc))


bf16_gemm_nt = _dense_product(
    "nt",
    NT,
    "nk",
    """Dense BF16 or FP16 GEMM: `d[m, n] = c[m, n] + sum_k a[m, k] b[n, k]`, summed in FP32.

    Args:
        a: bfloat16 or float16 `[M, K]`. K contiguous, or M contiguous; read in place either way if rows, or lines,
            start at multiples of 16 bytes (fastest: of 128), else copied first.
        b: of a's dtype, `[N, K]`, likewise.
        d: float32, float16, or of BF16 operands bfloat16, `[M, N]`, N contiguous, any row stride. Written. In float16
            what would round to more than 65504 becomes infinite.
        c: added in FP32 before rounding; `d`'s shape and dtype, and may be `d` itself. (FP32 in place is added by the
            L2, which flushes subnormal numbers to zero.)
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        alpha, epilogue: as for `fp8_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)
bf16_gemm_nn = _dense_product(
    "nn",
    NN,
    "nk",
    """Dense BF16 or FP16 GEMM with b [K, N]: `d[m, n] = c[m, n] + sum_k a[m, k] b[k, n]`, summed in FP32.

    Args:
        a: bfloat16 or float16 `[M, K]`.
        b: of a's dtype, `[K, N]`.
        d, c, compiled_dims, alpha, epilogue: as for `bf16_gemm_nt`; so are the strides of a and b.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)
bf16_gemm_tn = _dense_product(
    "tn",
    TN,
    "mn",
    """Dense BF16 or FP16 GEMM with a [K, M] and b [K, N]: `d[m, n] = c[m, n] + sum_k a[k, m] b[k, n]`, summed in FP32.

    Args:
        a: bfloat16 or float16 `[K, M]`.
        b: of a's dtype, `[K, N]`.
        d, c, compiled_dims, alpha, epilogue: as for `bf16_gemm_nt`; so are the strides of a and b.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)
bf16_gemm_tt = _dense_product(
    "tt",
    TT,
    "mn",
    """Dense BF16 or FP16 GEMM with a [K, M]: `d[m, n] = c[m, n] + sum_k a[k, m] b[n, k]`, summed in FP32.

    Args:
        a: bfloat16 or float16 `[K, M]`.
        b: of a's dtype, `[N, K]`.
        d, c, compiled_dims, alpha, epilogue: as for `bf16_gemm_nt`; so are the strides of a and b.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """,
)


@product()
def m_grouped_bf16_gemm_nt_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: Output,
    grouped_layout: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    epilogue: Epilogue | None = None,
    *,
    m_indices: torch.Tensor | None = None,
) -> None:
    """Each row times the weights of its expert: `d[m] = a[m] @ b[expert of m].T`.

    Args:
        a: bfloat16 or float16 `[M, K]`, as for `bf16_gemm_nt`. Padding rows may hold anything, NaN included.
        b: of a's dtype, `[G, N, K]`, likewise.
        d: as for `bf16_gemm_nt`, written as `m_grouped_fp8_gemm_nt_contiguous` does.
        grouped_layout, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout, m_indices: as there.
        compiled_dims, epilogue: as for `bf16_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    where = one_layout(grouped_layout, m_indices)
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    if not contiguous(a, None, b, None, d, where, *rows, NT[compiled_dims], steps):
        write_empty_experts(d, where, use_psum_layout, b.shape[0])


@product()
def m_grouped_bf16_gemm_nn_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: Output,
    grouped_layout: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    epilogue: Epilogue | None = None,
    *,
    m_indices: torch.Tensor | None = None,
) -> None:
    """Each row times the weights of its expert, which are [K, N]: `d[m] = a[m] @ b[expert of m]`.

    Args:
        b: of a's dtype, `[G, K, N]`.
        The others: as for `m_grouped_bf16_gemm_nt_contiguous`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    where = one_layout(grouped_layout, m_indices)
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    if not contiguous(a, None, b, None, d, where, *rows, NN[compiled_dims], steps):
        write_empty_experts(d, where, use_psum_layout, b.shape[0])


@product("bf16_m_grouped_gemm_nt_masked")
def m_grouped_bf16_gemm_nt_masked(
    a: torch.Tensor,
    b: torch.Tensor,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    epilogue: Epilogue | None = None,
) -> None:
    """The first rows of each expert's matrix: `d[g, m] = a[g, m] @ b[g].T` for `m < masked_m[g]`.

    Args:
        a: bfloat16 or float16 `[G, max_m, K]`, as for `bf16_gemm_nt`. Rows from `masked_m[g]` on may hold anything, NaN
            included.
        b: of a's dtype, `[G, N, K]`, likewise.
        d: as for `bf16_gemm_nt`, but `[G, max_m, N]`, written as `m_grouped_fp8_gemm_nt_masked` does.
        masked_m, expected_m: as there.
        compiled_dims, epilogue: as for `bf16_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    if not masked(a, None, b, None, d, masked_m, expected_m, NT[compiled_dims], steps):
        write_empty_masked(d, masked_m)


@product()
def k_grouped_bf16_gemm_tn_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    epilogue: Epilogue | None = None,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: torch.Tensor | None = None,
) -> None:
    """`d[g, m, n] = c[g, m, n] + sum over g's K range of a[k, m] b[k, n]`.

    Args:
        a: bfloat16 or float16 `[sum_k, M]`, M contiguous. Read in place where lines start at multiples of 16 bytes,
            else copied first.
        b: of a's dtype, `[sum_k, N]`, N contiguous, likewise.
        d: as for `bf16_gemm_nt`, but `[G, M, N]`. Written.
        ks_cpu: each group's K, on the host: any, or 0. Such a group gets c, or zero. Needed, because it says where each
            group lies; so a captured graph is of these sizes. In the psum layout each may be rounded up to the
            alignment, if rows between groups are zeros.
        grouped_layout: the same as int32 `[G]` on the device. Refused where it contradicts ks_cpu, if it is on the CPU.
        c: added in FP32; `d`'s shape and dtype, and may be `d` itself.
        compiled_dims: which of M and N are constants of the compiled kernel.
        epilogue: as for `fp8_gemm_nt`.
        use_psum_layout: `grouped_layout` holds where each group ends; the next one starts at that value rounded up to
            `get_mk_alignment_for_contiguous_layout()`. Rows between groups are never read.
        ks, ks_tensor: older names of `ks_cpu` and `grouped_layout`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    groups = groups_of(ks_cpu, grouped_layout, ks, ks_tensor, use_psum_layout)
    run_k_groups({"a": a, "b": b}, d, groups, c, compiled_dims, epilogue)


# The name that callers of DeepGEMM use for the same function.
bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked
