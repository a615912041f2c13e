"""`python -m deep_gemm demo` and `simulate`: one FP8 GEMM, run, checked, and timed where that means something."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import deep_gemm

from .. import jit
from .._extension import C
from .._targets import AMPERE_TARGET, BLACKWELL_TARGET, GPUS, HOPPER_TARGET
from ..utils.math import ceil_div
from .doctor import usable_gpu
from .output import Output, first_line
from .timing import gpu_seconds

GPU_SHAPE = (4096, 7168, 2048)
SIMULATOR_SHAPE = (64, 256, 512)
DEMO_TARGETS = (AMPERE_TARGET, HOPPER_TARGET, BLACKWELL_TARGET)
Scaled = tuple[torch.Tensor, torch.Tensor]  # an FP8 operand and its scales
LARGEST_DIFFERENCE = 1e-5  # calc_diff of an FP8 product in BF16 against FP64 is about 3e-6
# Limits measured on an H200, and the launch of a kernel: what `efficiency` is relative to.
FP8_FLOPS, MEMORY_BYTES, LAUNCH_SECONDS = 1.5e15, 4.3e12, 2e-6


def quantised(m: int, n: int, k: int, device: torch.device) -> tuple[Scaled, Scaled]:
    from deep_gemm.testing import get_arch_major
    from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8

    use_ue8m0 = get_arch_major(device) == 10  # B200 and B300 scale by powers of two
    generator = torch.Generator(device=device).manual_seed(0)
    a = torch.randn(m, k, device=device, generator=generator)
    b = torch.randn(n, k, device=device, generator=generator)
    data, scales = per_token_cast_to_fp8(a, use_ue8m0=use_ue8m0)
    scaled_a = (data, deep_gemm.get_mn_major_tma_aligned_tensor(scales))
    return scaled_a, per_block_cast_to_fp8(b, use_ue8m0=use_ue8m0)


def reference(a: Scaled, b: Scaled) -> torch.Tensor:
    """The product of the same quantised inputs in FP64."""

    def dequantise(operand: Scaled, rows: int) -> torch.Tensor:
        data, scales = operand
        scales = scales.double().repeat_interleave(rows, 0)[: data.shape[0]]
        return data.double() * scales.repeat_interleave(128, 1)[:, : data.shape[1]]

    return dequantise(a, 1) @ dequantise(b, 128).T


def run_and_check(
    shape: tuple[int, int, int], device: torch.device, output: Output, facts: dict[str, Any]
) -> tuple[Callable[[], None], bool]:
    """Run one GEMM, say how it compares with FP64. Returns the call, to be timed, and whether it was right."""
    m, n, k = shape
    a, b = quantised(m, n, k, device)
    d = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=device)

    def call() -> None:
        deep_gemm.fp8_gemm_nt(a, b, d)

    begin = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    output.say("first call", f"{seconds * 1e3:.1f} ms, compiling or loading included")
    from deep_gemm.testing import calc_diff

    difference = calc_diff(d, reference(a, b))
    right = difference <= LARGEST_DIFFERENCE
    verdict = "right" if right else "WRONG"
    output.say(
        "result", f"{verdict}: differs from the FP64 product of the same inputs by {difference:.1e} (1 - cosine)"
    )
    facts |= {"shape": [m, n, k], "first_call_seconds": seconds, "difference": difference, "right": right}
    return call, right


def tell_statistics(statistics: dict[str, Any], output: Output) -> None:
    """What the simulator counted in one launch."""
    output.say("work", "{blocks} blocks, {warp_instructions} instructions of warps".format(**statistics))
    output.say("", "{matrix_multiplies} matrix instructions, {multiply_adds} multiply-adds".format(**statistics))
    output.say(
        "copy engine", "{tma_copies} copies: {tma_load_bytes} bytes in, {tma_store_bytes} out".format(**statistics)
    )
    output.say("loads, stores", "{global_load_bytes} bytes in, {global_store_bytes} out".format(**statistics))
    output.say("shared", "{shared_accesses} accesses, {bank_conflicts} bank conflicts".format(**statistics))
    output.say("mbarriers", "{barrier_waits} waits, {barrier_waits_blocked} of them blocked".format(**statistics))
    output.say("took", f"{statistics['seconds'] * 1e3:.0f} ms on the CPU, which says nothing of a GPU's speed")


def tell_speed(shape: tuple[int, int, int], seconds: float, output: Output, facts: dict[str, Any]) -> None:
    m, n, k = shape
    flops = 2 * m * n * k
    size = m * k + n * k + 2 * m * n + 4 * -(-k // 128) * (m + -(-n // 128))
    floor = max(size / MEMORY_BYTES, flops / FP8_FLOPS) + LAUNCH_SECONDS
    facts |= {"gpu_seconds": seconds, "tflops": flops / seconds * 1e-12, "gb_per_s": size / seconds * 1e-9}
    output.say("time", f"{seconds * 1e6:.1f} us on the GPU, from a cold L2")
    output.say("speed", f"{flops / seconds * 1e-12:.0f} TFLOPS, {size / seconds * 1e-9:.0f} GB/s")
    if deep_gemm.get_target() == HOPPER_TARGET:
        limits = f"what an H200's memory and matrix units allow ({floor * 1e6:.1f} us)"
        output.say("efficiency", f"{floor / seconds:.2f} of {limits}")


def blank_operands(m: int, n: int, k: int) -> tuple[Scaled, Scaled, torch.Tensor]:
    """A, B and D of a product that is recorded."""
    blocks = ceil_div(k, 128)
    a = jit.placeholder(m, k, dtype=torch.float8_e4m3fn), jit.placeholder(m, blocks, dtype=torch.float32)
    of_b = jit.placeholder(ceil_div(n, 128), blocks, dtype=torch.float32)
    return a, (jit.placeholder(n, k, dtype=torch.float8_e4m3fn), of_b), jit.placeholder(m, n, dtype=torch.bfloat16)


def compile_kernel(shape: tuple[int, int, int], target: str, output: Output, facts: dict[str, Any]) -> None:
    m, n, k = shape
    with jit.record(target):
        deep_gemm.fp8_gemm_nt(*blank_operands(m, n, k))
        kernel = C.recorded_kernel({})
    before = jit.statistics()["found_on_disk"]
    begin = time.perf_counter()
    image = C.jit_compile(kernel["name"], kernel["text"], target, "cubin")
    seconds = time.perf_counter() - begin
    how = "found in the cache" if jit.statistics()["found_on_disk"] > before else "compiled"
    output.say("kernel", f"M={m} N={n} K={k} for {target}: {how} in {seconds * 1e3:.0f} ms")
    ctas, threads, smem = (kernel[field] for field in ("num_ctas", "threads", "smem_bytes"))
    output.say("", f"{len(image)} bytes; {ctas} CTAs of {threads} threads, each with {smem} bytes of shared memory")
    facts |= {"target": target, "kernel": kernel["name"], "how": how, "seconds": seconds, "bytes": len(image)}


def run_simulated(shape: tuple[int, int, int], target: str, output: Output, facts: dict[str, Any]) -> bool:
    """Whether a GEMM was right on the simulator as this target, without a hazard."""
    from deep_gemm import simulator

    where = f"on the PTX simulator as {target} ({GPUS[target].names})"
    output.line("\nFP8 GEMM, M={} N={} K={}, {}".format(*shape, where))
    try:
        with simulator.options(hazards="error", target=target):
            _, right = run_and_check(shape, torch.device("cpu"), output, facts)
    except RuntimeError as error:
        output.say("not run", first_line(error))
        facts["error"] = str(error)
        return False
    output.say("hazards", "none found (races, missing waits, accesses out of bounds: see docs/simulator.md)")
    return right


def demo(output: Output) -> int:
    """One FP8 GEMM on the best device that there is, checked, and timed where that means something."""
    gpu, _ = usable_gpu()
    if gpu:
        device = torch.device("cuda", torch.cuda.current_device())
        output.line("\nFP8 GEMM, M={} N={} K={}, on the GPU".format(*GPU_SHAPE))
        on_gpu = output.facts["on_gpu"] = {}
        call, right = run_and_check(GPU_SHAPE, device, output, on_gpu)
        tell_speed(GPU_SHAPE, gpu_seconds(call, device), output, on_gpu)
        return 0 if right else 1
    right = True
    compiled = output.facts["compiled"] = []
    simulated = output.facts["simulated"] = {}
    for target in DEMO_TARGETS:
        output.line(f"\nFP8 GEMM for {GPUS[target].names}, compiled only")
        compiled.append({})
        compile_kernel(GPU_SHAPE, target, output, compiled[-1])
        simulated[target] = {}
        right &= run_simulated(SIMULATOR_SHAPE, target, output, simulated[target])
    output.line(f"\nDone: kernels for {', '.join(DEMO_TARGETS)} compiled to machine code; those of a smaller GEMM")
    output.line("executed instruction by instruction on the CPU, and compared with FP64.")
    output.line("Not done: nothing ran on a GPU (see above why), so no speed was measured.")
    return 0 if right else 1


def simulate(arguments: argparse.Namespace, output: Output) -> int:
    """One GEMM on the simulator: result, hazards, statistics."""
    from deep_gemm import simulator

    shape, target = (arguments.m, arguments.n, arguments.k), arguments.target
    output.line("FP8 GEMM, M={} N={} K={}, on the PTX simulator as {}".format(*shape, target))
    output.facts["target"] = target
    with simulator.options(target=target, schedule=arguments.schedule, seed=arguments.seed, hazards="report"):
        _, right = run_and_check(shape, torch.device("cpu"), output, output.facts)
        report = simulator.last_report()
    assert report is not None
    output.facts |= {"hazards": [vars(hazard) for hazard in report.hazards], "statistics": report.statistics}
    output.say("hazards", len(report.hazards) or "none")
    for hazard in report.hazards[:5]:
        output.line(hazard)
    tell_statistics(report.statistics, output)
    return 0 if right and not report.hazards else 1
