"""What finishing index logits costs beside wgmma: relu, weights, the sum over heads, and stores.

python benchmarks/micro/logits_finish.py --out results
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import torch
from harness import SMEM_BYTES, Bench, clocks, constants, kernel_file, num_sms

from deep_gemm._extension import C

PARTS = ("products alone", "relu, weights, sums", "and over a quad", "and stores")
TILE, GROUPS, FEW_HEADS, COLUMNS = 64, 2, 32, 256


@dataclass(frozen=True)
class Variant:
    heads: int
    d: int
    part: int  # of PARTS
    tiles: int = 16384
    keys: int = 65536

    @property
    def products(self) -> int:
        """Of a tile, as the kernel's plan has them."""
        return 2 if self.heads <= FEW_HEADS else 1

    @property
    def rows(self) -> int:
        return COLUMNS // self.products // self.heads


def source(v: Variant) -> str:
    numbers = constants(kHeads=v.heads, kD=v.d, kProducts=v.products, kRows=v.rows, kPart=v.part)
    return numbers + kernel_file("logits_finish.cu")


def measure(v: Variant, device: torch.device, runs: int = 5) -> dict:
    """The median of some runs, on all SMs: power may bind."""
    grid = num_sms(device)
    logits = torch.zeros(grid * GROUPS * COLUMNS // v.heads * v.keys, device=device)
    found = []
    for _ in range(1 if device.type == "cpu" else 1 + runs):  # the first warms up
        cycles, begin, end = clocks(grid, device)
        tensors, numbers = [cycles, begin, end, logits], [v.tiles, v.keys]
        C.jit_launch("logits_finish", source(v), grid, 128 * GROUPS, 1, SMEM_BYTES, False, tensors, numbers)
        found.append((max(1, (end.max() - begin.min()).item()) * 1e-9, cycles.double().median().item()))
    seconds, of_cta = (statistics.median(each) for each in zip(*found[-runs:], strict=True))
    flops = 2 * v.tiles * TILE * GROUPS * COLUMNS * v.d * grid
    return {
        "cycles_per_tile": of_cta / v.tiles,
        "tflops": flops / seconds * 1e-12,
        "clock_mhz": of_cta / seconds * 1e-6,
    }


VARIANTS = [Variant(heads, d, part) for heads in (64, 32) for d in (128, 64, 32) for part in range(len(PARTS))]


def show(row: dict) -> str:
    return (
        f"{row['heads']:3} heads, D {row['d']:3}, {PARTS[row['part']]:20} {row['cycles_per_tile']:6.0f} cycles a tile, "
        f"{row['tflops']:5.0f} TFLOPS, {row['clock_mhz']:5.0f} MHz"
    )


if __name__ == "__main__":
    about = __doc__.splitlines()[0]
    bench = Bench("logits_finish", about, VARIANTS, source, measure, show, lambda v: replace(v, tiles=4, keys=128))
    raise SystemExit(bench.main())
