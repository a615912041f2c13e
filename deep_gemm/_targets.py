"""The targets of the compiler that there are kernels for, and the GPU that stands for one where none is there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """Which GPUs load what is compiled for a target, and how many SMs the first of them has."""

    names: str
    sms: int


GPUS = {
    "sm_80": Gpu("A100, A30", 108),
    "sm_86": Gpu("RTX 3090, A10, A40", 82),
    "sm_87": Gpu("Jetson Orin", 16),
    "sm_88": Gpu("GPUs of 8.8, of which no list names one", 16),
    "sm_89": Gpu("RTX 4090, L4, L40S", 128),
    "sm_110": Gpu("Jetson T5000 (Thor)", 20),
    "sm_120a": Gpu("RTX 5090, RTX PRO 6000", 170),
    "sm_121a": Gpu("GB10 (DGX Spark)", 48),
    "sm_120f": Gpu("RTX 5090, RTX PRO 6000, GB10 (DGX Spark)", 170),
    "sm_120": Gpu("RTX 5090, RTX PRO 6000, and newer GPUs without a target", 170),
    "sm_121": Gpu("GB10 (DGX Spark), and newer GPUs without a target", 48),
    "sm_90a": Gpu("H100, H200", 132),  # in their SXM form
    "sm_100a": Gpu("B200", 148),
    "sm_100f": Gpu("B200, B300", 148),
    "sm_103a": Gpu("B300", 160),
}
AMPERE_TARGET, HOPPER_TARGET, BLACKWELL_TARGET = "sm_80", "sm_90a", "sm_100f"
BLACKWELL_TARGETS = ("sm_100a", "sm_100f", "sm_103a")  # whose tensor cores multiply scales
HOPPER_SMS = GPUS[HOPPER_TARGET].sms
