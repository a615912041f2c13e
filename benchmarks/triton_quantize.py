"""Triton kernels that quantise to E4M3 with FP32 scales for 128 of K: what another compiler reaches."""

from __future__ import annotations

import functools
import sys

import torch

GROUP = 128
ROWS = (1, 4, 16)


@functools.cache
def works(device: torch.device) -> bool:
    """Whether Triton is installed and compiles here."""
    try:
        x = torch.ones((2, GROUP), dtype=torch.bfloat16, device=device)
        q, s = torch.empty_like(x, dtype=torch.float8_e4m3fn), torch.empty((2, 1), device=device)
        cast(x, q, s)
        torch.cuda.synchronize()
    except Exception as error:
        print(f"no Triton here: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
        return False
    return True


@functools.cache
def _kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(
        x, q, s, m, k, x_stride, s_row_stride, s_k_stride, rows: tl.constexpr, group: tl.constexpr, gated: tl.constexpr
    ):
        row = tl.program_id(0) * rows + tl.arange(0, rows)
        column = tl.program_id(1) * group + tl.arange(0, group)
        exists = (row < m)[:, None] & (column < k)[None, :]
        source = x + row.to(tl.int64)[:, None] * x_stride + column[None, :]
        values = tl.load(source, mask=exists, other=0.0).to(tl.float32)
        if gated:
            up = tl.load(source + k, mask=exists, other=0.0).to(tl.float32)
            values = values / (1.0 + tl.exp(-values)) * up
        scale = tl.maximum(tl.max(tl.abs(values), 1), 1e-4) / 448.0
        codes = (values / scale[:, None]).to(tl.float8e4nv)
        tl.store(q + row.to(tl.int64)[:, None] * k + column[None, :], codes, mask=exists)
        tl.store(s + row * s_row_stride + tl.program_id(1) * s_k_stride, scale, mask=row < m)

    return kernel


def _launch(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, gated: bool) -> None:
    m, k = q.shape
    rows = next((rows for rows in reversed(ROWS) if m // rows * (k // GROUP) >= 2048), 1)
    grid = (-(-m // rows), -(-k // GROUP))
    _kernel()[grid](
        x, q, s, m, k, x.stride(0), s.stride(0), s.stride(1), rows, GROUP, gated, num_warps=1 if rows == 1 else 4
    )


def cast(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> None:
    _launch(x, q, s, gated=False)


def swiglu(gate_up: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> None:
    _launch(gate_up, q, s, gated=True)
