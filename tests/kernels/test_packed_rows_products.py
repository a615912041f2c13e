"""Products with PackedWeights of MXFP4 on Blackwell: each call reads what packing made, and packs nothing."""

from __future__ import annotations

import pytest
import torch
from devices import SCHEDULES, on_simulator
from fp4_inputs import Fp4Rows, Fp8Rows, matches
from grouped_inputs import alignment_of
from inputs import GuardedOutput

import deep_gemm
from deep_gemm import simulator

EACH_SCHEDULE = pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)


def packed(w: Fp4Rows) -> deep_gemm.PackedWeights:
    return deep_gemm.pack_weights(w.codes, w.scales, element="e2m1", activations="fp8", group_size=32)


@pytest.mark.sampled(12)
@EACH_SCHEDULE
@pytest.mark.parametrize("size", [(1, 136, 256), (9, 40, 2880), (140, 300, 416), (300, 264, 128)], ids=str)
@pytest.mark.parametrize("group", [32, 128])
def test_dense(device, size, group) -> None:
    m, n, k = size
    a, w = Fp8Rows((m, k), "words", group), Fp4Rows((n, k))
    weights, c = packed(w), torch.randn((m, n), generator=torch.Generator().manual_seed(m))
    d = GuardedOutput((m, n), torch.float32, device)
    data, words = a.pair
    words = words.T.contiguous().T if m % 4 == 0 else torch.nn.functional.pad(words, (0, 0, 0, -m % 4)).T.contiguous().T
    simulator.clear_reports()
    deep_gemm.fp8_fp4_gemm_nt((data, words[:m]), weights, d.tensor, recipe_a=(1, group))
    [launched] = [report.kernel for report in simulator.reports()]
    assert launched.startswith("fp8_gemm_sm100_dense")
    d.check()
    matches(d.tensor, a, w)
    added = torch.empty((m, n))
    deep_gemm.fp8_fp4_gemm_nt((data, words[:m]), weights, added, c, recipe_a=(1, group))
    assert (added - d.tensor - c).abs().le(1e-5 * (c.abs() + d.tensor.abs()).amax()).all()


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
@pytest.mark.parametrize("psum", [False, True], ids=["indices", "psum"])
def test_experts(device, psum) -> None:
    counts, n, k = [5, 0, 130, 1], 72, 288
    heights = [-(-count // 128) * 128 for count in counts]
    starts = [sum(heights[:expert]) for expert in range(len(counts))]
    a, w = Fp8Rows((sum(heights), k)), Fp4Rows((len(counts), n, k))
    layout = torch.full((sum(heights),), -1, dtype=torch.int32)
    for expert, (start, count) in enumerate(zip(starts, counts, strict=True)):
        layout[start : start + count] = expert
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, counts, strict=True)], dtype=torch.int32)
    weights, d = packed(w), GuardedOutput((sum(heights), n), torch.float32, device)
    with alignment_of(128):
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a.pair, weights, d.tensor, layout, use_psum_layout=psum)
    d.check()
    for expert, (start, count) in enumerate(zip(starts, counts, strict=True)):
        rows = slice(start, start + count)
        expected, magnitude = a.exact[rows] @ w.exact[expert].T, a.exact[rows].abs() @ w.exact[expert].abs().T
        assert (d.tensor[rows].double() - expected).abs().le(1e-6 * magnitude).all()
        assert not d.tensor[start + count : start + heights[expert]].any()


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
def test_masked_experts_and_one_that_is_replaced(device) -> None:
    counts, height, n, k = [5, 0, 130], 136, 40, 160
    a, w = Fp8Rows((3, height, k)), Fp4Rows((3, n, k))
    weights, masked_m = packed(w), torch.tensor(counts, dtype=torch.int32)
    other = Fp4Rows((n, k))
    weights[2] = packed(other)
    exact = [w.exact[0], w.exact[1], other.exact]
    bias = torch.randn((3, n), generator=torch.Generator().manual_seed(0))
    d = GuardedOutput((3, height, n), torch.float32, device)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(a.pair, weights, d.tensor, masked_m, 40, bias=bias)
    d.check(complete=False)
    for expert, count in enumerate(counts):
        rows = a.exact[expert, :count]
        wrong = (d.tensor[expert, :count].double() - rows @ exact[expert].T - bias[expert].double()).abs()
        assert wrong.le(1e-6 * (rows.abs() @ exact[expert].abs().T + bias[expert].abs())).all()


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
def test_a_part_of_n_and_of_k_is_multiplied_as_it_would_be_alone(device) -> None:
    a, w = Fp8Rows((7, 160)), Fp4Rows((192, 288))
    part = packed(w).slice_n(64, 192).slice_k(128, 288)
    d = torch.empty((7, 128))
    deep_gemm.fp8_fp4_gemm_nt(a.pair, part, d)
    expected, magnitude = a.exact @ w.exact[64:, 128:].T, a.exact.abs() @ w.exact[64:, 128:].abs().T
    assert (d.double() - expected).abs().le(1e-6 * magnitude).all()


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
def test_it_gives_what_the_public_pair_gives_and_runs_as_an_operator(device) -> None:
    a, w = Fp8Rows((9, 256)), Fp4Rows((72, 256))
    weights, d, of_pair, traced = packed(w), *(torch.empty((9, 72)) for _ in range(3))
    deep_gemm.fp8_fp4_gemm_nt(a.pair, weights, d)
    deep_gemm.fp8_fp4_gemm_nt(a.pair, w.pair, of_pair)
    assert torch.equal(d, of_pair)

    def step(data, scales):
        deep_gemm.fp8_fp4_gemm_nt((data, scales), weights, traced)
        return traced * 1

    torch._dynamo.reset()
    assert torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(*a.pair), d)


@pytest.mark.parametrize("device", on_simulator("any", arch="sm100"), indirect=True)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"disable_ue8m0_cast": True}, "disable_ue8m0_cast=True asks for .* none for e4m3 by e2m1r on sm_100a"),
        ({"recipe_a": (128, 128)}, r"scales of a must be for one row, but recipe_a says \(128, 128\)"),
        ({"recipe_b": (1, 32)}, "recipe_b must be None with PackedWeights"),
        ({"recipe_a": (1, 32)}, r"a's scales must be \[3, 4\]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_blackwell_cannot_multiply_is_refused(device, arguments, message) -> None:
    a, weights = Fp8Rows((3, 128)), packed(Fp4Rows((24, 128)))
    d = GuardedOutput((3, 24), torch.float32, device)
    with pytest.raises(ValueError, match=message):
        deep_gemm.fp8_fp4_gemm_nt(a.pair, weights, d.tensor, **arguments)
    d.assert_untouched()
