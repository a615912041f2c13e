"""BF16 and FP16 operands of experts, and checks of calls with them against FP64 products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from bf16_inputs import lying, matches, values
from inputs import GuardedOutput, ceil_div

import deep_gemm


class Experts:
    """Rows of experts in one matrix, each expert aligned, NaN in all padding."""

    def __init__(
        self,
        counts: Sequence[int],
        n: int,
        k: int,
        device: torch.device,
        alignment: int = 128,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.counts, self.starts, m = list(counts), [], 0
        for count in counts:
            self.starts.append(m)
            m += ceil_div(count, alignment) * alignment
        self.a, self.b = values((m, k), device, 1, dtype), values((len(counts), n, k), device, 2, dtype)
        indices = torch.full((m,), -1, dtype=torch.int32)
        for expert, rows in enumerate(self.rows()):
            indices[rows] = expert
        self.indices = indices.to(device)
        self.a[self.indices < 0] = float("nan")
        ends = [start + count for start, count in zip(self.starts, self.counts, strict=True)]
        self.ends = torch.tensor(ends, dtype=torch.int32, device=device)

    def rows(self) -> list[slice]:
        return [slice(start, start + count) for start, count in zip(self.starts, self.counts, strict=True)]

    def check(self, d: torch.Tensor) -> None:
        for expert, rows in enumerate(self.rows()):
            if rows.start < rows.stop:
                matches(d[rows], self.a[rows], self.b[expert], what=f"expert {expert}")


def run_contiguous(case: Experts, psum: bool, nn: bool, dtype: torch.dtype = torch.bfloat16) -> None:
    out = GuardedOutput((case.a.shape[0], case.b.shape[1]), dtype, case.a.device)
    gemm = deep_gemm.m_grouped_bf16_gemm_nn_contiguous if nn else deep_gemm.m_grouped_bf16_gemm_nt_contiguous
    gemm(case.a, lying(case.b, nn), out.tensor, case.ends if psum else case.indices, use_psum_layout=psum)
    out.check(complete=False)
    case.check(out.tensor)


def run_masked(
    counts: list[int],
    max_m: int,
    n: int,
    k: int,
    device: torch.device,
    expected_m: int,
    dtype: torch.dtype = torch.bfloat16,
    of_operands: torch.dtype = torch.bfloat16,
) -> None:
    a = values((len(counts), max_m, k), device, 1, of_operands)
    b = values((len(counts), n, k), device, 2, of_operands)
    for expert, count in enumerate(counts):
        a[expert, count:] = float("nan")
    out = GuardedOutput((len(counts), max_m, n), dtype, device)
    masked_m = torch.tensor(counts, dtype=torch.int32, device=device)
    deep_gemm.m_grouped_bf16_gemm_nt_masked(a, lying(b, False), out.tensor, masked_m, expected_m)
    out.check(complete=False)
    for expert, count in enumerate(counts):
        if count:
            matches(out.tensor[expert, :count], a[expert, :count], b[expert], what=f"expert {expert}")
