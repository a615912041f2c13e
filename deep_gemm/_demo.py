"""What `python -m deep_gemm` shows: the machine as found, and one FP8 GEMM that is run, checked and timed."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import deep_gemm

from . import _installations, jit
from ._extension import C
from ._targets import AMPERE_TARGET, BLACKWELL_TARGET, GPUS, HOPPER_TARGET

GPU_SHAPE = (4096, 7168, 2048)
SIMULATOR_SHAPE = (64, 256, 512)
DEMO_TARGETS = (AMPERE_TARGET, HOPPER_TARGET, BLACKWELL_TARGET)
Scaled = tuple[torch.Tensor, torch.Tensor]  # an FP8 operand and its scales
LARGEST_DIFFERENCE = 1e-5  # calc_diff of an FP8 product in BF16 against FP64 is about 3e-6
# Limits measured on an H200, and the launch of a kernel: what `efficiency` is relative to.
FP8_FLOPS, MEMORY_BYTES, LAUNCH_SECONDS = 1.5e15, 4.3e12, 2e-6


def say(name: str, text: object) -> None:
    print(f"  {name:13s} {text}", flush=True)


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def usable_gpu() -> tuple[bool, str]:
    """Whether kernels can run on a GPU here, and what there is (or why not)."""
    try:
        driver = C.cuda_driver()
    except RuntimeError as error:
        return False, f"none: {first_line(error)}"
    if not torch.cuda.is_available():
        return (
            False,
            f"torch {torch.__version__} cannot use it (driver {driver['version']}, {driver['device_count']} GPUs)",
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    name = (
        f"{properties.name}, compute capability {properties.major}.{properties.minor}, "
        f"{properties.multi_processor_count} SMs, {properties.total_memory >> 30} GiB"
    )
    try:
        return True, f"{name}, {kernels_of(torch.cuda.current_device())}"
    except (RuntimeError, ValueError) as error:
        return False, f"{name}: {first_line(error)}"


def kernels_of(index: int) -> str:
    facts = C.device_facts(False, index)
    return f"kernels of {facts['arch']} for {facts['target']}"


def doctor() -> bool:
    """Print what was found. True where kernels can be compiled, and no other distribution has files of ours."""
    print(f"deep_gemm {deep_gemm.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    _, gpu = usable_gpu()
    say("GPU", gpu)
    try:
        driver = C.cuda_driver()
        say("driver", f"CUDA {driver['version'] // 1000}.{driver['version'] % 1000 // 10}")
    except RuntimeError:
        say("driver", "none")
    try:
        compiler = jit.compiler_info()
        say("compiler", f"{compiler['identity']} ({compiler['path']})")
        compiles = True
    except RuntimeError as error:
        say("compiler", f"none: {error}")
        compiles = False
    for title, served in zip(["targets", *[""] * len(GPUS)], GPUS.items(), strict=False):
        say(title, f"{served[0]} ({served[1].names})")
    say("", "never on hardware of their own: kernels of sm100, which ran on the simulator only,")
    say("", "and those of sm80 (sm_80 to sm_89, sm_110 to sm_121), which ran on it and on a Hopper that stands in")
    try:
        say("simulator", "{target}, {num_sms} SMs".format(**C.simulator_options()))
    except ValueError as error:
        say("simulator", f"none: {first_line(error)}")
    directory = jit.cache_dir()
    if directory is None:
        say("cache", "in memory only: no directory can be written")
    else:
        entries = jit.list_cache()
        size = sum(entry.image_bytes for entry in entries)
        limit = int(C.jit_settings()["cache_max_bytes"])
        most = f"{limit / 1e6:.0f} MB at most" if limit else "no limit"
        say("cache", f"{directory}: {len(entries)} kernels, {size / 1e6:.1f} MB ({most})")
    copied_by = _installations.vllm_copy()
    if copied_by is not None:
        say("vLLM", f"{copied_by} carries a copy of DeepGEMM, which it takes where deep_gemm cannot be imported; names")
        say("", "that are not here are served by it with DG_FALLBACK=1")
    others = _installations.others()
    if others:
        say("conflict", _installations.conflict(others))
    return compiles and not others


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


def run_and_check(m: int, n: int, k: int, device: torch.device) -> tuple[Callable[[], None], bool]:
    """Run one GEMM, print how it compares with FP64. Returns the call, to be timed, and whether it was right."""
    a, b = quantised(m, n, k, device)
    d = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=device)

    def call() -> None:
        deep_gemm.fp8_gemm_nt(a, b, d)

    begin = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    say("first call", f"{(time.perf_counter() - begin) * 1e3:.1f} ms, compiling or loading included")
    from deep_gemm.testing import calc_diff

    difference = calc_diff(d, reference(a, b))
    right = difference <= LARGEST_DIFFERENCE
    verdict = "right" if right else "WRONG"
    say("result", f"{verdict}: differs from the FP64 product of the same inputs by {difference:.1e} (1 - cosine)")
    return call, right


def print_statistics(statistics: dict[str, Any]) -> None:
    """What the simulator counted in one launch."""
    say("work", "{blocks} blocks, {warp_instructions} instructions of warps".format(**statistics))
    say("", "{matrix_multiplies} matrix instructions, {multiply_adds} multiply-adds".format(**statistics))
    say("copy engine", "{tma_copies} copies: {tma_load_bytes} bytes in, {tma_store_bytes} out".format(**statistics))
    say("loads, stores", "{global_load_bytes} bytes in, {global_store_bytes} out".format(**statistics))
    say("shared", "{shared_accesses} accesses, {bank_conflicts} bank conflicts".format(**statistics))
    say("mbarriers", "{barrier_waits} waits, {barrier_waits_blocked} of them blocked".format(**statistics))
    say("took", f"{statistics['seconds'] * 1e3:.0f} ms on the CPU, which says nothing of a GPU's speed")


def gpu_seconds(call: Callable[[], None], device: torch.device, calls: int = 20) -> float:
    """Median GPU time of a call with a cold L2, launch gap left out: replays of one graph with and without the call."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device=device)

    def replay_seconds(body: Callable[[], None]) -> float:
        body()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        seconds = []
        for _ in range(calls):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            seconds.append(begin.elapsed_time(end) * 1e-3)
        return float(statistics.median(seconds))

    def flush_l2() -> None:
        flush.zero_()

    def flush_and_call() -> None:
        flush_l2()
        call()

    return max(replay_seconds(flush_and_call) - replay_seconds(flush_l2), 1e-9)


def print_speed(m: int, n: int, k: int, seconds: float) -> None:
    flops = 2 * m * n * k
    size = m * k + n * k + 2 * m * n + 4 * -(-k // 128) * (m + -(-n // 128))
    floor = max(size / MEMORY_BYTES, flops / FP8_FLOPS) + LAUNCH_SECONDS
    say("time", f"{seconds * 1e6:.1f} us on the GPU, from a cold L2")
    say("speed", f"{flops / seconds * 1e-12:.0f} TFLOPS, {size / seconds * 1e-9:.0f} GB/s")
    if deep_gemm.get_target() == HOPPER_TARGET:
        limits = f"what an H200's memory and matrix units allow ({floor * 1e6:.1f} us)"
        say("efficiency", f"{floor / seconds:.2f} of {limits}")


def compile_kernel(m: int, n: int, k: int, target: str) -> None:
    kernel = C.problem_kernel("dense", {"m": m, "n": n, "k": k, "num_sms": GPUS[target].sms}, target)
    before = jit.statistics()["found_on_disk"]
    begin = time.perf_counter()
    image = C.jit_compile(kernel["name"], kernel["text"], target, "cubin")
    how = "found in the cache" if jit.statistics()["found_on_disk"] > before else "compiled"
    say("kernel", f"M={m} N={n} K={k} for {target}: {how} in {(time.perf_counter() - begin) * 1e3:.0f} ms")
    ctas, threads, smem = (kernel[field] for field in ("num_ctas", "threads", "smem_bytes"))
    say("", f"{len(image)} bytes; {ctas} CTAs of {threads} threads, each with {smem} bytes of shared memory")


def run_simulated(m: int, n: int, k: int, target: str) -> bool:
    """Whether a GEMM was right on the simulator as this target, without a hazard."""
    from deep_gemm import simulator

    print(f"\nFP8 GEMM, M={m} N={n} K={k}, on the PTX simulator as {target} ({GPUS[target].names})")
    try:
        with simulator.options(hazards="error", target=target):
            _, right = run_and_check(m, n, k, torch.device("cpu"))
    except RuntimeError as error:
        say("not run", first_line(error))
        return False
    say("hazards", "none found (races, missing waits, accesses out of bounds: see docs/simulator.md)")
    return right


def demo(shape: tuple[int, int, int] | None = None) -> int:
    """One FP8 GEMM on the best device that there is, checked, and timed where that means something."""
    gpu, _ = usable_gpu()
    if gpu:
        m, n, k = shape or GPU_SHAPE
        device = torch.device("cuda", torch.cuda.current_device())
        print(f"\nFP8 GEMM, M={m} N={n} K={k}, on the GPU")
        call, right = run_and_check(m, n, k, device)
        print_speed(m, n, k, gpu_seconds(call, device))
        return 0 if right else 1
    right = True
    for target in DEMO_TARGETS:
        print(f"\nFP8 GEMM for {GPUS[target].names}, compiled only")
        compile_kernel(*(shape or GPU_SHAPE), target)
        right &= run_simulated(*(shape or SIMULATOR_SHAPE), target)
    print(f"\nDone: kernels for {', '.join(DEMO_TARGETS)} compiled to machine code; those of a smaller GEMM")
    print("executed instruction by instruction on the CPU, and compared with FP64.")
    print("Not done: nothing ran on a GPU (see above why), so no speed was measured.")
    return 0 if right else 1
