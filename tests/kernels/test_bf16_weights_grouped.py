"""Products of BF16 and FP16 activations with packed weights of experts, against FP64 products."""

from __future__ import annotations

import pytest
import torch
from bf16_weight_inputs import activations, check, weights
from devices import TAKE_PACKED
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div
from kind_marks import ACTIVATIONS, EVERY_WIDE_KIND, OUTPUTS

COUNTS = [5, 0, 130, 1]  # experts' rows
HEIGHT = 136


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_WIDE_KIND
def test_masked(device, kind, biased, n, k, dtype, output) -> None:
    """Counts above the hint, an expert without rows, rows behind counts that are not finite."""
    generator = torch.Generator().manual_seed(2)
    a = activations((len(COUNTS), HEIGHT, k), dtype, generator)
    for group, count in enumerate(COUNTS):
        a[group, count:] = float("nan")
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((len(COUNTS), HEIGHT, n), output, device)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    bias = torch.randn((len(COUNTS), n), generator=generator) if biased else None
    call = kind.function("m_grouped_{}_gemm_nt_masked")
    call(a.to(device), w.to(device), d.tensor, counts, 40, bias=None if bias is None else bias.to(device))
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            added = 0 if bias is None else bias[group].double()
            check(d.tensor[group, :count], a[group, :count], exact[group], added)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@OUTPUTS
@ACTIVATIONS
@pytest.mark.parametrize(("n", "k"), [(136, 272), (24, 640)])
@pytest.mark.parametrize("psum", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@EVERY_WIDE_KIND
def test_contiguous(device, kind, biased, psum, n, k, dtype, output) -> None:
    generator = torch.Generator().manual_seed(3)
    heights = [ceil_div(count, 128) * 128 for count in COUNTS]
    starts = [sum(heights[:group]) for group in range(len(COUNTS))]
    a = activations((sum(heights), k), dtype, generator)
    layout = torch.full((sum(heights),), -1, dtype=torch.int32)
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        layout[start : start + count] = expert
        a[start + count : start + heights[expert]] = float("nan")
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, COUNTS, strict=True)], dtype=torch.int32)
    w, exact = weights(kind, (len(COUNTS), n, k), generator)
    d = GuardedOutput((sum(heights), n), output, device)
    call = kind.function("m_grouped_{}_gemm_nt_contiguous")
    bias = torch.randn((len(COUNTS), n), generator=generator) if biased else None
    with_bias = {} if bias is None else {"bias": bias.to(device)}
    with alignment_of(128):
        call(a.to(device), w.to(device), d.tensor, layout.to(device), use_psum_layout=psum, **with_bias)
    d.check()
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        rows = slice(start, start + count)
        if count:
            check(d.tensor[rows], a[rows], exact[expert], 0 if bias is None else bias[expert].double())
        assert not d.tensor[start + count : start + heights[expert]].any(), "padding becomes zero"
