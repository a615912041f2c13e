"""Selection: for every legal problem a config comes back, it fits, and equal problems get equal configs."""

from __future__ import annotations

import pytest
from candidates import HOPPER_SMS, candidates
from cases import ODD, PUBLIC
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm._extension import C

MAX_SMEM_BYTES = 232448


def check(m: int, n: int, k: int, num_sms: int) -> None:
    every = candidates(m, n, k, num_sms)
    legal = [candidate for candidate in every if candidate.refusal is None]
    assert legal, f"no config for {(m, n, k, num_sms)}"
    assert every[: len(legal)] == legal, "refused candidates must come last"
    costs = [candidate.cost for candidate in legal]
    assert costs == sorted(costs)
    assert costs[0] > 0
    for candidate in legal:
        assert candidate.smem <= MAX_SMEM_BYTES
        assert candidate.stages >= 2
        assert 1 <= candidate.ctas <= num_sms
        assert candidate.ctas % candidate.cluster == 0
        assert candidate.rows % 64 == 0
        assert candidate.cols % 8 == 0
        assert candidate.cols <= 256
    for candidate in every[len(legal) :]:
        assert candidate.refusal, "a refused candidate must say why"


@settings(max_examples=300, deadline=None)
@given(
    m=st.one_of(st.integers(1, 300), st.integers(1, 1 << 20)),
    n=st.one_of(st.integers(1, 300), st.integers(1, 1 << 18)),
    k=st.one_of(st.integers(1, 64), st.integers(1, 1 << 14)).map(lambda blocks: blocks * 16),
    num_sms=st.sampled_from([1, 2, 7, 78, 114, 132, 148]),
)
def test_every_legal_problem_has_a_config_that_fits(m, n, k, num_sms) -> None:
    check(m, n, k, num_sms)


@pytest.mark.parametrize(("m", "n", "k"), [*PUBLIC, *ODD])
def test_known_problems(m, n, k) -> None:
    check(m, n, k, HOPPER_SMS)


def test_equal_problems_get_equal_configs() -> None:
    assert C.explain(4096, 7168, 2048, 132) == C.explain(4096, 7168, 2048, 132)


def test_extents_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="M is 2147483648, which does not fit 32 bits"):
        C.explain(1 << 31, 128, 128, 132)
