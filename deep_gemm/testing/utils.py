"""Helpers of tests: which architecture this is, which tests fit it, and a clean environment."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from deep_gemm._extension import C


def get_arch_major(device: int | torch.device | None = None) -> int:
    """The major compute capability of a CUDA device (default: the current one): 9 on Hopper, 10 on B200; of the
    older one where `set_target` chose that. For the CPU's device: of the GPU that the simulator stands for."""
    if isinstance(device, torch.device) and device.type == "cpu":
        return int(C.device_facts(True, 0)["arch_major"])
    if not torch.cuda.is_available():
        raise RuntimeError("get_arch_major: torch sees no CUDA device on this machine")
    index = device.index if isinstance(device, torch.device) else device
    return int(C.device_facts(False, torch.cuda.current_device() if index is None else index)["arch_major"])


def test_filter(condition: Callable[[], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: call the function only where `condition()` holds when it is called; else say so and return None."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if condition():
                return function(*args, **kwargs)
            print(f"{function.__name__}: skipped (its condition does not hold here)")
            return None

        return wrapper

    return decorate


# pytest would take the decorator itself for a test wherever it is imported.
test_filter.__test__ = False  # type: ignore[attr-defined]


def ignore_env(name: str, condition: Callable[[], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: hide the environment variable `name` from the function where `condition()` holds."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            saved = os.environ.pop(name, None) if condition() else None
            try:
                return function(*args, **kwargs)
            finally:
                if saved is not None:
                    os.environ[name] = saved

        return wrapper

    return decorate
