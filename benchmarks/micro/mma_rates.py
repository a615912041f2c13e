"""How fast each kind of mma.sync multiplies, by itself and fed from shared memory by ldmatrix (SM80, SM120).

python benchmarks/micro/mma_rates.py --out results
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import torch
from harness import Bench, clocks, constants, kernel_file, num_sms

from deep_gemm._extension import C

THREADS, STEPS = 256, 4


@dataclass(frozen=True)
class Kind:
    """A pair of formats: the function that multiplies it."""

    function: str
    step_k: int  # of one instruction
    scale_word: int | None = None
    targets: tuple[str, ...] = ()  # that have it, by how their names begin; all, if none is named
    integer: bool = False


ONE_UE8M0, ONE_E4M3 = 0x7F7F7F7F, 0x38383838
SCALED = ("sm_120a", "sm_121a")
KINDS = {
    "bf16": Kind("mma_bf16", 16),
    "int8": Kind("mma_s8_s8", 32, integer=True),
    "e4m3": Kind("mma_e4m3", 32, targets=("sm_89", "sm_12")),
    "mxf8f6f4 e4m3": Kind("mma_mx_e4m3_e4m3", 32, ONE_UE8M0, SCALED),
    "mxf8f6f4 e4m3 x e2m1": Kind("mma_mx_e4m3_e2m1", 32, ONE_UE8M0, SCALED),
    "mxf4": Kind("mma_mxf4", 64, ONE_UE8M0, SCALED),
    "mxf4nvf4": Kind("mma_nvf4", 64, ONE_E4M3, SCALED),
}


@dataclass(frozen=True)
class Variant:
    kind: str
    rows: int = 64  # of a warp's tile
    cols: int = 32
    fed: bool = False
    rounds: int = 4096

    @property
    def products(self) -> int:
        """Of the eight warps of a CTA."""
        return self.rows // 16 * self.cols // 8 * STEPS * self.rounds * THREADS // 32


def source(v: Variant) -> str:
    kind = KINDS[v.kind]
    scales = "" if kind.scale_word is None else ", {0}, ptx::ScaleSelector{{}}, {0}, ptx::ScaleSelector{{}}"
    head = f"#define MULTIPLY(sums, a, b) ptx::{kind.function}(sums, a, b{scales.format(hex(kind.scale_word or 0))})\n"
    sum_type = f"using Sum = {'int' if kind.integer else 'float'};\n"
    numbers = constants(kRowPieces=v.rows // 16, kColPieces=v.cols // 8, kFed=v.fed)
    return head + sum_type + numbers + kernel_file("mma_rates.cu")


def measure(v: Variant, device: torch.device, runs: int = 5) -> dict:
    """The median of some runs."""
    grid = num_sms(device)
    kind = KINDS[v.kind]
    sink = torch.zeros((grid, THREADS, 4), dtype=torch.int32 if kind.integer else torch.float32, device=device)
    smem_bytes = 4 * v.rows * STEPS * 32 + 2 * v.cols * STEPS * 32
    flops = 2 * 16 * 8 * kind.step_k * v.products * grid
    found = []
    for _ in range(1 if device.type == "cpu" else 1 + runs):  # the first warms up
        cycles, begin, end = clocks(grid, device)
        tensors = [cycles, begin, end, sink]
        C.jit_launch("mma_rates", source(v), grid, THREADS, 1, smem_bytes, False, tensors, [v.rounds])
        seconds = max(1, (end.max() - begin.min()).item()) * 1e-9
        found.append((seconds, cycles.double().median().item()))
    seconds, of_cta = (statistics.median(each) for each in zip(*found[-runs:], strict=True))
    return {
        "grid": grid,
        "cycles_per_product": of_cta / v.products,
        "flop_per_cycle_and_sm": flops / grid / of_cta,
        "tflops": flops / seconds * 1e-12,
        "clock_mhz": of_cta / seconds * 1e-6,
    }


def variants() -> list[Variant]:
    """By themselves; and fed, as warps of tiles of 64 by 32, 64 by 64 and 16 by 64 are."""
    found = [Variant(kind) for kind in KINDS]
    return found + [Variant(kind, *tile, fed=True) for kind in KINDS for tile in ((64, 32), (64, 64), (16, 64))]


def show(row: dict) -> str:
    fed = "fed by ldmatrix" if row["fed"] else "by itself"
    return (
        f"{row['kind']:22s} {row['rows']}x{row['cols']} {fed:15s} {row['cycles_per_product']:6.2f} cycles a product of "
        f"an SM, {row['flop_per_cycle_and_sm']:6.0f} FLOP a cycle and SM, {row['tflops']:6.0f} TFLOPS"
    )


def runs_on(v: Variant, target: str) -> bool:
    return target.startswith(KINDS[v.kind].targets or "sm_")


if __name__ == "__main__":
    bench = Bench(
        "mma_rates",
        __doc__.splitlines()[0],
        variants(),
        source,
        measure,
        show,
        lambda v: replace(v, rounds=2),
        target="sm_120a",
        runs_on=runs_on,
    )
    raise SystemExit(bench.main())
