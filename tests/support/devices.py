"""What the `device` fixture runs over, and why a GPU may not be usable.

A device of the simulator is an architecture, or a target of the compiler, and a schedule: the order in which
asynchronous work (copies, matrix products) takes effect. "any" is one of the schedules by the name of the test and its
parameters: the sets of a parametrised test have all of them.
"""

from __future__ import annotations

import random

import cache_folder  # noqa: F401  # before the runtime reads its settings
import pytest
import torch

from deep_gemm._extension import C
from deep_gemm._targets import BLACKWELL_TARGETS

SCHEDULES = ("lazy", "eager", "random")
# Of each architecture of the pair table, what the simulator is.
TARGETS = {"sm80": "sm_80", "sm90": "sm_90a", "sm100": "sm_100a", "sm100fp32": "sm_100a", "sm120": "sm_120a"}
# Those of them that multiply FP32 scales as they are where others take powers of two.
WITH_FP32_SCALES = ("sm100fp32",)


def arch_of(target: str) -> str:
    """Whose kernels are compiled for a target."""
    own = (
        {"sm_90a": "sm90"}
        | dict.fromkeys(("sm_120a", "sm_121a", "sm_120f"), "sm120")
        | dict.fromkeys(BLACKWELL_TARGETS, "sm100")
    )
    return own.get(target, "sm80")


def arch_of_gpu() -> str:
    """Whose kernels run on the GPU: with DG_TARGET, those of an older one. Throws where there are none."""
    return str(C.device_facts(False, torch.cuda.current_device())["arch"])


def why_no_gpu() -> str | None:
    """Why GPU tests cannot run here, or None."""
    if not torch.cuda.is_available():
        return "no GPU: torch.cuda.is_available() is False"
    try:
        arch_of_gpu()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


def on_simulator(*schedules: str, arch: str = "sm90") -> list:
    return [pytest.param(f"{arch}-{schedule}", id=f"{arch}-{schedule}") for schedule in schedules]


def simulator_options(device: str, test: str) -> dict[str, str | int]:
    """Of a device, for a test of this name."""
    name, schedule = device.split("-")
    generator = random.Random(test)
    if schedule == "any":
        schedule = generator.choice(SCHEDULES)
    return {
        "target": TARGETS.get(name, name),
        "schedule": schedule,
        "seed": generator.randrange(1 << 31),
        "hazards": "error",
    }


# Without a GPU none of it is collected.
ON_GPU = [] if why_no_gpu() else [pytest.param("cuda", marks=pytest.mark.gpu, id="cuda")]
EVERY_DEVICE = [*on_simulator(*SCHEDULES), *ON_GPU]
_SM90, _SM80, _SM89, _SM100, _SM100_FP32, _SM120 = (
    on_simulator("any", arch=arch) for arch in ("sm90", "sm80", "sm_89", "sm100", "sm100fp32", "sm120")
)
# For what takes long, or has many parameters.
FEW = [*_SM90, *ON_GPU]
# The same where no exponents take the place of FP32 scales, and where there are integers.
BUT_SM100 = [*_SM90, *_SM80, *ON_GPU]
# Those that pack the public pair of FP4 in each call. (sm_89 has sm80's kernels, and multiplies E4M3.)
PACK_PAIRS = [*_SM90, *_SM80, *_SM89, *ON_GPU]
# Whose tensor cores multiply FP4 by FP4.
MULTIPLY_FP4 = [*_SM100, *_SM120]
# Those that convert packed weights.
TAKE_PACKED = [*_SM90, *_SM80, *_SM89, *_SM100, *_SM120, *ON_GPU]
# For behaviours that each architecture has, SM100 in both ways of multiplying scales.
ON_EACH_ARCH = [*_SM90, *_SM80, *_SM100, *_SM100_FP32, *_SM120]
EACH_ARCH = [*ON_EACH_ARCH, *ON_GPU]
# The same for products that SM100 has one way of: BF16's and integers'.
ON_ONE_OF_EACH_ARCH = [*_SM90, *_SM80, *_SM100, *_SM120]
ONE_OF_EACH_ARCH = [*ON_ONE_OF_EACH_ARCH, *ON_GPU]


def devices_of(arch: str, *schedules: str) -> list:
    """The simulator as an architecture of the pair table, and the GPU unless it is of another one."""
    found = on_simulator(*schedules, arch=arch)
    return [*found, *(param for param in ON_GPU if arch_of_gpu() == arch)]
