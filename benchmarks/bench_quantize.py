"""Speed of the quantise kernels beside a plain copy, an empty kernel, torch's own formula and a Triton kernel.

python benchmarks/bench_quantize.py --out results
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton_quantize
from machine import describe, write_result
from timing import Timer, Timing

import deep_gemm
from deep_gemm import quantize
from deep_gemm._extension import C
from deep_gemm.utils import per_token_cast_to_fp8, per_token_cast_to_int8

ROWS = (1, 16, 64, 256, 4096)
K, GATED_K = 7168, 2048
EMPTY = 'struct Params { void* data; };\nextern "C" __global__ void empty(const __grid_constant__ Params) {}\n'

Calls = dict[str, Callable[[], object]]


def plain_calls(x: torch.Tensor) -> Calls:
    m = x.shape[0]
    other, ends = torch.empty_like(x), torch.tensor([m], dtype=torch.int32, device=x.device)
    whole = torch.ones((), device=x.device)
    fp32, packed, rows = quantize.fp8(x), quantize.fp8(x, scales="packed"), quantize.int8(x)
    calls: Calls = {
        "copy": lambda: other.copy_(x),
        "empty": lambda: C.jit_launch("empty", EMPTY, 1, 32, 1, 0, True, [x], []),
        "fp8": lambda: quantize.fp8(x, out=fp32),
        "fp8 packed": lambda: quantize.fp8(x, scales="packed", out=packed),
        "fp8 packed 32": lambda: quantize.fp8(x, group=32, scales="packed"),
        "fp8 psum": lambda: quantize.fp8(x, out=fp32, grouping=deep_gemm.Contiguous(ends, psum=True)),
        "fp8 a row": lambda: quantize.fp8(x, group=None),
        "int8 a row": lambda: quantize.int8(x, out=rows),
        "int8 zeros": lambda: quantize.int8(x, symmetric=False),
        "mxfp4": lambda: quantize.mxfp4(x),
        "nvfp4": lambda: quantize.nvfp4(x, global_scale=whole),
        "torch fp8": lambda: _torch_fp8(x),
    }
    if m % 128 == 0:
        calls["fp8 blocks"] = lambda: quantize.fp8_blocks(x)
    if triton_quantize.works(x.device):
        calls["triton fp8"] = lambda: triton_quantize.cast(x, *fp32)
    return calls


def gated_calls(gate_up: torch.Tensor) -> Calls:
    other, results = torch.empty_like(gate_up), quantize.swiglu_fp8(gate_up)
    weights = torch.ones(gate_up.shape[0], device=gate_up.device)
    calls: Calls = {
        "copy": lambda: other.copy_(gate_up),
        "swiglu_fp8": lambda: quantize.swiglu_fp8(gate_up, out=results),
        "swiglu_fp8 interleaved": lambda: quantize.swiglu_fp8(
            gate_up, limit=7.0, alpha=1.702, up_shift=1.0, layout="interleaved", row_scale=weights
        ),
        "swiglu_fp8 packed": lambda: quantize.swiglu_fp8(gate_up, scales="packed"),
        "geglu_fp8": lambda: quantize.geglu_fp8(gate_up),
        "swiglu_int8": lambda: quantize.swiglu_int8(gate_up),
        "torch swiglu_fp8": lambda: _torch_swiglu(gate_up),
    }
    if triton_quantize.works(gate_up.device):
        calls["triton swiglu_fp8"] = lambda: triton_quantize.swiglu(gate_up, *results)
    return calls


def _torch_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The formula in torch's operators, which utils leave to our kernels on a GPU."""
    groups = x.float().unflatten(1, (-1, 128))
    scales = groups.abs().amax(2, keepdim=True).clamp(min=1e-4) / 448.0
    return (groups / scales).to(torch.float8_e4m3fn).flatten(1), scales.squeeze(2)


def _torch_swiglu(gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gate, up = gate_up.float().chunk(2, 1)
    return _torch_fp8(torch.nn.functional.silu(gate) * up)


def bytes_moved(name: str, x: torch.Tensor) -> int:
    """What has to be read and written, scales left out but where they are for few values."""
    if name == "copy":
        return 2 * x.nbytes
    if name == "empty":
        return 0
    values = x.numel() // (2 if "glu" in name else 1)
    code_bytes = values // 2 if "fp4" in name else values
    group = 16 if name == "nvfp4" else 32 if "32" in name or name == "mxfp4" else 0 if "row" in name else 128
    return x.nbytes + code_bytes + (values // group * (1 if "packed" in name or "fp4" in name else 4) if group else 0)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def check(device: torch.device) -> None:
    """Before anything is timed."""
    x = torch.randn((129, K), device=device).bfloat16()
    for scales in ("fp32", "ue8m0", "packed"):
        got = [t.cpu() for t in quantize.fp8(x, scales=scales)]
        wanted = per_token_cast_to_fp8(x.cpu(), scales != "fp32", 128, scales == "packed")
        same = [torch.equal(_bytes(g), _bytes(w)) for g, w in zip(got, wanted, strict=True)]
        if not all(same):
            raise SystemExit(f"fp8 with scales='{scales}' is not what torch makes of the same numbers")
    for got_part, part in zip(quantize.int8(x), per_token_cast_to_int8(x.cpu()), strict=True):
        if not torch.equal(got_part.cpu(), part):
            raise SystemExit("int8 is not what torch makes of the same numbers")


def host_microseconds(call: Callable[[], object], times: int = 2000) -> float:
    """Of a warm call, while the device lags behind."""
    for _ in range(100):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    took = time.perf_counter() - begin
    torch.cuda.synchronize()
    return took / times * 1e6


def row_of(name: str, x: torch.Tensor, timing: Timing, copy: Timing) -> dict[str, object]:
    moved = bytes_moved(name, x)
    rate = moved / timing.median
    return {
        "shape": [*x.shape],
        "what": name,
        "us": timing.median * 1e6,
        "gb_per_s": rate * 1e-9,
        "of_copy": rate / (2 * x.nbytes / copy.median),
        "method": timing.method,
        "kernels": len(timing.kernels),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for quantize.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured")
        return 1
    device = torch.device("cuda")
    check(device)
    timer = Timer(device, 1 << 30, calls=15)
    rows = []
    for m in arguments.rows:
        plain, gated = torch.randn((m, K), device=device).bfloat16(), torch.randn((m, 2 * GATED_K), device=device)
        for x, calls in ((plain, plain_calls(plain)), (gated.bfloat16(), gated_calls(gated.bfloat16()))):
            for call in calls.values():
                call()
            timings = dict(zip(calls, timer.time(*calls.values()), strict=True))
            print(f"{m} x {x.shape[1]}")
            for name, timing in timings.items():
                row = row_of(name, x, timing, timings["copy"])
                rows.append(row)
                figures = f"{row['us']:8.2f} us {row['gb_per_s']:6.0f} GB/s  {row['of_copy']:5.2f} of a copy's rate"
                print(f"  {name:24s} {figures}", flush=True)
    x = torch.randn((16, K), device=device).bfloat16()
    out = quantize.fp8(x)
    host = {
        "fp8": host_microseconds(lambda: quantize.fp8(x)),
        "fp8 into given tensors": host_microseconds(lambda: quantize.fp8(x, out=out)),
        "two allocations": host_microseconds(lambda: (torch.empty_like(out[0]), torch.empty_like(out[1]))),
    }
    print("host:", ", ".join(f"{name} {us:.2f} us" for name, us in host.items()))
    if arguments.out:
        document = {"what": "bench_quantize", "machine": describe(arguments.commit), "rows": rows, "host_us": host}
        write_result(arguments.out / "quantize.json", document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
