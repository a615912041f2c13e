"""Time of a call in a chain of calls, as a model's step has them: each kernel started when the one before has ended
("plain"), or early (`set_pdl`, the default).

    python benchmarks/bench_chain.py --out results

Calls of one shape, or of a layer's shapes in turn, follow each other on one stream and rotate over inputs that together
exceed the L2 several times. Three chains: replayed as a CUDA graph, the same with a small kernel of torch's between two
calls (its time included), and launched one by one. Settings take turns, so that drifts of the machine meet both.
cuBLASLt's block-scaled FP8 product, where torch has it, runs in the same graph chain.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from bench_gemm import CHAIN_BYTES
from machine import describe, write_result
from problems import build
from tables import chain_text
from timing import sustained_seconds

import deep_gemm

WEIGHTS = ((576, 7168), (2112, 7168), (4096, 7168), (7168, 2048), (24576, 1536), (32768, 512))
LAYER = ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048))
CHAINS = [  # cases that follow each other
    *([("dense", m, n, k)] for m in (1, 64, 128) for n, k in WEIGHTS),
    *([("dense", m, n, k) for n, k in LAYER] for m in (1, 16, 128)),
    [("masked", 6, 20, 4096, 2048)],
    [("masked", 32, 20, 4096, 2048)],
    [("dense", 512, 7168, 2048)],
    [("dense", 4096, 7168, 2048)],
]
STARTS = ("plain", "early")
ROUNDS = 3
LAUNCHES = 200  # one by one: below the depth of the launch queue
BUSY_CYCLES = 4_000_000  # of the GPU before those, so that the host is never behind


def launched_seconds(calls: Sequence[Callable[[], None]]) -> float:
    """Seconds of a call when the GPU finds all of them waiting in its stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY_CYCLES)
    begin.record()
    for i in range(LAUNCHES):
        calls[i % len(calls)]()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / LAUNCHES


def run_chain(cases: Sequence[Sequence], device: torch.device, seconds: float) -> dict:
    first = [build(case, device, index) for index, case in enumerate(cases)]
    rounds = max(2, min(32, round(CHAIN_BYTES / sum(p.bytes for p in first))))
    others = [build(case, device, 7 * i + index) for i in range(1, rounds) for index, case in enumerate(cases)]
    problems = [*first, *others]
    calls = [p.call for p in problems]
    number = torch.zeros(4096, device=device)
    with_small = [step for call in calls for step in (call, lambda: number.add_(1))]
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for start in STARTS:
            deep_gemm.set_pdl(start != "plain")
            for name, value in (
                ("graph", sustained_seconds(calls, seconds)),
                ("small", 2 * sustained_seconds(with_small, seconds)),
                ("launched", launched_seconds(calls)),
            ):
                found.setdefault(f"{name}_{start}_us", []).append(value * 1e6)
    result = {"cases": [list(case) for case in cases], "calls": len(calls)}
    result |= {name: statistics.median(values) for name, values in found.items()}
    result["diff"] = 0.0
    for p in problems:  # as the last chain left them
        result["diff"] = max(result["diff"], p.check())
    if all(p.cublas is not None for p in problems):
        try:
            result["cublas_graph_us"] = sustained_seconds([p.cublas for p in problems], seconds) * 1e6
        except Exception as error:
            result["cublas_status"] = str(error).splitlines()[0][:200]
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for chain.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--seconds", type=float, default=60, help="start no case after so many")
    parser.add_argument("--replay", type=float, default=0.05, help="seconds that a graph is replayed")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench_chain.py needs a GPU")
    machine = describe(arguments.commit)
    print(f"{machine['gpu']}, commit {machine['commit']}; us a call: {', '.join(STARTS)}")
    rows = []
    begin = time.perf_counter()
    for cases in CHAINS:
        name = chain_text(cases)
        if time.perf_counter() - begin > arguments.seconds:
            rows.append({"cases": [list(case) for case in cases], "status": "skipped: out of time"})
            print(f"{name:24s} {rows[-1]['status']}", flush=True)
            continue
        row = run_chain(cases, torch.device("cuda"), arguments.replay)
        row["status"] = "ok" if row["diff"] < 1e-3 else f"WRONG: {row['diff']:.2g}"
        rows.append(row)
        chains = [
            " ".join([chain, *(f"{row[f'{chain}_{start}_us']:6.2f}" for start in STARTS)])
            for chain in ("graph", "small", "launched")
        ]
        cublas = f", cuBLASLt {row['cublas_graph_us']:6.2f}" if "cublas_graph_us" in row else ""
        print(f"{name:24s} {', '.join(chains)}{cublas}  {row['status']}", flush=True)
    if arguments.out:
        write_result(arguments.out / "chain.json", {"what": "bench_chain", "machine": machine, "rows": rows})
    return 1 if any(row["status"].startswith("WRONG") for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
