"""Operands of grouped products, padded with NaN wherever a kernel must not look, and checks of their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from candidates import forced, grouped_candidates, straight
from hypothesis import strategies as st
from inputs import GuardedOutput, Operand, ceil_div, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm

FP8_NAN = 0x7F


def poison_rows(operand: Operand, rows: torch.Tensor) -> None:
    """NaN in these rows (a boolean mask over all leading dimensions) of the data and of its scales."""
    operand.data.view(torch.uint8)[rows] = FP8_NAN
    operand.scales[rows] = float("nan")


def assert_zero_padding(d: torch.Tensor, experts: torch.Tensor, num_experts: int) -> None:
    """Rows of D whose index is no expert's are zeros."""
    padding = (experts < 0) | (experts >= num_experts)
    wrong = (padding & (d != 0).any(dim=1)).nonzero().flatten().tolist()
    assert not wrong, f"{len(wrong)} of {int(padding.sum())} rows of padding are not zeros, the first is row {wrong[0]}"


@contextmanager
def alignment_of(rows: int) -> Iterator[None]:
    before = deep_gemm.get_mk_alignment_for_contiguous_layout()
    deep_gemm.set_mk_alignment_for_contiguous_layout(rows)
    try:
        yield
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(before)


@dataclass
class Contiguous:
    """Experts' rows one after the other, each expert aligned; NaN in all padding."""

    a: Operand
    b: Operand
    counts: list[int]
    starts: list[int]
    m: int

    @property
    def device(self) -> torch.device:
        return self.a.data.device

    @property
    def n(self) -> int:
        return self.b.data.shape[1]

    @property
    def indices(self) -> torch.Tensor:
        """int32 [M]: the expert of each row, -1 for padding."""
        indices = torch.full((self.m,), -1, dtype=torch.int32)
        for expert, (start, count) in enumerate(zip(self.starts, self.counts, strict=True)):
            indices[start : start + count] = expert
        return indices.to(self.device)

    @property
    def ends(self) -> torch.Tensor:
        """int32 [experts]: where each expert's real rows end."""
        ends = [start + count for start, count in zip(self.starts, self.counts, strict=True)]
        return torch.tensor(ends, dtype=torch.int32, device=self.device)

    def layout(self, psum: bool) -> torch.Tensor:
        return self.ends if psum else self.indices

    def output(self, dtype: torch.dtype = torch.bfloat16, **guard) -> GuardedOutput:
        return GuardedOutput((self.m, self.n), dtype, self.device, **guard)

    def check(self, d: torch.Tensor) -> None:
        """Every expert's rows against FP64."""
        for expert, (start, count) in enumerate(zip(self.starts, self.counts, strict=True)):
            rows = slice(start, start + count)
            if count:
                a = Operand(self.a.data[rows], self.a.scales[rows])
                b = Operand(self.b.data[expert], self.b.scales[expert])
                assert_matches(d[rows], product_nt(a, b), f"expert {expert}, rows {start} to {start + count},")


def contiguous(
    counts: Sequence[int],
    n: int,
    k: int,
    device: torch.device | str,
    alignment: int = 128,
    extra_rows: int = 0,
    cut_rows: int = 0,
    per_row_b: bool = False,
    seed: int = 0,
) -> Contiguous:
    """`extra_rows` of padding follow the last expert; `cut_rows` of its padding are missing."""
    starts, m = [], 0
    for count in counts:
        starts.append(m)
        m += ceil_div(count, alignment) * alignment
    m += extra_rows - cut_rows
    a = random_rows((m, k), device, seed)
    shape = (len(counts), n, k)
    b = random_rows(shape, device, seed + 1) if per_row_b else random_blocks(shape, device, seed + 1)
    case = Contiguous(a, b, list(counts), starts, m)
    poison_rows(a, case.indices < 0)
    return case


@dataclass
class Masked:
    """One matrix of the same height for each expert, of which the first rows count; NaN in the others."""

    a: Operand
    b: Operand
    counts: torch.Tensor

    def output(self, dtype: torch.dtype = torch.bfloat16, **guard) -> GuardedOutput:
        experts, max_m, _ = self.a.data.shape
        return GuardedOutput((experts, max_m, self.b.data.shape[1]), dtype, self.a.data.device, **guard)

    def check(self, d: torch.Tensor) -> None:
        for expert, count in enumerate(self.counts.tolist()):
            if count:
                a = Operand(self.a.data[expert, :count], self.a.scales[expert, :count])
                b = Operand(self.b.data[expert], self.b.scales[expert])
                assert_matches(d[expert, :count], product_nt(a, b), f"expert {expert}, {count} rows,")


def masked(
    counts: Sequence[int],
    max_m: int,
    n: int,
    k: int,
    device: torch.device | str,
    per_row_b: bool = False,
    seed: int = 0,
) -> Masked:
    experts = len(counts)
    a = random_rows((experts, max_m, k), device, seed)
    b = (random_rows if per_row_b else random_blocks)((experts, n, k), device, seed + 1)
    valid = torch.tensor(counts, dtype=torch.int32, device=device)
    poison_rows(a, torch.arange(max_m, device=device)[None, :] >= valid[:, None])
    return Masked(a, b, valid)


def run_experts(case: Contiguous | Masked, d: torch.Tensor, hint: int, psum: bool = False) -> None:
    """The product of a masked case, of whose counts `hint` is the expected one, or of a contiguous one."""
    if isinstance(case, Masked):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, d, case.counts, hint)
    else:
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, d, case.layout(psum), use_psum_layout=psum)


def run_more_runs_than_any_legal_layout_has(device: torch.device) -> None:
    """Only where nobody reads the layout first."""
    case = contiguous([64] * 260, 16, 16, device, alignment=64)
    found = grouped_candidates("m_contiguous", 260, case.m, 16, 16, 0, 128)
    out = case.output()
    with forced(case.device, 512, 16, 16, straight(found, 256, 128)):  # 64 rows an expert, though 128 are promised
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
    out.check(complete=False)


@st.composite
def grouped_problems(draw) -> tuple[list[int], int, int, int]:
    counts = draw(st.lists(st.one_of(st.just(0), st.integers(1, 9), st.integers(1, 200)), min_size=1, max_size=6))
    n = draw(st.one_of(st.integers(1, 40), st.integers(1, 35).map(lambda x: 8 * x)))
    return counts, n, 16 * draw(st.integers(1, 24)), draw(st.sampled_from([1, 8, 30, 200]))
