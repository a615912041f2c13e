"""Time of calls on the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch


def gpu_seconds(call: Callable[[], None], device: torch.device, calls: int = 20) -> float:
    """Median GPU time of a call with a cold L2, launch gap left out: replays of one graph with and without the call."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device=device)

    def replay_seconds(body: Callable[[], None]) -> float:
        body()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        seconds = []
        for _ in range(calls):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            seconds.append(begin.elapsed_time(end) * 1e-3)
        return float(statistics.median(seconds))

    def flush_l2() -> None:
        flush.zero_()

    def flush_and_call() -> None:
        flush_l2()
        call()

    return max(replay_seconds(flush_and_call) - replay_seconds(flush_l2), 1e-9)
