"""Time of a call on its device: the sum of its kernels as the profiler sees them, with a cold L2 before each call."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch


@dataclass
class Timing:
    seconds: list[float]
    method: str
    kernels: list[str] = field(default_factory=list)  # names, as launched by one call

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Timer:
    """Times calls in turn. Holds the buffer whose writing empties the L2 (and lets the chip rest) before each call."""

    def __init__(self, device: torch.device, flush_bytes: int, calls: int, method: str = "auto") -> None:
        self.device = device
        self.calls = calls
        if method == "auto":
            method = "profiler" if device.type == "cuda" else "host"
        self.method = method
        self._flush_bytes = flush_bytes
        self._buffer = None
        if device.type == "cuda":
            self._buffer = torch.empty(flush_bytes, dtype=torch.uint8, device=device)

    def flush(self) -> None:
        if self._buffer is not None:
            self._buffer.zero_()

    def time(self, *calls: Callable[[], None]) -> list[Timing]:
        """Time each of the calls; they take turns, so that drifts of the machine meet all of them."""
        if self.method == "profiler":
            for _ in range(2):  # the first recording of a process may be incomplete
                found = self._profile(calls)
                if found is not None:
                    return found
            self.method = "events"  # no CUPTI here: say so in every result from now on
            print(
                "the profiler's record cannot be split into calls: timing with events, which add launch latency",
                file=sys.stderr,
            )
        return self._events(calls) if self.method == "events" else self._host(calls)

    def _profile(self, calls: Sequence[Callable[[], None]]) -> list[Timing] | None:
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(self.calls):
                for call in calls:
                    self.flush()
                    call()
            torch.cuda.synchronize()
        intervals = _split_at_flushes(_device_events(profiler), self._flush_bytes)
        if intervals is None or len(intervals) != self.calls * len(calls):
            return None
        timings = []
        for index in range(len(calls)):
            own = intervals[index :: len(calls)]
            seconds = [sum(duration for _, duration in interval) for interval in own]
            if min(seconds) <= 0:
                return None
            timings.append(Timing(seconds, "profiler", [name for name, _ in own[-1]]))
        return timings

    def _events(self, calls: Sequence[Callable[[], None]]) -> list[Timing]:
        """Includes the latency of a launch: a few microseconds more than the kernels take."""
        marks: list[list] = [[] for _ in calls]
        for _ in range(self.calls):
            for index, call in enumerate(calls):
                self.flush()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                call()
                end.record()
                marks[index].append((begin, end))
        torch.cuda.synchronize()
        return [Timing([begin.elapsed_time(end) * 1e-3 for begin, end in own], "events") for own in marks]

    def _host(self, calls: Sequence[Callable[[], None]]) -> list[Timing]:
        """The simulator's wall-clock time: says nothing about a GPU."""
        seconds: list[list[float]] = [[] for _ in calls]
        for _ in range(self.calls):
            for index, call in enumerate(calls):
                begin = time.perf_counter()
                call()
                seconds[index].append(time.perf_counter() - begin)
        return [Timing(own, "host clock, simulator") for own in seconds]


def sustained_seconds(calls: Sequence[Callable[[], None]], at_least: float) -> float:
    """Seconds of a call when all of them follow each other in a replayed graph for `at_least` seconds.

    Power and heat count here, as they do in a long run. The calls should use different inputs, more than the L2 holds.
    """
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay(times: int) -> float:
        begin.record()
        for _ in range(times):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / times

    times = max(1, round(at_least / replay(3)))
    return replay(times) / len(calls)


def _device_events(profiler: torch.profiler.profile) -> list[tuple[int, str, float]]:
    """(start in microseconds, name, seconds) of what ran on the GPU, in order."""
    events = [
        (event.time_range.start, event.name, event.device_time * 1e-6)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return sorted(events)


def _split_at_flushes(events: list[tuple[int, str, float]], flush_bytes: int) -> list[list[tuple[str, float]]] | None:
    """What ran after each flush. A flush is a memset, or a fill kernel, of at least half of the longest such."""

    def is_fill(name: str) -> bool:
        return "memset" in name.lower() or "fill" in name.lower()

    longest = max((seconds for _, name, seconds in events if is_fill(name)), default=0.0)
    if longest < flush_bytes / 20e12:  # nothing writes 20 TB/s: these are no flushes
        return None
    intervals: list[list[tuple[str, float]]] = []
    for _, name, seconds in events:
        if is_fill(name) and seconds >= longest / 2:
            intervals.append([])
        elif intervals and not name.startswith(("Context", "Activity", "Stream", "Event")):
            intervals[-1].append((name, seconds))
    return [interval for interval in intervals if interval]  # one flush may be several fills
