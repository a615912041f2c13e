"""What the `device` fixture runs over, and why a GPU may not be usable."""

from __future__ import annotations

import pytest
import torch

# Schedules of the simulator: the order in which asynchronous work (copies, matrix products) takes effect.
SCHEDULES = {"lazy": ("lazy", 0), "eager": ("eager", 0), "random1": ("random", 1), "random2": ("random", 2)}


def why_no_gpu() -> str | None:
    """Why GPU tests cannot run here, or None."""
    if not torch.cuda.is_available():
        return "no GPU: torch.cuda.is_available() is False"
    major, minor = torch.cuda.get_device_capability()
    if major not in (9, 10):
        return f"the GPU is of compute capability {major}.{minor}; the kernels need 9.0 or 10.x"
    return None


def on_simulator(*schedules: str) -> list:
    return [pytest.param(f"cpu-{schedule}", id=f"cpu-{schedule}") for schedule in schedules]


EVERY_DEVICE = [*on_simulator(*SCHEDULES), pytest.param("cuda", marks=pytest.mark.gpu, id="cuda")]
# For what no schedule can change, or what takes long.
FEW = [*on_simulator("eager"), EVERY_DEVICE[-1]]
