"""Triton kernels that quantise to E4M3 with FP32 scales for 128 of K: what another compiler reaches."""

from __future__ import annotations

import functools
import sys

import torch

GROUP = 128
ROWS = (1, 4, 16)
MASKED_PROGRAMS = 4  # that share an expert's rows in use


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
        x,
        q,
        s,
        counts,
        m,
        k,
        x_strides,
        s_strides,
        rows: tl.constexpr,
        group: tl.constexpr,
        gated: tl.constexpr,
        masked: tl.constexpr,
    ):
        expert = tl.program_id(2).to(tl.int64)
        if masked:
            m = tl.load(counts + expert)
        column = tl.program_id(1) * group + tl.arange(0, group)
        x += expert * x_strides[0]
        q += expert * x_strides[0] // (2 if gated else 1)
        s += expert * s_strides[0]
        for first in range(tl.program_id(0) * rows, m, tl.num_programs(0) * rows):
            row = first + tl.arange(0, rows)
            exists = (row < m)[:, None] & (column < k)[None, :]
            source = x + row.to(tl.int64)[:, None] * x_strides[1] + column[None, :]
            values = tl.load(source, mask=exists, other=0.0).to(tl.float32)
            if gated:
                up = tl.load(source + k, mask=exists, other=0.0).to(tl.float32)
                values = values / (1.0 + tl.exp(-values)) * up
            scale = tl.maximum(tl.max(tl.abs(values), 1), 1e-4) / 448.0
            codes = (values / scale[:, None]).to(tl.float8e4nv)
            tl.store(q + row.to(tl.int64)[:, None] * k + column[None, :], codes, mask=exists)
            tl.store(s + row * s_strides[1] + tl.program_id(1) * s_strides[2], scale, mask=row < m)

    return kernel


def _launch(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, counts: torch.Tensor | None, gated: bool) -> None:
    """`x` and `q` are contiguous: [rows, K], or [experts, rows, K] with the number of rows in use of each expert."""
    if x.ndim == 2:
        x, q, s = x[None], q[None], s[None]
    experts, m, k = q.shape
    masked = counts is not None
    rows = 4 if masked else next((rows for rows in reversed(ROWS) if m // rows * (k // GROUP) >= 2048), 1)
    grid = (MASKED_PROGRAMS if masked else -(-m // rows), -(-k // GROUP), experts)
    _kernel()[grid](
        x, q, s, counts, m, k, x.stride()[:2], s.stride(), rows, GROUP, gated, masked, num_warps=1 if rows == 1 else 4
    )


def cast(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, counts: torch.Tensor | None = None) -> None:
    _launch(x, q, s, counts, gated=False)


def swiglu(gate_up: torch.Tensor, q: torch.Tensor, s: torch.Tensor, counts: torch.Tensor | None = None) -> None:
    _launch(gate_up, q, s, counts, gated=True)
