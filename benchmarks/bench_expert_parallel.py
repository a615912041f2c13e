"""A mixture-of-experts layer whose experts are spread over GPUs (`nn.GroupedExperts` with a group): time of its parts.

    torchrun --nproc-per-node 2 benchmarks/bench_expert_parallel.py --out results

Each process has tokens of its own. A part's time is that between its first and its last kernel, on process 0, median of
20 calls; the host waits once a call, for how many rows go where.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from machine import describe, write_result

from deep_gemm import nn, routing

HIDDEN, INNER, EXPERTS, CHOICES = 7168, 2048, 16, 8  # experts: of a process
TOKENS = (1, 16, 64, 512, 4096)  # of a process
CALLS = 20


class Parts:
    """Events around calls of functions that the layer makes, but not around what they call themselves."""

    def __init__(self) -> None:
        self.depth = 0
        self.marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return function(*args, **kwargs)
            self.depth += 1
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            try:
                return function(*args, **kwargs)
            finally:
                end.record()
                self.depth -= 1
                self.marks.append((name, start, end))

        return call

    def microseconds(self) -> dict[str, float]:
        torch.cuda.synchronize()
        names: dict[str, float] = {}
        for name, start, end in self.marks:
            names[name] = names.get(name, 0.0) + start.elapsed_time(end) * 1e3
        self.marks.clear()
        return names


@contextmanager
def split(layer: nn.GroupedExperts, parts: Parts) -> Iterator[None]:
    where = [(routing, "route"), (routing, "gather"), (routing, "combine"), (layer, "tokens"), (layer, "served")]
    names = {"tokens": "quantise", "served": "products of own experts"}
    with ExitStack() as stack:
        for owner, name in where:
            timed = parts.timed(names.get(name, name), getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, timed))
        exchange = parts.timed("exchanges", dist.all_to_all_single)
        stack.enter_context(mock.patch.object(dist, "all_to_all_single", exchange))
        yield


def measure(layer: nn.GroupedExperts, tokens: int, seed: int) -> dict[str, Any]:
    """Of one layer: the whole call, and its parts."""
    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(seed)
    x = torch.randn(tokens, HIDDEN, device=device, dtype=torch.bfloat16)
    weights, ids = torch.rand(tokens, layer.num_experts, device=device).topk(CHOICES)
    whole: list[float] = []
    found: list[dict[str, float]] = []
    parts = Parts()
    with torch.no_grad():
        for i in range(CALLS + 3):
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            layer(x, ids, weights)
            torch.cuda.synchronize()
            if i >= 3:
                whole.append((time.perf_counter() - start) * 1e6)
        with split(layer, parts):
            for i in range(CALLS + 3):
                dist.barrier()
                layer(x, ids, weights)
                if i >= 3:
                    found.append(parts.microseconds())
                else:
                    parts.microseconds()
    medians = {name: round(statistics.median(each[name] for each in found), 1) for name in found[0]}
    return {"tokens": tokens, "call": round(statistics.median(whole), 1), **medians}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory of the result file")
    parser.add_argument("--commit", help="of the library, where this is no clone")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() or "LOCAL_RANK" not in os.environ:
        print("nothing was measured: start it by torchrun, on a machine with GPUs")
        return 1
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank, processes = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layer = nn.GroupedExperts(
        processes * EXPERTS, HIDDEN, INNER, dtype=torch.bfloat16, device="cuda", group=dist.group.WORLD
    )
    rows = [measure(layer, tokens, rank) for tokens in TOKENS]
    if rank == 0:
        for row in rows:
            print(row, flush=True)
        if arguments.out:
            machine = describe(arguments.commit)
            layer_name = f"{EXPERTS} FP8 experts each, {HIDDEN} x {INNER}, top-{CHOICES}"
            what = f"bench_expert_parallel: {processes} processes, {layer_name}"
            write_result(arguments.out / "expert_parallel.json", {"what": what, "machine": machine, "rows": rows})
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
