"""The targets of the compiler that there are kernels for, and the GPU that stands for one where none is there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """Which GPUs load what is compiled for a target, and how many SMs the first of them has."""

    names: str
    sms: int


GPUS = {
    "sm_90a": Gpu("H100, H200", 132),  # in their SXM form
    "sm_100a": Gpu("B200", 148),
    "sm_100f": Gpu("B200, B300", 148),
    "sm_103a": Gpu("B300", 160),
}
HOPPER_TARGET, BLACKWELL_TARGET = "sm_90a", "sm_100f"
HOPPER_SMS = GPUS[HOPPER_TARGET].sms
