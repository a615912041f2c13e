"""INT8 products of experts: exact sums, and scaled ones bit by bit as `int8_gemm_nt`'s docstring says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from devices import ONE_OF_EACH_ARCH
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div, random_values
from int8_inputs import exact, scales, values, wanted

import deep_gemm

COUNTS = [5, 0, 130, 1]  # experts' rows
HEIGHT = 136  # of their matrices, where each has one
GROUPINGS = ["masked", "indices", "psum"]
SIZES = [(136, 272), (24, 640), (75, 144)]
FLOATS = [torch.bfloat16, torch.float16, torch.float32]
EVERY_GROUPING = pytest.mark.parametrize("grouping", GROUPINGS)


@dataclass
class Experts:
    """Rows of experts, with padding of 127 between them; where each one's begin, and in which row of `a`'s first two
    dimensions together."""

    a: torch.Tensor
    w: torch.Tensor
    grouping: str
    starts: list[int]
    counts: list[int]

    @staticmethod
    def make(grouping: str, n: int, k: int, device: torch.device, counts: list[int] = COUNTS) -> Experts:
        heights = [HEIGHT if grouping == "masked" else ceil_div(count, 128) * 128 for count in counts]
        starts = [sum(heights[:expert]) for expert in range(len(counts))]
        a = torch.full((sum(heights), k), 127, dtype=torch.int8, device=device)
        for expert, (start, count) in enumerate(zip(starts, counts, strict=True)):
            a[start : start + count] = values((count, k), device, expert)
        return Experts(a, values((len(counts), n, k), device, 99), grouping, starts, counts)

    @property
    def rows(self) -> tuple[int, ...]:
        return (len(self.counts), HEIGHT) if self.grouping == "masked" else (len(self.a),)

    def run(self, a_scales: Any, w_scales: Any, d: torch.Tensor, zeros: Any = None, **options: Any) -> None:
        """Scales and zero points of `a` are for all of its rows. None: there are none."""
        device = self.a.device
        data = self.a.view(*self.rows, -1)
        if isinstance(a_scales, torch.Tensor) and a_scales.numel() > 1:
            a_scales = a_scales.view(self.rows)
        a = data if a_scales is None else (data, a_scales)
        if zeros is not None:
            zeros = zeros.view(self.rows) if isinstance(zeros, torch.Tensor) and zeros.numel() > 1 else zeros
            a = (data, a_scales, zeros)
        w = self.w if w_scales is None else (self.w, w_scales)
        if self.grouping == "masked":
            counts = torch.tensor(self.counts, dtype=torch.int32, device=device)
            deep_gemm.m_grouped_int8_gemm_nt_masked(a, w, d.view(*self.rows, -1), counts, 40, **options)
            return
        ends = [start + count for start, count in zip(self.starts, self.counts, strict=True)]
        layout = torch.full((len(self.a),), -1, dtype=torch.int32)
        for expert, (start, end) in enumerate(zip(self.starts, ends, strict=True)):
            layout[start:end] = expert
        psum = self.grouping == "psum"
        layout = (torch.tensor(ends, dtype=torch.int32) if psum else layout).to(device)
        with alignment_of(128):
            deep_gemm.m_grouped_int8_gemm_nt_contiguous(a, w, d, layout, use_psum_layout=psum, **options)

    def output(self, dtype: torch.dtype) -> GuardedOutput:
        return GuardedOutput((len(self.a), self.w.shape[1]), dtype, self.a.device)

    def check(self, out: GuardedOutput, expected) -> None:
        """`expected(expert, rows)` says what belongs into an expert's rows; padding becomes zero, or stays."""
        out.check(complete=self.grouping != "masked")
        covered = torch.zeros(len(self.a), dtype=torch.bool)
        for expert, (start, count) in enumerate(zip(self.starts, self.counts, strict=True)):
            rows = slice(start, start + count)
            covered[rows] = True
            assert torch.equal(out.tensor[rows], expected(expert, rows)), f"expert {expert}"
        if self.grouping != "masked":
            assert not out.tensor[~covered].any(), "padding becomes zero"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("n", "k"), SIZES)
@EVERY_GROUPING
def test_exact_sums(device, grouping, n, k) -> None:
    experts = Experts.make(grouping, n, k, device)
    out = experts.output(torch.int32)
    experts.run(None, None, out.tensor)
    experts.check(out, lambda expert, rows: exact(experts.a[rows], experts.w[expert]).int())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("biased", [False, True])
@EVERY_GROUPING
def test_scales_of_tokens_and_channels(device, grouping, biased, dtype, n, k) -> None:
    experts = Experts.make(grouping, n, k, device)
    of_tokens = scales(len(experts.a), device, 1) / 64
    of_channels = scales(len(COUNTS) * n, device, 2).view(len(COUNTS), n)
    bias = random_values((len(COUNTS), n), device, 3).to(dtype) if biased else None
    out = experts.output(dtype)
    experts.run(of_tokens, of_channels, out.tensor, bias=bias)

    def expected(expert: int, rows: slice) -> torch.Tensor:
        own = None if bias is None else bias[expert]
        return wanted(experts.a[rows], of_tokens[rows], experts.w[expert], of_channels[expert], dtype, own)

    experts.check(out, expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("form", ["number", "one", "column", "strided"])
@EVERY_GROUPING
def test_every_form_of_scales(device, grouping, form) -> None:
    n, k = 40, 144
    experts = Experts.make(grouping, n, k, device)
    each = scales(len(COUNTS) * n, device, 2).view(len(COUNTS), n)
    given = {
        "number": 0.25,
        "one": torch.full((1,), 0.25, device=device),
        "column": each[..., None],
        "strided": each.repeat_interleave(3, 1)[:, ::3],
    }[form]
    out = experts.output(torch.float32)
    experts.run(0.5, given, out.tensor)
    of_channels = each if form in ("column", "strided") else torch.full_like(each, 0.25)
    experts.check(
        out,
        lambda expert, rows: wanted(experts.a[rows], 0.5, experts.w[expert], of_channels[expert], torch.float32),
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@EVERY_GROUPING
def test_of_no_k(device, grouping) -> None:
    """Experts' rows are the bias, or zero."""
    experts = Experts.make(grouping, 24, 0, device)
    bias = random_values((len(COUNTS), 24), device, 3)
    for added in (None, bias):
        out = experts.output(torch.float32)
        experts.run(1.0, 1.0, out.tensor, bias=added)
        own = torch.zeros_like(bias) if added is None else added
        experts.check(out, lambda expert, rows, own=own: own[expert].expand(rows.stop - rows.start, -1))


def test_without_experts_all_rows_are_padding() -> None:
    d = torch.full((256, 24), float("nan"))
    a, w = (values((rows, 64), "cpu", 1) for rows in (256, 0))
    layout = torch.full((256,), -1, dtype=torch.int32)
    deep_gemm.m_grouped_int8_gemm_nt_contiguous((a, 1.0), (w.view(0, 24, 64), 1.0), d, layout)
    assert not d.any()


@pytest.mark.parametrize("grouping", ["masked", "psum"])
def test_rows_do_not_depend_on_other_rows(grouping, batch_invariant) -> None:
    """Nor on how many an expert has."""
    n, k, device = 72, 400, torch.device("cpu")
    found = []
    for counts in ([3, 128], [130, 128], [3, 0]):
        experts = Experts.make(grouping, n, k, device, counts)
        out = experts.output(torch.float32)
        experts.a[:3] = values((3, k), device, 7)
        experts.w[0] = values((n, k), device, 8)
        experts.run(0.37, 0.11, out.tensor)
        found.append(out.tensor[:3].clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


class TestErrors:
    """A wrong call is refused in a sentence, and D stays as it was."""

    @pytest.mark.parametrize(
        ("error", "match", "changes"),
        [
            (ValueError, "w must have scales, as a has", {"w": lambda w: w}),
            (TypeError, "d must be a floating dtype where operands have scales", {"d": torch.int32}),
            (ValueError, "w's scales must be one .* of each of 2 groups", {"w": lambda w: (w, torch.ones(3, 24))}),
            (ValueError, r"bias must be \[G, N\] = \[2, 24\], got shape \[24\]", {"bias": torch.ones(24)}),
            (ValueError, r"bias must be \[G, N\]", {"bias": torch.ones(3, 24)}),
            (TypeError, "w must be int8, got float32", {"w": lambda w: (w.float(), 1.0)}),
            (ValueError, "w has K=32 but a has K=64", {"w": lambda w: (w[..., :32], 1.0)}),
            (ValueError, "w has 1 experts but a has 2", {"w": lambda w: (w[:1], 1.0)}),
        ],
    )
    def test_wrong_calls(self, error, match, changes) -> None:
        a, w = values((2, 16, 64), "cpu", 0), values((2, 24, 64), "cpu", 1)
        d = GuardedOutput((2, 16, 24), changes.get("d", torch.float32), "cpu")
        given = changes["w"](w) if "w" in changes else (w, 1.0)
        with pytest.raises(error, match=match):
            deep_gemm.m_grouped_int8_gemm_nt_masked(
                (a, 1.0), given, d.tensor, torch.tensor([3, 4], dtype=torch.int32), 4, bias=changes.get("bias")
            )
        d.assert_untouched()

    def test_k_too_long_for_exact_sums(self) -> None:
        a, w = (values((1, rows, 131088), "cpu", rows) for rows in (2, 8))
        d = GuardedOutput((1, 2, 8), torch.float32, "cpu")
        with pytest.raises(ValueError, match=r"K must be at most 131071 .* got 131088"):
            deep_gemm.m_grouped_int8_gemm_nt_masked(
                (a, 1.0), (w, 1.0), d.tensor, torch.tensor([2], dtype=torch.int32), 2
            )
        d.assert_untouched()
