"""The baselines: the same products through torch, which calls cuBLASLt on GPUs.

`a` and `b` are BF16 (or FP32), or FP8 with one scale of 1 for each tensor. They are for comparing with, not for speed
records of their own: where cuBLASLt wants another layout, the operand is copied first. `d` is written; `c` is added,
has `d`'s shape and dtype, and may be `d` itself. ValueError or TypeError is raised where an argument cannot be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .utils.math import TILE_COLUMNS, TILE_ROWS, align, cast_back_from_fp4, ceil_div, scales_of_tiles

__all__ = [
    "batched_symm",
    "batched_syrk",
    "cublaslt_gemm_nn",
    "cublaslt_gemm_nt",
    "cublaslt_gemm_tn",
    "cublaslt_gemm_tt",
    "cublaslt_nvfp4_gemm_nt",
]

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@contextmanager
def _parts_in_fp32() -> Iterator[None]:
    """Parts of K that cuBLAS multiplies apart are added in FP32, not rounded to BF16 or FP16 before."""
    backend = torch.backends.cuda.matmul
    names = [f"allow_{dtype}_reduced_precision_reduction" for dtype in ("bf16", "fp16")]
    before = [(getattr(backend, name), getattr(backend, f"{name}_split_k", True)) for name in names]
    for name in names:
        setattr(backend, name, False)
    try:
        yield
    finally:
        for name, (reduced, split_k) in zip(names, before, strict=True):
            setattr(backend, name, reduced if split_k else (reduced, False))


def _multiply(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None) -> None:
    """`d = c + a @ b` for a [M, K] and b [K, N]."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if tuple(d.shape) != (a.shape[0], b.shape[1]):
        raise ValueError(f"d must be [M, N] = [{a.shape[0]}, {b.shape[1]}], got shape {tuple(d.shape)}")
    if c is not None and (c.shape != d.shape or c.dtype != d.dtype):
        raise ValueError(f"c must have d's shape and dtype, {tuple(d.shape)} {d.dtype}, got {tuple(c.shape)} {c.dtype}")
    if a.dtype in _FP8:
        one = torch.ones((), dtype=torch.float32, device=a.device)
        product = torch._scaled_mm(a.contiguous(), b.T.contiguous().T, one, one, out_dtype=d.dtype)
    elif a.dtype == d.dtype:
        with _parts_in_fp32():
            if c is None:
                torch.mm(a, b, out=d)
            else:
                torch.addmm(c, a, b, out=d)
        return
    elif a.is_cuda:
        product = torch.mm(a, b, out_dtype=d.dtype)
    else:
        product = (a.float() @ b.float()).to(d.dtype)
    _store(product, d, c)


def _store(product: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None) -> None:
    if c is None:
        d.copy_(product)
    else:
        torch.add(product, c, out=d)


def cublaslt_gemm_nt(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None) -> None:
    """`d = c + a @ b.T` for a `[M, K]` and b `[N, K]`."""
    _multiply(a, b.T, d, c)


def cublaslt_gemm_nn(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None) -> None:
    """`d = c + a @ b` for a `[M, K]` and b `[K, N]`."""
    _multiply(a, b, d, c)


def cublaslt_gemm_tn(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None) -> None:
    """`d = c + a.T @ b` for a `[K, M]` and b `[K, N]`."""
    _multiply(a.T, b, d, c)


def cublaslt_gemm_tt(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None) -> None:
    """`d = c + a.T @ b.T` for a `[K, M]` and b `[N, K]`."""
    _multiply(a.T, b.T, d, c)


_NVFP4_GROUP = 16
_DTYPES = (torch.bfloat16, torch.float32)


def cublaslt_nvfp4_gemm_nt(
    a: tuple[torch.Tensor, torch.Tensor],
    b: tuple[torch.Tensor, torch.Tensor],
    d: torch.Tensor,
    c: torch.Tensor | None = None,
) -> None:
    """`d = c + a @ b.T` of NVFP4 operands: through torch on Blackwell, elsewhere dequantised and multiplied in FP32.

    Args:
        a, b: int8 `[M, K / 2]` and `[N, K / 2]` of two E2M1 codes each, contiguous, K a multiple of 32; with E4M3
            scales for 16 of K, uint8, int8 or float8_e4m3fn, as cuBLASLt reads them: `ceil(M / 128) * ceil(K / 64) *
            512` elements in the order `[ceil(M / 128), ceil(K / 64), 32, 4, 4]`.
        d: bfloat16 or float32 `[M, N]`. Written.
        c: added; `d`'s shape and dtype, and may be `d` itself.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was written.
    """
    for name, (codes, scales) in (("a", a), ("b", b)):
        if codes.dtype != torch.int8 or codes.dim() != 2 or not codes.is_contiguous() or codes.shape[1] % 16 != 0:
            raise ValueError(
                f"{name} must be contiguous int8 [rows, K / 2] with K a multiple of 32, got {codes.dtype} "
                f"{[*codes.shape]}, strides {[*codes.stride()]}"
            )
        rows, columns = _tiled(codes)
        if scales.element_size() != 1 or scales.numel() != rows * columns or not scales.is_contiguous():
            raise ValueError(
                f"{name}'s scales must be {rows * columns} contiguous bytes of E4M3 in tiles of 128 x 4, got "
                f"{scales.dtype} {[*scales.shape]}"
            )
    if d.dtype not in _DTYPES:
        raise TypeError(f"d must be bfloat16 or float32, got {d.dtype}")
    if d.is_cuda and torch.cuda.get_device_capability(d.device)[0] in (10, 12):
        left, right = (pair[0].view(torch.float4_e2m1fn_x2) for pair in (a, b))
        of_left, of_right = (pair[1].view(torch.float8_e4m3fn).flatten() for pair in (a, b))
        _store(torch._scaled_mm(left, right.T, of_left, of_right, out_dtype=d.dtype), d, c)
    else:
        left, right = (_dequantised(*pair) for pair in (a, b))
        _store((left @ right.T).to(d.dtype), d, c)


def batched_syrk(a: torch.Tensor, d: torch.Tensor) -> None:
    """`d = a @ a.T` for each matrix, all of it: both triangles.

    Args:
        a: bfloat16 or float32 `[B, M, K]` or `[M, K]`, of any strides.
        d: of a's dtype, `[B, M, M]` or `[M, M]`. Written. Float32 is multiplied in TF32 on GPUs.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was written.
    """
    _multiply_batches(a, a.mT, d)


def batched_symm(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> None:
    """`d = a @ b` for each matrix, where the caller promises that a is symmetric; all of it is read.

    Args:
        a: bfloat16 or float32 `[B, M, M]` or `[M, M]`, of any strides.
        b: of a's dtype, `[B, M, K]` or `[M, K]`.
        d: of a's dtype and b's shape. Written. Float32 is multiplied in TF32 on GPUs.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was written.
    """
    if a.dim() < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"a must be square, [B, M, M] or [M, M], got shape {[*a.shape]}")
    _multiply_batches(a, b, d)


def _multiply_batches(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> None:
    if a.dtype not in _DTYPES or b.dtype != a.dtype or d.dtype != a.dtype:
        dtypes = ", ".join(str(x.dtype) for x in (a, b, d))
        raise TypeError(f"a, b and d must have one dtype, bfloat16 or float32, got {dtypes}")
    wanted = (*a.shape[:-1], b.shape[-1])
    if a.dim() not in (2, 3) or b.dim() != a.dim() or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if tuple(d.shape) != wanted:
        raise ValueError(f"d must be {[*wanted]}, got shape {[*d.shape]}")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # TF32; torch has no such choice for one call
    try:
        with _parts_in_fp32():
            torch.matmul(a, b, out=d)
    finally:
        torch.set_float32_matmul_precision(before)


def _tiled(codes: torch.Tensor) -> tuple[int, int]:
    """Rows and columns of a matrix's scales, filled up to whole tiles."""
    return align(codes.shape[0], TILE_ROWS), align(ceil_div(2 * codes.shape[1], _NVFP4_GROUP), TILE_COLUMNS)


def _dequantised(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    rows = scales_of_tiles(scales.view(torch.float8_e4m3fn).view(_tiled(codes))).float()
    k = 2 * codes.shape[1]
    return cast_back_from_fp4(codes, rows[: codes.shape[0], : k // _NVFP4_GROUP], gran_k=_NVFP4_GROUP)
