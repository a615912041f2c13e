"""Memory at low addresses, as the heap of a Python that is not position-independent: no part of what has none."""

from __future__ import annotations

import ctypes

import torch

import deep_gemm
from deep_gemm import mega_moe_products
from deep_gemm._layer_calls import RecordedRank
from deep_gemm._recording import placeholder
from deep_gemm._simulated_ranks import SimulatedRanks

HIDDEN, INNER, EXPERTS, TOKENS, CHOICES = 1024, 512, 4, 64, 2
LOW, BYTES = 1 << 16, 1 << 20
READ_WRITE, PRIVATE_ANONYMOUS_FIXED = 3, 0x100022  # MAP_FIXED_NOREPLACE


def low(address: int, size: int) -> torch.Tensor:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    assert libc.mmap(address, size, READ_WRITE, PRIVATE_ANONYMOUS_FIXED, -1, 0) == address
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)


def test_rows_of_ranks_are_recorded(monkeypatch) -> None:
    """Rows that travel are checked as if all of them had memory."""
    at = low(LOW, BYTES)

    def room(_, found):
        rows = found.source.shape[0]
        q, scales = at[: rows * INNER], at[rows * INNER :].view(torch.float32)
        return q.view(torch.float8_e4m3fn).view(rows, INNER), scales[: INNER // 128 * rows].view(-1, rows).T

    monkeypatch.setattr(mega_moe_products.Products, "_room_for_inner", room)
    with deep_gemm.jit.record("sm_90a") as recording:
        group = RecordedRank(SimulatedRanks(2), 0)
        sizes = EXPERTS, TOKENS, CHOICES, HIDDEN, INNER
        buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, *sizes, device="cpu", persistent=True)
        weights = [
            (placeholder(EXPERTS // 2, n, k, dtype=torch.float8_e4m3fn), torch.ones(EXPERTS // 2, n // 128, k // 128))
            for n, k in ((2 * INNER, HIDDEN), (HIDDEN, INNER))
        ]
        y = placeholder(TOKENS, HIDDEN, dtype=torch.bfloat16)
        deep_gemm.fp8_mega_moe(y, *weights, buffer, num_tokens_bound=TOKENS)
    assert any("moe_layer" in kernel for kernel in map(str, recording.kernels))
