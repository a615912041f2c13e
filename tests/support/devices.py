"""What the `device` fixture runs over, and why a GPU may not be usable."""

from __future__ import annotations

import pytest
import torch

# Schedules of the simulator: the order in which asynchronous work (copies, matrix products) takes effect.
SCHEDULES = {"lazy": ("lazy", 0), "eager": ("eager", 0), "random1": ("random", 1), "random2": ("random", 2)}
# What the simulator is, by the beginning of a device's name, and the architecture of the pair table.
TARGETS = {"cpu": "sm_90a", "sm100": "sm_100a"}
ARCHS = {"sm90": "cpu", "sm100": "sm100"}
MAJORS = {"sm90": 9, "sm100": 10}


def why_no_gpu() -> str | None:
    """Why GPU tests cannot run here, or None."""
    if not torch.cuda.is_available():
        return "no GPU: torch.cuda.is_available() is False"
    major, minor = torch.cuda.get_device_capability()
    if major not in MAJORS.values():
        return f"the GPU is of compute capability {major}.{minor}; the kernels need 9.0 or 10.x"
    return None


def on_simulator(*schedules: str, kind: str = "cpu") -> list:
    return [pytest.param(f"{kind}-{schedule}", id=f"{kind}-{schedule}") for schedule in schedules]


CUDA = pytest.param("cuda", marks=pytest.mark.gpu, id="cuda")
EVERY_DEVICE = [*on_simulator(*SCHEDULES), CUDA]
# For what no schedule can change, or what takes long.
FEW = [*on_simulator("eager"), CUDA]


def devices_of(arch: str, *schedules: str) -> list:
    """The simulator as an architecture of the pair table, and the GPU unless it is of another one."""
    found = on_simulator(*schedules, kind=ARCHS[arch])
    other = why_no_gpu() is None and torch.cuda.get_device_capability()[0] != MAJORS[arch]
    return found if other else [*found, CUDA]
