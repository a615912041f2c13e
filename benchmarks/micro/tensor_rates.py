"""How fast each kind of tcgen05.mma multiplies by itself, by width, alone and in pairs of CTAs (SM100).

python benchmarks/micro/tensor_rates.py --out results
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from harness import Bench, clocks, constants, kernel_file, num_sms, timed_launch

import deep_gemm
from deep_gemm._targets import BLACKWELL_TARGET

FP32_SUMS, S32_SUMS, UE8M0 = 1 << 4, 2 << 4, 1 << 23


@dataclass(frozen=True)
class Kind:
    """A pair of formats: the function that multiplies it, and what its instruction descriptor says of it."""

    function: str
    descriptor: int
    step_k: int  # of one instruction
    scale_word: int | None = None
    of_sm_100a: bool = False  # alone: neither in the family target nor on B300


def formats(a: int, b: int) -> int:
    return a << 7 | b << 10


ONE_UE8M0, ONE_E4M3 = 0x7F7F7F7F, 0x38383838
KINDS = {
    "bf16": Kind("tensor_mma_f16", FP32_SUMS | formats(1, 1), 16),
    "fp16": Kind("tensor_mma_f16", FP32_SUMS | formats(0, 0), 16),
    "tf32": Kind("tensor_mma_tf32", FP32_SUMS | formats(2, 2), 8),
    "f8f6f4 e4m3": Kind("tensor_mma_f8f6f4", FP32_SUMS, 32),
    "mxf8f6f4 e4m3": Kind("tensor_mma_mxf8f6f4", UE8M0, 32, ONE_UE8M0),
    "mxf8f6f4 e4m3 x e2m1": Kind("tensor_mma_mxf8f6f4", UE8M0 | formats(0, 5), 32, ONE_UE8M0),
    "mxf4": Kind("tensor_mma_mxf4", UE8M0 | formats(1, 1), 64, ONE_UE8M0),
    "mxf4nvf4": Kind("tensor_mma_nvf4", formats(1, 1), 64, ONE_E4M3),
    "i8": Kind("tensor_mma_i8", S32_SUMS | formats(1, 1), 32, of_sm_100a=True),
}


@dataclass(frozen=True)
class Variant:
    kind: str
    cols: int = 256
    ctas: int = 1
    blocks: int = 4096

    @property
    def descriptor(self) -> int:
        return KINDS[self.kind].descriptor | self.cols >> 3 << 17 | 128 * self.ctas >> 4 << 24


def source(v: Variant) -> str:
    kind = KINDS[v.kind]
    scales = "scales, scales + 4, " if kind.scale_word is not None else ""
    head = (
        "#define MULTIPLY(sums, rows, cols, instruction, scales, accumulate) "
        f"ptx::{kind.function}<kCtas>(sums, rows, cols, instruction, {scales}accumulate)\n"
    )
    numbers = constants(kCtas=v.ctas, kCols=v.cols, kStages=4)
    return head + numbers + kernel_file("tensor_rates.cu")


def measure(v: Variant, device: torch.device) -> dict:
    kind = KINDS[v.kind]
    grid = num_sms(device) // v.ctas * v.ctas
    cycles, begin, end = clocks(grid, device)
    numbers = [v.blocks, v.descriptor, kind.scale_word or 0]
    timed_launch("tensor_rates", source(v), grid, 128, v.ctas, [cycles, begin, end], numbers)
    leaders = cycles[:: v.ctas].double()
    per_product = leaders.median().item() / (4 * v.blocks)
    seconds = max(1, (end.max() - begin.min()).item()) * 1e-9
    flops = 2 * 128 * v.cols * kind.step_k * 4 * v.blocks * grid
    return {
        "grid": grid,
        "cycles_per_product": per_product,
        "flop_per_cycle_and_sm": 2 * 128 * v.cols * kind.step_k / per_product,
        "tflops": flops / seconds * 1e-12,
        "clock_mhz": leaders.median().item() / seconds * 1e-6,
    }


def variants() -> list[Variant]:
    found = []
    for kind in KINDS:
        found += [Variant(kind, cols) for cols in (16, 32, 64, 128, 224, 256)]
        found += [Variant(kind, cols, 2) for cols in (32, 128, 224, 256)]
    return found


def show(row: dict) -> str:
    return (
        f"{row['kind']:22s} {128 * row['ctas']}x{row['cols']:3d} {row['cycles_per_product']:7.1f} cycles a product, "
        f"{row['flop_per_cycle_and_sm']:7.0f} FLOP a cycle and SM, {row['tflops']:6.0f} TFLOPS"
    )


def runs_on(v: Variant, target: str) -> bool:
    return target == "sm_100a" or not KINDS[v.kind].of_sm_100a


if __name__ == "__main__":
    if torch.cuda.is_available() and torch.cuda.get_device_capability() == (10, 0):
        deep_gemm.set_target("sm_100a", "cuda")  # which has all kinds
    bench = Bench(
        "tensor_rates",
        __doc__.splitlines()[0],
        variants(),
        source,
        measure,
        show,
        lambda v: replace(v, cols=min(v.cols, 64), blocks=3),
        target=BLACKWELL_TARGET,
        runs_on=runs_on,
    )
    raise SystemExit(bench.main())
