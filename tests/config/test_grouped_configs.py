"""Every config that selection may choose for groups gives the right result, and choices are sensible."""

from __future__ import annotations

import pytest
import torch
from candidates import Candidate, forced, grouped_candidates
from devices import FEW
from grouped_inputs import alignment_of, contiguous, masked, run_experts
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm._targets import HOPPER_SMS

KINDS = ["m_contiguous", "m_psum", "masked"]
PARTS = 6


def legal(found: list[Candidate]) -> list[Candidate]:
    return [candidate for candidate in found if candidate.rejection is None or "twice what" in candidate.rejection]


def check_configs(device: torch.device, kind: str, n: int, k: int, alignment: int, chosen: slice) -> None:
    counts = [5, 0, 130, 300]
    m = 300 if kind == "masked" else sum(-(-count // alignment) * alignment for count in counts)
    wrong = []
    with alignment_of(alignment):
        case = masked(counts, m, n, k, device) if kind == "masked" else contiguous(counts, n, k, device, alignment)
        every_legal = legal(grouped_candidates(kind, len(counts), m, n, k, 64 if kind == "masked" else 0, alignment))
        for candidate in every_legal[chosen]:
            out = case.output()
            with forced(device, 512, n, k, candidate):
                run_experts(case, out.tensor, 64, psum=kind == "m_psum")
            try:
                out.check(complete=False)
                case.check(out.tensor)
            except AssertionError as error:
                wrong.append(f"{candidate}: {error}")
    assert every_legal[chosen]
    assert not wrong, f"{len(wrong)} of {len(every_legal[chosen])} configs are wrong:\n" + "\n".join(wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("alignment", [64, 128])
@pytest.mark.parametrize(("n", "k"), [(768, 512), (520, 400)])
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_gpu(cuda, kind, n, k, alignment) -> None:
    check_configs(cuda, kind, n, k, alignment, slice(None))


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", FEW[:1], indirect=True)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_simulator(device, kind, part) -> None:
    """A quarter of them: each must be compiled."""
    check_configs(device, kind, 768, 272, 128, slice(4 * part, None, 4 * PARTS))


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    groups=st.one_of(st.integers(1, 64), st.integers(1, 2000)),
    m=st.one_of(st.integers(1, 512), st.integers(1, 1 << 18)),
    expected_m=st.integers(0, 20000),
    n=st.one_of(st.integers(1, 1 << 14), st.integers(1, 1 << 11).map(lambda chunks: chunks * 8)),
    k=st.integers(1, 1 << 10).map(lambda blocks: blocks * 16),
    alignment=st.sampled_from([8, 64, 96, 128, 256]),
    num_sms=st.sampled_from([1, 4, 78, HOPPER_SMS]),
)
def test_every_legal_problem_has_a_config(kind, groups, m, expected_m, n, k, alignment, num_sms) -> None:
    expected_m = 0 if kind == "m_contiguous" else max(1, min(expected_m, m))
    found = grouped_candidates(kind, groups, m, n, k, expected_m, alignment, num_sms)
    fitting = [candidate for candidate in found if candidate.rejection is None]
    assert fitting
    for candidate in fitting:
        height = candidate.cols if candidate.swapped else candidate.rows
        cluster_height = candidate.cluster_shape[1 if candidate.swapped else 0]
        ends_with_expert = kind == "m_contiguous" and not candidate.swapped
        assert kind == "masked" or alignment % height == 0 or (ends_with_expert and alignment % 64 == 0)
        assert cluster_height == 1
        assert candidate.cluster_shape[2] == 1
        assert candidate.ctas <= num_sms


@pytest.mark.parametrize(("n", "k"), [(6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048)])
class TestChoices:
    def test_few_tokens_lie_on_narrow_tiles(self, n, k) -> None:
        for expected_m in (1, 8, 20):
            best = grouped_candidates("masked", 32, 256, n, k, expected_m)[0]
            assert best.swapped
            assert best.cols <= 2 * max(expected_m, 8)

    def test_many_tokens_lie_on_high_tiles(self, n, k) -> None:
        best = grouped_candidates("masked", 6, 4096, n, k, 1024)[0]
        assert not best.swapped
        assert best.rows >= 128
        best = grouped_candidates("m_contiguous", 8, 32768, n, k)[0]
        assert not best.swapped
        assert best.rows >= 128

    def test_kernels_of_a_weight_shape_are_few(self, n, k) -> None:
        """Over every M of a serving process."""
        kernels = {
            (best.swapped, best.rows, best.cols, best.cluster_shape)
            for m in range(128, 40000, 128)
            for best in grouped_candidates("m_contiguous", 32, m, n, k)[:1]
        }
        assert len(kernels) <= 8, kernels
