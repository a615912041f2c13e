"""The factor that products of FP4 with FP4 multiply complete sums by."""

from __future__ import annotations

import pytest
import torch
from devices import MULTIPLY_FP4
from fp4_operands import assert_near, operand
from grouped_inputs import alignment_of
from inputs import GuardedOutput

import deep_gemm

KINDS = ("mxfp4", "nvfp4")
M, N, K = 40, 72, 288
ALPHA = 0.375


def scalar(value: float, shape: tuple[int, ...] = ()) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.float32)


@pytest.mark.parametrize("alpha", [ALPHA, 3, scalar(ALPHA), scalar(ALPHA, (1,))], ids=str)
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_it_is_a_number_or_a_tensor(device, alpha) -> None:
    a, b = operand("nvfp4", M, K, 1), operand("nvfp4", N, K, 2)
    d = GuardedOutput((M, N), torch.float32, device)
    deep_gemm.fp4_gemm_nt(a.pair, b.pair, d.tensor, alpha=alpha)
    d.check()
    assert_near(d.tensor, a.exact, b.exact, float(alpha))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_c_is_added_as_it_is(device, in_place) -> None:
    a, b = operand("mxfp4", M, K, 1), operand("mxfp4", N, K, 2)
    c = torch.randn((M, N), generator=torch.Generator().manual_seed(3))
    d = GuardedOutput((M, N), torch.float32, device)
    given = d.tensor.copy_(c) if in_place else c
    deep_gemm.fp4_gemm_nt(a.pair, b.pair, d.tensor, given, alpha=ALPHA)
    expected = c.double() + ALPHA * (a.exact @ b.exact.T)
    assert (d.tensor.double() - expected).abs().le(2e-6 * (c.abs() + a.exact.abs() @ b.exact.abs().T)).all()


@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_calls_that_lie_ready_read_it_anew(device) -> None:
    """As replays of a graph do."""
    a, b = operand("nvfp4", M, K, 1), operand("nvfp4", N, K, 2)
    words = [(x.codes, x.words_with_nan[1].T.contiguous().T) for x in (a, b)]  # of which nothing is copied
    alpha, d = scalar(1), torch.empty((M, N))
    for value in (1, 2, -0.5, 4):
        alpha.fill_(value)
        deep_gemm.fp4_gemm_nt(*words, d, recipe=(1, 1, 16), alpha=alpha)
        assert_near(d, a.exact, b.exact, value)
    for value in (2, 2, 3, 3):
        deep_gemm.fp4_gemm_nt(*words, d, recipe=(1, 1, 16), alpha=value)
        assert_near(d, a.exact, b.exact, value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [ALPHA, scalar(ALPHA), torch.tensor([2.0, 0.25])], ids=["number", "one", "each"])
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_experts_have_one_or_one_each(device, alpha, kind) -> None:
    weights = [operand(kind, N, K, seed) for seed in (1, 2)]
    tokens = [operand(kind, 128, K, seed) for seed in (3, 4)]
    b, a = (
        tuple(torch.stack([x.pair[i].view(torch.uint8) for x in group]).view(group[0].pair[i].dtype) for i in (0, 1))
        for group in (weights, tokens)
    )
    factors = alpha.tolist() if isinstance(alpha, torch.Tensor) and alpha.ndim == 1 else [float(alpha)] * 2
    masked = GuardedOutput((2, 128, N), torch.float32, device)
    deep_gemm.m_grouped_fp4_gemm_nt_masked(
        a, b, masked.tensor, torch.tensor([128, 7], dtype=torch.int32), 60, alpha=alpha
    )
    masked.check(complete=False)
    rows = tuple(x.flatten(0, 1) for x in a)
    layouts = {False: torch.arange(2, dtype=torch.int32).repeat_interleave(128), True: torch.tensor([128, 256]).int()}
    for psum, layout in layouts.items():
        d = GuardedOutput((256, N), torch.float32, device)
        with alignment_of(128):
            deep_gemm.m_grouped_fp4_gemm_nt_contiguous(rows, b, d.tensor, layout, use_psum_layout=psum, alpha=alpha)
        d.check()
        for expert, count in enumerate((128, 7)):
            one = d.tensor[128 * expert :][:128]
            assert_near(one, tokens[expert].exact, weights[expert].exact, factors[expert])
            assert torch.equal(masked.tensor[expert, :count], one[:count])


@pytest.mark.parametrize("alpha", [ALPHA, scalar(ALPHA)], ids=["number", "tensor"])
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_k_groups_share_it(device, alpha) -> None:
    ks = [64, 0, 288]
    operands = {rows: [operand("nvfp4", rows, k, rows + k) for k in ks] for rows in (M, N)}
    a, b = (
        (
            torch.cat([x.codes.flatten() for x in group]),
            torch.cat([x.scales for x in group], 1).view(torch.float8_e4m3fn),
        )
        for group in operands.values()
    )
    c = torch.ones((len(ks), M, N))
    d = GuardedOutput(tuple(c.shape), torch.float32, device)
    deep_gemm.k_grouped_fp4_gemm_nt_contiguous(a, b, d.tensor, ks, torch.tensor(ks).int(), c, alpha=alpha)
    d.check()
    for group in range(len(ks)):
        x, y = operands[M][group].exact, operands[N][group].exact
        wrong = (d.tensor[group].double() - 1 - ALPHA * (x @ y.T)).abs() > 2e-6 * (1 + x.abs() @ y.abs().T)
        assert not wrong.any()


@pytest.mark.parametrize(
    ("alpha", "error", "text"),
    [
        (torch.ones(2), ValueError, r"alpha must be a number, or a tensor of one element, got shape \[2\]"),
        (torch.ones((), dtype=torch.float64), TypeError, r"alpha must be float32, got float64"),
        (1e39, ValueError, r"alpha must be a number that FP32 can hold, got 1e\+39"),
        ("2", TypeError, r"alpha must be a number, a tensor of numbers or None, got"),
    ],
)
@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_others_are_refused(device, alpha, error, text) -> None:
    a, b = operand("nvfp4", M, K, 1), operand("nvfp4", N, K, 2)
    d = GuardedOutput((M, N), torch.float32, device)
    with pytest.raises(error, match=text):
        deep_gemm.fp4_gemm_nt(a.pair, b.pair, d.tensor, alpha=alpha)
    d.assert_untouched()


@pytest.mark.parametrize("device", MULTIPLY_FP4, indirect=True)
def test_it_may_not_lie_in_d(device) -> None:
    a, b = operand("nvfp4", M, K, 1), operand("nvfp4", N, K, 2)
    d = torch.zeros((M, N))
    with pytest.raises(ValueError, match="alpha"):
        deep_gemm.fp4_gemm_nt(a.pair, b.pair, d, alpha=d[0, 0])
