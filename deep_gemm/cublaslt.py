"""The baselines: the same products through torch, which calls cuBLASLt on GPUs.

`a` and `b` are BF16 (or FP32), or FP8 with one scale of 1 for each tensor. They are for comparing with, not for speed
records of their own: where cuBLASLt wants another layout, the operand is copied first.
"""

from __future__ import annotations

import torch

__all__ = ["cublaslt_gemm_nn", "cublaslt_gemm_nt", "cublaslt_gemm_tn", "cublaslt_gemm_tt"]

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


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
        if c is None:
            torch.mm(a, b, out=d)
        else:
            torch.addmm(c, a, b, out=d)
        return
    elif a.is_cuda:
        product = torch.mm(a, b, out_dtype=d.dtype)
    else:
        product = (a.float() @ b.float()).to(d.dtype)
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
