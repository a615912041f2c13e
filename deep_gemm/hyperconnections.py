"""The product before the norm of hyperconnections (DeepSeek-V4): few columns, long K, and squares on the way."""

from __future__ import annotations

import torch
from torch.compiler import is_dynamo_compiling

from . import operators
from ._arguments import no_memory
from ._extension import C

__all__ = ["tf32_hc_prenorm_gemm"]


def tf32_hc_prenorm_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    sqr_sum: torch.Tensor,
    num_splits: int | None = None,
) -> None:
    """`d[m, n] = sum over k of a[m, k] * tf32(b[n, k])` and `sqr_sum[m] = sum over k of a[m, k]^2`, in FP32.

    B is rounded to the nearest TF32, ties to even; A is taken as it is. Equal calls give equal bits.

    Args:
        a: BF16 `[M, K]`, K contiguous and a multiple of 64; rows may lie further apart, at multiples of 16 bytes.
        b: FP32 `[N, K]`, likewise; N up to 128.
        d: FP32 `[M, N]`, written. With `num_splits` `[num_splits, M, N]`: each split gets the sums of its part of K,
            zeros where there are more splits than blocks of 64, and the caller adds them up.
        sqr_sum: FP32 `[M]`, or `[num_splits, M]`, written.
        num_splits: None, or how many parts K is divided into. Without, K is divided among SMs all the same, and its
            sums are added up here.

    Raises:
        TypeError, ValueError: an argument cannot be right.
    """
    if is_dynamo_compiling():
        _operator(a, b, d, sqr_sum, num_splits)
        return
    try:
        _run(a, b, d, sqr_sum, num_splits)
        return
    except Exception as error:
        failure = error
    tensors = [tensor for tensor in (a, b, d, sqr_sum) if isinstance(tensor, torch.Tensor)]
    if operators.is_traced(tensors):
        _operator(a, b, d, sqr_sum, num_splits)
        return
    rejections = (no_memory("an argument", tensor, "tf32_hc_prenorm_gemm") for tensor in tensors)
    raise next(filter(None, rejections), failure.with_traceback(None))


def _run(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, sqr_sum: torch.Tensor, num_splits: int | None) -> None:
    if num_splits is not None and (num_splits < 1 or d.dim() != 3 or d.shape[0] != num_splits):
        raise ValueError(f"d must be [num_splits, M, N] with num_splits={num_splits} of 1 or more, got {[*d.shape]}")
    if num_splits is None and d.dim() != 2:
        raise ValueError(f"d must be [M, N] without num_splits, got {[*d.shape]}")
    splits = 1 if num_splits is not None else int(C.prenorm_splits(a, b))
    if splits == 1:
        C.prenorm_gemm(a, b, d, sqr_sum)
        return
    if sqr_sum.shape != a.shape[:1] or d.dtype != torch.float32 or sqr_sum.dtype != torch.float32:
        raise ValueError(
            f"d and sqr_sum must be float32 [M, N] and [{a.shape[0]}], got {d.dtype} {[*d.shape]} and "
            f"{sqr_sum.dtype} {[*sqr_sum.shape]}"
        )
    # No clusters, in which CTAs could add up their sums.
    parts = torch.empty((splits, *d.shape), dtype=torch.float32, device=a.device)
    squares = torch.empty((splits, a.shape[0]), dtype=torch.float32, device=a.device)
    C.prenorm_gemm(a, b, parts, squares)
    torch.sum(parts, 0, out=d)
    torch.sum(squares, 0, out=sqr_sum)


_operator = operators.define_writer(
    "tf32_hc_prenorm_gemm(Tensor a, Tensor b, Tensor(a!) d, Tensor(b!) sqr_sum, SymInt? num_splits=None) -> ()",
    tf32_hc_prenorm_gemm,
)
