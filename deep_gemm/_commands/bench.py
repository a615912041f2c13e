"""`python -m deep_gemm bench`."""

from __future__ import annotations

import argparse

import torch

from .demo import run_and_check, tell_speed
from .doctor import usable_gpu
from .output import Output
from .timing import gpu_seconds


def bench(arguments: argparse.Namespace, output: Output) -> int:
    """Time of one shape on the GPU."""
    gpu, why_not = usable_gpu()
    if not gpu:
        output.line(f"nothing was measured: GPU: {why_not}")
        return 1
    shape = (arguments.m, arguments.n, arguments.k)
    device = torch.device("cuda", torch.cuda.current_device())
    call, right = run_and_check(shape, device, output, output.facts)
    tell_speed(shape, gpu_seconds(call, device), output, output.facts)
    return 0 if right else 1
