"""Time of a plain kernel that only reads a weight matrix from a cold L2: the practical floor of decode.

python benchmarks/micro/read.py --out results
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

import torch
from harness import HERE, Bench, constants, kernel_file, num_sms
from timing import Timer

from deep_gemm._extension import C


@dataclass(frozen=True)
class Variant:
    n: int
    k: int

    @property
    def bytes(self) -> int:
        return self.n * self.k


# CTAs an SM, threads of one, loads of a thread in one round: the fastest counts.
GRIDS = [(1, 1024, 4), (2, 1024, 4), (2, 1024, 8), (2, 512, 8), (4, 512, 4), (4, 512, 8), (8, 256, 4), (8, 256, 8)]


def weight_shapes() -> list[Variant]:
    """Of the public cases with one token, largest last."""
    rows = json.loads((HERE.parent / "cases.json").read_text())["rows"]
    shapes = {tuple(row["case"][2:]) for row in rows if row["case"][:2] == ["dense", 1]}
    return sorted((Variant(*shape) for shape in shapes), key=lambda v: v.bytes)


def source(unroll: int) -> str:
    return constants(kUnroll=unroll) + kernel_file("read.cu")


@functools.cache
def timer(device: torch.device) -> Timer:
    return Timer(device, 4_000_000_000, 5)


def measure(v: Variant, device: torch.device) -> dict:
    data = torch.randint(0, 256, (v.bytes,), dtype=torch.uint8, device=device)
    sink = torch.zeros(1, dtype=torch.int32, device=device)
    sms = num_sms(device)

    def call(ctas: int, threads: int, unroll: int) -> None:
        C.jit_launch("read", source(unroll), sms * ctas, threads, 1, 0, False, [data, sink], [v.bytes])

    for grid in GRIDS:
        call(*grid)
    timings = timer(device).time(*[lambda grid=grid: call(*grid) for grid in GRIDS])
    times = [timing.median * 1e6 for timing in timings]
    best = min(range(len(GRIDS)), key=times.__getitem__)
    return {
        "bytes": v.bytes,
        "us": times[best],
        "gb_per_s": v.bytes / times[best] * 1e-3,
        "ctas_per_sm": GRIDS[best][0],
        "threads": GRIDS[best][1],
        "loads": GRIDS[best][2],
        "us_of_each_grid": [round(us, 2) for us in times],
        "method": timings[best].method,
    }


def show(row: dict) -> str:
    return (
        f"N = {row['n']:6d}, K = {row['k']:6d}: {row['bytes'] * 1e-6:6.1f} MB {row['us']:7.2f} us "
        f"{row['gb_per_s']:6.0f} GB/s ({row['ctas_per_sm']} x {row['threads']} threads an SM, {row['loads']} loads)"
    )


if __name__ == "__main__":
    bench = Bench(
        "read",
        __doc__.splitlines()[0],
        weight_shapes(),
        lambda v: source(4),
        measure,
        show,
        lambda _: Variant(64, 1024),
    )
    raise SystemExit(bench.main())
