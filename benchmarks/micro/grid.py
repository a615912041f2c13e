"""GPU time of a persistent kernel that does nothing, by cluster and shared memory, and how many clusters fit.

python benchmarks/micro/grid.py --out results
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from harness import SMEM_BYTES, Bench, constants, num_sms
from timing import Timer

from deep_gemm._extension import C

THREADS = 384  # two math warpgroups and one that copies


@dataclass(frozen=True)
class Variant:
    cluster: int = 1
    sync: bool = False  # the cluster's CTAs wait for each other once
    smem_bytes: int = SMEM_BYTES


def source(v: Variant) -> str:
    return (
        constants(kSync=v.sync)
        + """#include <deep_gemm/ptx/cluster.cuh>
struct Params {
    int* unused;
};
extern "C" __global__ void __launch_bounds__(384, 1) grid(const __grid_constant__ Params params) {
    if constexpr (kSync) __cluster_barrier_arrive(), __cluster_barrier_wait();
}
"""
    )


@functools.cache
def timer(device: torch.device) -> Timer:
    return Timer(device, 1_000_000_000, 11)


def measure(v: Variant, device: torch.device) -> dict:
    unused = torch.zeros(1, dtype=torch.int32, device=device)
    text = source(v)
    index = device.index or 0
    fit = C.jit_max_clusters(device.type == "cpu", index, "grid", text, THREADS, v.cluster, v.smem_bytes)
    grid = min(fit * v.cluster, num_sms(device) // v.cluster * v.cluster)

    def call() -> None:
        C.jit_launch("grid", text, grid, THREADS, v.cluster, v.smem_bytes, False, [unused], [])

    if grid == 0:
        return {"clusters_that_fit": 0, "ctas": 0, "us": None, "method": "none fits"}
    call()
    [timing] = timer(device).time(call)
    return {"clusters_that_fit": fit, "ctas": grid, "us": timing.median * 1e6, "method": timing.method}


VARIANTS = [
    Variant(smem_bytes=0),
    Variant(),
    *(Variant(cluster, sync) for cluster in range(2, 9) for sync in (False, True)),
]


def show(row: dict) -> str:
    took = "" if row["us"] is None else f", {row['ctas']:3d} CTAs take {row['us']:6.2f} us"
    return (
        f"cluster of {row['cluster']}{', sync' if row['sync'] else '':6s} {row['smem_bytes']:6d} B of shared memory: "
        f"{row['clusters_that_fit']:3d} clusters fit{took}"
    )


if __name__ == "__main__":
    bench = Bench("grid", __doc__.splitlines()[0], VARIANTS, source, measure, show, lambda v: v)
    raise SystemExit(bench.main())
