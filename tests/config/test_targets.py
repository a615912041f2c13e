"""Targets of the compiler: which problem's kernels they get, and what is refused."""

from __future__ import annotations

import pytest

from deep_gemm._extension import C
from deep_gemm._targets import GPUS, HOPPER_SMS, HOPPER_TARGET

SIZES = {"m": 64, "n": 256, "k": 512, "num_sms": HOPPER_SMS}


def test_problems_are_hoppers_unless_they_name_a_target() -> None:
    assert C.explain("dense", SIZES) == C.explain("dense", SIZES, HOPPER_TARGET)
    assert C.problem_kernel("dense", SIZES)["text"] == C.problem_kernel("dense", SIZES, HOPPER_TARGET)["text"]


@pytest.mark.parametrize("target", ["sm_90", "sm_101a", "sm_110a", "sm_120a", "hopper", ""])
def test_a_target_without_kernels_is_refused_with_those_that_have_some(target) -> None:
    *most, last = GPUS
    with pytest.raises(ValueError, match=rf"^there are kernels for {', '.join(most)} and {last}, not for {target}$"):
        C.problem_kernel("dense", SIZES, target)


def test_one_family_one_kernel() -> None:
    """So that an image for sm_100f is what B200 and B300 need."""
    texts = {C.problem_kernel("dense", SIZES, target)["text"] for target in GPUS if target != HOPPER_TARGET}
    assert len(texts) == 1


@pytest.mark.parametrize("name", ["gran_k_a", "gran_k_b"])
def test_scales_that_hopper_does_not_multiply_are_refused(name) -> None:
    C.problem_kernel("dense", {**SIZES, name: 128})
    with pytest.raises(ValueError, match=f"no scales of {name[-1]} for every 32 of K"):
        C.problem_kernel("dense", {**SIZES, name: 32})


def test_integers_are_not_multiplied_on_blackwell() -> None:
    with pytest.raises(ValueError, match="there is no product of s8 on sm100"):
        C.problem_kernel("dense", {**SIZES, "s8": 1}, "sm_100a")
