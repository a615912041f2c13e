"""Products as Triton compiles them, for any target and without a GPU: PTX that nobody wrote for this simulator."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

WARPS = 4


@triton.jit
def product(
    a_ptr, b_ptr, d_ptr, m_size, n_size, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SUMS: tl.constexpr, A_MN_MAJOR: tl.constexpr, B_MN_MAJOR: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=SUMS)
    for i in range(0, K, BK):
        if A_MN_MAJOR:
            a_from = a_ptr + m[:, None] + (i + k)[None, :] * m_size
        else:
            a_from = a_ptr + m[:, None] * K + (i + k)[None, :]
        if B_MN_MAJOR:
            b_from = b_ptr + n[None, :] + (i + k)[:, None] * n_size
        else:
            b_from = b_ptr + n[None, :] * K + (i + k)[:, None]
        if K % BK == 0:
            a, b = tl.load(a_from), tl.load(b_from)
        else:
            inside = i + k < K
            a = tl.load(a_from, mask=inside[None, :], other=0.0)
            b = tl.load(b_from, mask=inside[:, None], other=0.0)
        sums = tl.dot(a, b, sums, out_dtype=SUMS)
    tl.store(d_ptr + m[:, None] * n_size + n[None, :], sums)


@triton.jit
def scaled_product(
    a_ptr, a_scales, b_ptr, b_scales, d_ptr, m_size, n_size, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr, A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr, A_PACKED: tl.constexpr,
    B_PACKED: tl.constexpr,
):  # fmt: skip
    """Scales for each GROUP of K; PACKED elements stand in a byte."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    ka, kb, ks = tl.arange(0, BK // A_PACKED), tl.arange(0, BK // B_PACKED), tl.arange(0, BK // GROUP)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(K // BK):
        a = tl.load(a_ptr + m[:, None] * (K // A_PACKED) + (i * (BK // A_PACKED) + ka)[None, :])
        b = tl.load(b_ptr + n[None, :] * (K // B_PACKED) + (i * (BK // B_PACKED) + kb)[:, None])
        sa = tl.load(a_scales + m[:, None] * (K // GROUP) + (i * (BK // GROUP) + ks)[None, :])
        sb = tl.load(b_scales + n[:, None] * (K // GROUP) + (i * (BK // GROUP) + ks)[None, :])
        sums = tl.dot_scaled(a, sa, A_FORMAT, b, sb, B_FORMAT, sums)
    tl.store(d_ptr + m[:, None] * n_size + n[None, :], sums)


def compile_ptx(name: str, types: dict[str, str], constants: dict[str, Any], target: int) -> tuple[str, int]:
    """PTX of one of the kernels above, and its bytes of shared memory. Sizes and pointers are multiples of 16."""
    kernel = {"product": product, "scaled_product": scaled_product}[name]
    names = kernel.arg_names
    if "SUMS" in constants:
        constants = {**constants, "SUMS": getattr(tl, constants["SUMS"])}
    source = ASTSource(
        fn=kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in types},
    )
    options = {"num_warps": WARPS, "num_stages": 3}
    made = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    return made.asm["ptx"], made.metadata.shared
