"""sm_120a, sm_121a and the family target sm_120f: both compilers make their kernels, without a spill, of one source."""

from __future__ import annotations

import pytest
import sass
from compiled import compile_all
from compilers import COMPILERS
from drawn_problems import drawn_problems
from field_calls import kernel_of

from deep_gemm._targets import GPUS

TARGETS = ("sm_120a", "sm_120f", "sm_121a")
DRAWN = 2
SIZES = {"m": 300, "n": 4096, "k": 7168}
BLOCKS = {"exponent_scales": 1, "gran_k_a": 32, "gran_k_b": 32}
KINDS = [
    BLOCKS,
    BLOCKS | {"e2m1r": 1},
    {"fp4": 1, "gran_k_a": 32, "gran_k_b": 32},
    {"fp4": 1, "gran_k_a": 16, "gran_k_b": 16},
    {},
    {"bf16": 1},
    {"s8": 1},
]


def text_of(grouping: str, fields: dict, target: str) -> str:
    return str(kernel_of(grouping, {"num_sms": GPUS[target].sms, **fields}, target)["text"])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", TARGETS)
def test_drawn_kernels_do_not_spill(target: str, compiler: dict[str, int]) -> None:
    """And one of each kind of instruction, drawn by the target."""
    seed = TARGETS.index(target) + 10 * compiler["DG_JIT_USE_NVRTC"]
    texts = [text_of(*problem, target) for problem in drawn_problems("sm120", DRAWN, seed, GPUS[target].sms)]
    texts += [text_of("dense", SIZES | KINDS[(seed + i) % len(KINDS)], target) for i in range(DRAWN)]
    for kernel in compile_all(texts, target, **compiler):
        assert kernel.is_clean, kernel
        assert kernel.registers > 0


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_targets_have_one_source(fields: dict) -> None:
    problem = {**SIZES, **fields, "num_sms": GPUS["sm_120a"].sms}
    assert text_of("dense", problem, "sm_120f") == text_of("dense", problem, "sm_120a")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fields", KINDS[:4], ids=str)
def test_an_image_for_the_family_is_that_for_rtx_50(fields: dict) -> None:
    problem = {**SIZES, **fields, "num_sms": GPUS["sm_120a"].sms}
    codes = [sass.code(sass.cubin_of("dense", problem, target)) for target in ("sm_120a", "sm_120f")]
    assert codes[0] == codes[1]
