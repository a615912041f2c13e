"""Timing: `bench` by events around calls, `bench_kineto` by the profiler's record of each kernel."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

# Written between calls to empty the L2: several times the largest L2 there is, and the chip rests meanwhile.
_FLUSH_BYTES = 4_000_000_000


def _flush_l2() -> None:
    free, _ = torch.cuda.mem_get_info()
    torch.empty(min(_FLUSH_BYTES, free // 2), dtype=torch.uint8, device="cuda").zero_()


def bench(fn: Callable[[], Any], num_warmups: int = 5, num_tests: int = 10, high_precision: bool = False) -> float:
    """Mean seconds of `num_tests` calls of `fn`: of GPU time where there is a CUDA device, else of wall-clock time.

    They come after `num_warmups` others, follow each other without a pause and find the L2 warm. `high_precision` puts
    a long kernel before them, so that the GPU never waits for the host.
    """
    for _ in range(num_warmups):
        fn()
    if not torch.cuda.is_available():
        started = time.perf_counter()
        for _ in range(num_tests):
            fn()
        return (time.perf_counter() - started) / num_tests
    torch.cuda.synchronize()
    torch.empty(256 << 20, dtype=torch.int8, device="cuda").zero_()
    if high_precision:
        x = torch.randn((8192, 8192), dtype=torch.float32, device="cuda")
        torch.mm(x, x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(num_tests):
        fn()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / num_tests / 1e3


@contextlib.contextmanager
def suppress_stdout_stderr() -> Iterator[None]:
    """Send what the process prints to nowhere, native libraries' output to the descriptors included."""
    with contextlib.ExitStack() as undone:
        nowhere = undone.enter_context(open(os.devnull, "w"))
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            saved = os.dup(descriptor)
            undone.callback(os.close, saved)
            undone.callback(os.dup2, saved, descriptor)
            os.dup2(nowhere.fileno(), descriptor)
            # What was written meanwhile must not come out afterwards.
            undone.callback(stream.flush)
        undone.enter_context(contextlib.redirect_stdout(nowhere))
        undone.enter_context(contextlib.redirect_stderr(nowhere))
        yield


def kernel_seconds(events: Sequence[Any], name: str, with_multiple_kernels: bool = False) -> float:
    """Mean seconds of a launch of the kernels whose name contains `name`, of the profiler's averages; 0: none."""
    found = [event for event in events if event.device_type.name != "CPU" and name in event.key]
    if len(found) > 1 and not with_multiple_kernels:
        names = ", ".join(sorted(event.key for event in found))
        raise ValueError(f"{name!r} names {len(found)} kernels ({names}): be exact, or say with_multiple_kernels=True")
    launches = sum(event.count for event in found)
    microseconds = sum(event.self_device_time_total for event in found)
    return microseconds / launches / 1e6 if launches else 0.0


def bench_kineto(
    fn: Callable[[], Any],
    kernel_names: str | Sequence[str],
    num_tests: int = 30,
    suppress_kineto_output: bool = False,
    trace_path: str | None = None,
    flush_l2: bool = True,
    with_multiple_kernels: bool = False,
    barrier: Callable[[], Any] | None = None,
) -> float | tuple[float, ...]:
    """Mean GPU seconds of the kernels that `fn` launches, per launch, one number for each of `kernel_names`.

    `fn` is called `num_tests` times. A name is any part of a kernel's name; one that several kernels match is an error
    unless `with_multiple_kernels`, which averages over all of them. A name that matches nothing adds nothing, 0, beside
    others that match. Where none does, there is no time: infinity, which is never the fastest and makes a speed of 0,
    and nothing stops. `flush_l2` empties the L2 before each call, `barrier` is called before each (to line up several
    processes), `suppress_kineto_output` sends what is printed to nowhere, `trace_path` receives a Chrome trace. Where
    DG_USE_NVIDIA_TOOLS is set (a profiler or sanitizer is attached, and kineto would get in its way) `fn` runs once and
    every time is 1.
    """
    names = (kernel_names,) if isinstance(kernel_names, str) else tuple(kernel_names)
    if not torch.cuda.is_available():
        raise RuntimeError("bench_kineto times GPU kernels, and torch sees no CUDA device on this machine")
    if os.environ.get("DG_USE_NVIDIA_TOOLS", "0").lower() not in ("", "0", "false", "no", "off"):
        fn()
        torch.cuda.synchronize()
        times: tuple[float, ...] = (1.0,) * len(names)
        return times[0] if isinstance(kernel_names, str) else times

    def run() -> None:
        for _ in range(num_tests):
            if flush_l2:
                _flush_l2()
            if barrier is not None:
                barrier()
            fn()
        torch.cuda.synchronize()

    with suppress_stdout_stderr() if suppress_kineto_output else contextlib.nullcontext():
        fn()  # compiles what is not compiled yet
        # The profiler's first recording is slow and incomplete: one round warms it up, the next one counts.
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], schedule=schedule) as profiler:
            for _ in range(2):
                run()
                profiler.step()
        events = profiler.key_averages()
        if trace_path is not None:
            profiler.export_chrome_trace(trace_path)
    times = tuple(kernel_seconds(events, name, with_multiple_kernels) for name in names)
    if not any(times):
        times = (math.inf,) * len(names)
    return times[0] if isinstance(kernel_names, str) else times
