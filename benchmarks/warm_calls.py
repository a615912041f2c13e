"""Warm calls for bench_host.py: whole ones, and ones that stop earlier. Their differences are the parts.

On a GPU with torch's tensors. Without one on a driver that does nothing, with tensors that say they lie on a GPU: what
is left is our own part and tvm-ffi's, without the driver's launch and without torch's part of converting a tensor.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import tvm_ffi
from paths import ROOT
from warm_layers import calls_of_layers

from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

BURST = 250  # with three kernels a call still below the depth of the launch queue, 1024
LAYERS_BURST = 60  # a layer of experts has up to a dozen kernels
BURSTS = 40
ALWAYS_NEW = 2048  # more tensors than any cache of ours remembers

Calls = dict[str, Callable[[], object]]


def burst_seconds(call: Callable[[], object], synchronise: Callable[[], None], burst: int = BURST) -> dict[str, float]:
    for _ in range(20):
        call()
    seconds = []
    for _ in range(BURSTS):
        synchronise()
        begin = time.perf_counter()
        for _ in range(burst):
            call()
        seconds.append((time.perf_counter() - begin) / burst)
    synchronise()
    return {"median": statistics.median(seconds), "least": min(seconds)}


def row_scales(rows: int, k_blocks: int, device: torch.device, *groups: int) -> torch.Tensor:
    """As the kernel reads them: MN-major, columns 16-byte aligned."""
    return torch.ones(*groups, k_blocks, -(-rows // 4) * 4, device=device)[..., :rows].transpose(-1, -2)


def fp8(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.randn(*shape, device=device).to(torch.float8_e4m3fn)


def calls(device: torch.device, place: Callable[[torch.Tensor], object]) -> Calls:
    """`place` makes of a tensor on `device` what a call is given."""
    import deep_gemm
    from deep_gemm._extension import C

    def pair(data: torch.Tensor, scales: torch.Tensor) -> tuple:
        return place(data), place(scales)

    def integers(*values: int) -> object:
        return place(torch.tensor(values, dtype=torch.int32, device=device))

    m, n, k, experts = 64, 256, 512, 4
    bf16 = {"dtype": torch.bfloat16, "device": device}
    a, b = (
        pair(fp8(m, k, device=device), row_scales(m, 4, device)),
        pair(fp8(n, k, device=device), torch.ones(2, 4, device=device)),
    )
    d = place(torch.empty(m, n, **bf16))
    weights = pair(fp8(experts, n, k, device=device), torch.ones(experts, 2, 4, device=device))
    rows = pair(fp8(512, k, device=device), row_scales(512, 4, device))
    out_rows, owners = place(torch.empty(512, n, **bf16)), integers(*[g for g in range(experts) for _ in range(128)])
    tokens = pair(fp8(experts, m, k, device=device), row_scales(m, 4, device, experts))
    out_tokens, counts = place(torch.empty(experts, m, n, **bf16)), integers(*[m] * experts)
    sizes = [128] * experts
    flat_a = pair(fp8(m * k, device=device), row_scales(m, 4, device).T)
    flat_b = pair(fp8(n * k, device=device), row_scales(n, 4, device).T)
    out_groups, layout = place(torch.empty(experts, m, n, device=device)), integers(*sizes)

    # Each tensor starts 16 bytes after the one before: other addresses, little memory.
    def always_new(tensor: torch.Tensor) -> itertools.cycle:
        step = 16 // tensor.element_size()
        memory = tensor.new_zeros(tensor.numel() + ALWAYS_NEW * step)
        return itertools.cycle(
            [place(memory[i * step :].as_strided(tensor.shape, tensor.stride())) for i in range(ALWAYS_NEW)]
        )

    new_d = always_new(torch.empty(m, n, **bf16))
    new_a, new_scales = always_new(fp8(m, k, device=device)), always_new(row_scales(m, 4, device))
    return {
        "fp8_gemm_nt": lambda: deep_gemm.fp8_gemm_nt(a, b, d),
        "fp8_gemm_nt without the Python wrapper": lambda: C.product(
            a=a[0], a_scales=a[1], b=b[0], b_scales=b[1], d=d, layout=6
        ),
        "fp8_gemm_nt, d always new": lambda: deep_gemm.fp8_gemm_nt(a, b, next(new_d)),
        "fp8_gemm_nt, a, its scales and d always new": lambda: deep_gemm.fp8_gemm_nt(
            (next(new_a), next(new_scales)), b, next(new_d)
        ),
        "contiguous": lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(rows, weights, out_rows, owners),
        "masked": lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(tokens, weights, out_tokens, counts, m),
        "k-grouped nt": lambda: deep_gemm.k_grouped_fp8_gemm_nt_contiguous(flat_a, flat_b, out_groups, sizes, layout),
    }


def calls_of_torch(device: torch.device) -> Calls:
    """What needs torch on the device: workspaces, and torch's own calls to compare with."""
    import deep_gemm
    from deep_gemm._extension import LIBRARY, C

    m, n, k = 64, 256, 512
    a, b = (
        (fp8(m, k, device=device), torch.ones(m, 4, device=device)),
        (fp8(n, k, device=device), torch.ones(2, 4, device=device)),
    )
    d = torch.empty(m, n, device=device, dtype=torch.bfloat16)
    x, y = torch.ones(m, k, device=device, dtype=torch.bfloat16), torch.ones(k, n, device=device, dtype=torch.bfloat16)
    sizes = [128] * 4
    tall_a = (fp8(k, m, device=device), row_scales(m, 4, device).T)
    tall_b = (fp8(k, n, device=device), row_scales(n, 4, device).T)
    groups, layout = torch.empty(4, m, n, device=device), torch.tensor(sizes, dtype=torch.int32, device=device)
    ready, shared = row_scales(m, 4, device), tvm_ffi.load_module(str(LIBRARY)).product
    record = {"a": a[0], "a_scales": ready, "b": b[0], "b_scales": b[1], "d": d, "layout": 6}
    fields = [record.get(name) for name in C.product_fields().split()]
    return {
        "fp8_gemm_nt without the Python wrapper, tensors shared (tvm-ffi's way)": lambda: shared(*fields),
        "fp8_gemm_nt, row-major scales (two kernels)": lambda: deep_gemm.fp8_gemm_nt(a, b, d),
        "k-grouped tn (three kernels)": lambda: deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
            tall_a, tall_b, groups, sizes, layout
        ),
        "torch: d.zero_()": lambda: d.zero_(),
        "torch: bfloat16 matmul": lambda: torch.mm(x, y, out=d),
    }


def calls_without_launch(device: torch.device) -> Calls:
    """The way in alone, with torch's tensors."""
    import deep_gemm
    from deep_gemm._extension import C
    from deep_gemm._recording import placeholder, record

    a = fp8(0, 512, device=device), torch.ones(0, 4, device=device)
    b = fp8(256, 512, device=device), torch.ones(2, 4, device=device)
    d = torch.empty(0, 256, device=device, dtype=torch.bfloat16)
    most, n, k = 4096, 7168, 2048
    tokens, token_scales = placeholder(most, k, dtype=a[0].dtype), placeholder(most, k // 128, dtype=torch.float32)
    weights = placeholder(n, k, dtype=a[0].dtype), placeholder(n // 128, k // 128, dtype=torch.float32)
    out, rows = placeholder(most, n, dtype=torch.bfloat16), itertools.cycle(range(1, most + 1))

    def new_problem() -> None:
        m = next(rows)
        with record(HOPPER_TARGET, HOPPER_SMS, None):
            deep_gemm.fp8_gemm_nt((tokens[:m], token_scales[:m]), weights, out[:m])
            C.recorded_kernel({})

    found: Calls = {
        "checked, nothing launched (m = 0)": lambda: deep_gemm.fp8_gemm_nt(a, b, d),
        "a new problem's kernel chosen and written": new_problem,
    }
    nothing = tvm_ffi.get_global_func("testing.nop", allow_missing=True)
    if nothing is not None:
        found |= {
            "tvm-ffi: no arguments": lambda: nothing(),
            "tvm-ffi: the arguments of a dense call, shared": lambda: nothing(a[0], a[1], b[0], b[1], d, None, 0, 0, 6),
        }
    return found


def warm_calls(device: torch.device) -> dict[str, dict[str, float]]:
    if device.type == "cuda":
        synchronise = torch.cuda.synchronize
        timed = calls_without_launch(device) | calls(device, lambda tensor: tensor) | calls_of_torch(device)
        layers = calls_of_layers(device)
    else:
        timed, layers = calls_without_launch(device), {}
        if shutil.which("g++"):
            from fake_driver import built_driver, load_fake_driver, pose_as_cuda

            load_fake_driver(built_driver(), silent=True)
            timed |= {f"fake driver: {name}": call for name, call in calls(device, pose_as_cuda).items()}

        def synchronise() -> None:
            pass

    loop = burst_seconds(lambda: None, synchronise)["median"]
    found = {name: burst_seconds(call, synchronise) for name, call in timed.items()}
    found |= {name: burst_seconds(call, synchronise, LAYERS_BURST) for name, call in layers.items()}
    return {name: {key: value - loop for key, value in seconds.items()} for name, seconds in found.items()}


def build_launch(folder: Path, target: str) -> tuple[Path, Path]:
    """micro/launch.cpp as a program, and the kernel that it launches."""
    from deep_gemm._extension import C

    micro = ROOT / "benchmarks" / "micro"
    program, image = folder / "launch", folder / "empty.cubin"
    image.write_bytes(bytes(C.jit_compile("empty", (micro / "empty.cu").read_text(), target, "cubin")))
    includes = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'deep_gemm' / 'include'}"]
    subprocess.run(["g++", "-O2", "-std=c++20", *includes, "-o", program, micro / "launch.cpp", "-ldl"], check=True)
    return program, image


def bare_launches() -> list[dict[str, object]]:
    """The driver's launch of a kernel that does nothing, from a loop in C++."""
    from deep_gemm._extension import C

    with tempfile.TemporaryDirectory() as directory:
        program, image = build_launch(Path(directory), C.device_facts(False, 0)["target"])
        return json.loads(subprocess.run([program, image], check=True, capture_output=True, text=True).stdout)
