"""Targets of the compiler: which problem's kernels they get, and what is refused."""

from __future__ import annotations

import pytest
import torch
from devices import arch_of
from field_calls import kernel_of

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._targets import BLACKWELL_TARGETS, GPUS, HOPPER_SMS

SIZES = {"m": 64, "n": 256, "k": 512, "num_sms": HOPPER_SMS}


@pytest.mark.parametrize("target", ["sm_80", "sm_110", "sm_120", "sm_100f"])
def test_scales_are_packed_for_b200_and_b300_alone(target) -> None:
    """Not for other GPUs that are called Blackwell: their tensor cores do not multiply them."""
    with simulator.options(target=target):
        scales = deep_gemm.transform_sf_into_required_layout(torch.ones(64, 2), 64, 256, (1, 128, 128), is_sfa=True)
        assert scales.dtype == (torch.int32 if target == "sm_100f" else torch.float32)
        assert C.device_facts(True, 0)["arch"] == ("sm100" if target == "sm_100f" else "sm80")


@pytest.mark.parametrize("target", ["sm_90", "sm_101a", ""])
def test_a_target_without_kernels_is_refused_with_those_that_have_some(target) -> None:
    wanted = f"^target must be one of {', '.join(GPUS)}, got {target!r}$"
    with pytest.raises(ValueError, match=wanted), deep_gemm.jit.record(target):
        pass


def test_one_family_one_kernel() -> None:
    """So that an image for sm_100f is what B200 and B300 need."""
    texts = {kernel_of("dense", SIZES, target)["text"] for target in BLACKWELL_TARGETS}
    assert len(texts) == 1


@pytest.mark.parametrize("target", GPUS)
def test_each_target_has_kernels_that_fit_its_gpus(target) -> None:
    """Of shared memory, what a block may have; the architecture's name is in the kernel's."""
    kilobytes = {"sm_80": 163, "sm_87": 163, "sm_110": 227} | dict.fromkeys(["sm_90a", *BLACKWELL_TARGETS], 227)
    for sizes in (SIZES, {**SIZES, "m": 8192, "n": 7168}, {**SIZES, "m": 1}):
        for element in ({}, {"bf16": 1}, {"fp16": 1}):
            kernel = kernel_of("dense", {**sizes, **element}, target)
            assert kernel["smem_bytes"] <= kilobytes.get(target, 99) * 1024
            assert arch_of(target) in kernel["name"]


def test_integers_are_not_multiplied_on_b300() -> None:
    assert "int8_gemm_sm100" in kernel_of("dense", {**SIZES, "s8": 1}, "sm_100a")["name"]
    with pytest.raises(TypeError, match=r"^integers are multiplied by B200's .* not by B300's, but this is sm_103a$"):
        kernel_of("dense", {**SIZES, "s8": 1}, "sm_103a")


def test_integers_on_a_b200_are_compiled_for_it_alone() -> None:
    """Whose other kernels are those of the family; a B300 refuses them in a sentence."""
    a, d = torch.ones(8, 64, dtype=torch.int8), torch.zeros(8, 8, dtype=torch.int32)
    with simulator.options(target="sm_100f", hazards="error"):
        deep_gemm.int8_gemm_nt(a, a, d)
        assert (d == 64).all()
    with (
        simulator.options(target="sm_103a"),
        pytest.raises(TypeError, match=r"^integers are .* in code for sm_100a, not by B300's, but this is sm_103a$"),
    ):
        deep_gemm.int8_gemm_nt(a, a, d)
