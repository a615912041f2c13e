"""How fast an FP32 matrix in memory is added to, by tiles: by the copy engine, by fetching and storing, by threads.

python benchmarks/micro/add.py --out results
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch
from harness import SMEM_BYTES, Bench, constants, kernel_file, num_sms
from tensor_maps import FLOAT32, matrix_map
from timing import Timer

from deep_gemm._extension import C

HOW = ["add", "store", "fetch", "threads_add", "threads_reduce"]  # as add.cu numbers them


@dataclass(frozen=True)
class Variant:
    how: str = "add"
    rows: int = 114688
    cols: int = 2048
    tile_cols: int = 128
    groups: int = 8  # of 16 rows of a tile: stores that may still be reading shared memory
    evict_first: bool = False
    ahead: int = -1  # the L2 is asked for 16 rows of a tile so many shares before they are added to; -1: not
    every: int = 1  # of so many lines of 128 bytes for one; its neighbour comes too (L2 promotion of 256 bytes)

    @property
    def bytes(self) -> int:
        return self.rows * self.cols * 4


def source(v: Variant) -> str:
    head = constants(kHow=HOW.index(v.how), kGroups=v.groups, kHint=v.evict_first, kTileCols=v.tile_cols)
    return head + constants(kAhead=v.ahead, kEvery=v.every) + kernel_file("add.cu")


@functools.cache
def timer(device: torch.device) -> Timer:
    return Timer(device, 4_000_000_000, 5)


@functools.cache
def matrix(elements: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(elements, dtype=torch.float32, device=device)


def measure(v: Variant, device: torch.device) -> dict:
    data = matrix(v.rows * v.cols, device)
    by_threads = v.how.startswith("threads")
    encoded = matrix_map(data, v.rows, v.cols * 4, 16, FLOAT32)
    numbers = [v.cols, v.rows // 128, v.cols // v.tile_cols, *[0] * 4, *encoded]
    grid, block, smem = num_sms(device), 1024 if by_threads else 128, 0 if by_threads else SMEM_BYTES

    def call() -> None:
        C.jit_launch("add", source(v), grid, block, 1, smem, False, [data], numbers)

    # What is fetched is stored where it was, in buffers that held ones; all else adds or stores ones.
    before = torch.randint(-9, 9, (1, v.cols), device=device).float().expand(v.rows, v.cols).reshape(-1)
    data.copy_(before)
    call()
    expected = before if v.how == "fetch" else torch.ones(1, device=device) if v.how == "store" else before + 1
    assert bool((data == expected).all()), v
    if device.type == "cpu":
        return {"us": float("nan"), "gb_per_s": float("nan"), "method": "simulator"}
    timing = timer(device).time(call)[0]
    us = timing.median * 1e6
    moved = v.bytes * (1 if v.how == "store" else 2)
    return {"us": us, "gb_per_s": moved / us * 1e-3, "method": timing.method}


def variants() -> list[Variant]:
    found = [Variant(how) for how in HOW]
    found += [Variant(how, evict_first=True) for how in ("add", "store", "fetch")]
    found += [Variant("add", groups=groups) for groups in (1, 2, 4, 16)]
    found += [Variant("add", ahead=ahead) for ahead in (0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 32)]
    found += [Variant("add", ahead=ahead, every=every) for every in (2, 4) for ahead in (2, 3, 4, 6)]
    found += [Variant(how, tile_cols=cols) for how in ("add", "fetch") for cols in (32, 64, 256)]
    found += [Variant(how, 28672, 8192) for how in HOW]
    found += [Variant("add", 28672, 8192, ahead=ahead) for ahead in (2, 4, 8)]
    return found


def show(row: dict) -> str:
    parts = [f"{row['how']:14s} {row['rows']}x{row['cols']} tile {row['tile_cols']:3d} groups {row['groups']:2d}"]
    parts += ["evict first"] if row["evict_first"] else []
    parts += [f"ahead {row['ahead']}"] if row["ahead"] >= 0 else []
    parts += [f"one of {row['every']}"] if row["every"] > 1 else []
    return f"{', '.join(parts):70s} {row['us']:8.1f} us {row['gb_per_s']:6.0f} GB/s"


def smaller(v: Variant) -> Variant:
    return replace(v, rows=1024, cols=512)


if __name__ == "__main__":
    bench = Bench("add", __doc__.splitlines()[0], variants(), source, measure, show, smaller)
    raise SystemExit(bench.main())
