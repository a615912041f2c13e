"""Speed of the quantise kernels beside a plain copy, an empty kernel, torch's own formula and a Triton kernel.

python benchmarks/bench_quantize.py --out results
python benchmarks/bench_quantize.py --table results/quantize.json    # the tables of docs/quantize.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton_quantize
from machine import describe, read_result, write_result
from tables import number, table
from timing import Timer, Timing

import deep_gemm
from deep_gemm import quantize
from deep_gemm._extension import C
from deep_gemm.epilogue import GeGLU
from deep_gemm.utils import per_token_cast_to_fp8, per_token_cast_to_int8

ROWS = (4096, 1, 16, 64, 256)  # what matters most first: each is written when it is there
K, GATED_K = 7168, 2048
EMPTY = 'struct Params { void* data; };\nextern "C" __global__ void empty(const __grid_constant__ Params) {}\n'

Results = tuple[torch.Tensor, ...]
Calls = dict[str, Callable[[], Results]]  # what a call writes: its bytes are counted


def common_calls(x: torch.Tensor) -> Calls:
    """What every form stands beside."""

    def empty() -> Results:
        C.jit_launch("empty", EMPTY, 1, 32, 1, 0, True, [x], [])
        return ()

    other = torch.empty_like(x)
    return {"copy": lambda: (other.copy_(x),), "empty kernel": empty}


def plain_calls(x: torch.Tensor) -> Calls:
    m = x.shape[0]
    count, whole = torch.tensor([m], dtype=torch.int32, device=x.device), torch.ones((), device=x.device)
    half, single, psum = x.half(), x.float(), deep_gemm.Contiguous(count, psum=True)
    results = quantize.fp8(x)
    calls: Calls = {
        **common_calls(x),
        "fp8": lambda: quantize.fp8(x, out=results),
        "fp8, new tensors": lambda: quantize.fp8(x),
        "fp8, of FP16": lambda: quantize.fp8(half),
        "fp8, of FP32": lambda: quantize.fp8(single),
        "fp8, scales ue8m0": lambda: quantize.fp8(x, scales="ue8m0"),
        "fp8, scales packed": lambda: quantize.fp8(x, scales="packed"),
        "fp8, group 32, packed": lambda: quantize.fp8(x, group=32, scales="packed"),
        "fp8, psum": lambda: quantize.fp8(x, out=results, grouping=psum),
        "fp8, masked": lambda: quantize.fp8(x[None], grouping=deep_gemm.Masked(count, m)),
        "fp8, a scale for each row": lambda: quantize.fp8(x, group=None),
        "fp8_blocks": lambda: quantize.fp8_blocks(x),
        "int8": lambda: quantize.int8(x),
        "int8, zero points and sums": lambda: quantize.int8(x, symmetric=False, sums=True),
        "int8, group 128": lambda: quantize.int8(x, group=128),
        "mxfp4": lambda: quantize.mxfp4(x),
        "nvfp4, scale of all given": lambda: quantize.nvfp4(x, global_scale=whole)[:2],
        "torch: fp8": lambda: _torch_fp8(x),
    }
    if triton_quantize.works(x.device):
        calls["Triton: fp8"] = lambda: _written(results, triton_quantize.cast(x, *results))
    return calls


def gated_calls(gate_up: torch.Tensor) -> Calls:
    results = quantize.swiglu_fp8(gate_up)
    weights = torch.ones(gate_up.shape[0], device=gate_up.device)
    calls: Calls = {
        **common_calls(gate_up),
        "swiglu_fp8": lambda: quantize.swiglu_fp8(gate_up, out=results),
        "swiglu_fp8, packed": lambda: quantize.swiglu_fp8(gate_up, scales="packed"),
        "swiglu_fp8, interleaved, limit, alpha, shift, row scales": lambda: quantize.swiglu_fp8(
            gate_up, limit=7.0, alpha=1.702, up_shift=1.0, layout="interleaved", row_scale=weights
        ),
        "gated_fp8, GeGLU": lambda: quantize.gated_fp8(gate_up, GeGLU()),
        "swiglu_int8": lambda: quantize.swiglu_int8(gate_up),
        "gated_int8, GeGLU": lambda: quantize.gated_int8(gate_up, GeGLU()),
        "torch: swiglu_fp8": lambda: _torch_swiglu(gate_up),
    }
    if triton_quantize.works(gate_up.device):
        calls["Triton: swiglu_fp8"] = lambda: _written(results, triton_quantize.swiglu(gate_up, *results))
    return calls


def _written(results: Results, _: None) -> Results:
    return results


def _torch_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The formula in torch's operators, which utils leave to our kernels on a GPU."""
    groups = x.float().unflatten(1, (-1, 128))
    scales = groups.abs().amax(2, keepdim=True).clamp(min=1e-4) / 448.0
    return (groups / scales).to(torch.float8_e4m3fn).flatten(1), scales.squeeze(2)


def _torch_swiglu(gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gate, up = gate_up.float().chunk(2, 1)
    return _torch_fp8(torch.nn.functional.silu(gate) * up)


def bytes_moved(name: str, x: torch.Tensor, results: Results) -> int:
    """What has to be read and written."""
    item = 4 if "FP32" in name else x.element_size()
    return x.numel() * item + sum(tensor.nbytes for tensor in results) if results else 0


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


def measured(x: torch.Tensor, calls: Calls, timer: Timer) -> list[dict[str, object]]:
    moved = {name: bytes_moved(name, x, call()) for name, call in calls.items()}
    timings: dict[str, Timing] = dict(zip(calls, timer.time(*calls.values()), strict=True))
    copy_rate = moved["copy"] / timings["copy"].median
    rows: list[dict[str, object]] = []
    print(f"{x.shape[0]} x {x.shape[1]}")
    for name, timing in timings.items():
        us, rate = timing.median * 1e6, moved[name] / timing.median
        kernels = {"method": timing.method, "kernels": len(timing.kernels)}
        figures = {"us": us, "gb_per_s": rate * 1e-9, "of_copy": rate / copy_rate}
        rows.append({"shape": [*x.shape], "what": name, **figures, **kernels})
        beside = f"{rate * 1e-9:6.0f} GB/s  {rate / copy_rate:5.2f} of a copy's rate"
        print(f"  {name:56s} {us:8.2f} us {beside}", flush=True)
    return rows


def host_times(device: torch.device) -> dict[str, float]:
    x = torch.randn((16, K), device=device).bfloat16()
    out = quantize.fp8(x)
    return {
        "fp8": host_microseconds(lambda: quantize.fp8(x)),
        "fp8 into given tensors": host_microseconds(lambda: quantize.fp8(x, out=out)),
        "two allocations": host_microseconds(lambda: (torch.empty_like(out[0]), torch.empty_like(out[1]))),
    }


def tables(document: dict) -> str:
    """Of plain and of gated forms: microseconds by rows, and the rate at the most rows."""
    machine = document["machine"]
    line = f"{machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}, commit {machine['commit']}"
    parts = [f"{line}; GPU time in microseconds, cold L2."]
    for columns in dict.fromkeys(row["shape"][1] for row in document["rows"]):
        rows = [row for row in document["rows"] if row["shape"][1] == columns]
        counts = sorted({row["shape"][0] for row in rows})
        lines = []
        for name in dict.fromkeys(row["what"] for row in rows):
            by_count = {row["shape"][0]: row for row in rows if row["what"] == name}
            last = by_count[counts[-1]]
            rates = [number(last["gb_per_s"], 0), number(last["of_copy"], 2)] if last["gb_per_s"] else ["", ""]
            lines.append([name, *(number(by_count[m]["us"], 2) if m in by_count else "-" for m in counts), *rates])
        header = [f"{columns} columns, rows:", *counts, f"GB/s at {counts[-1]}", "of the copy's"]
        parts.append(table(header, lines))
    host = ", ".join(f"{name} {us:.1f}" for name, us in document["host_us"].items())
    return "\n\n".join([*parts, f"Host time of a warm call in microseconds: {host}."])


def measure(out: Path | None, commit: str | None, counts: list[int]) -> None:
    device = torch.device("cuda")
    check(device)
    timer = Timer(device, 1 << 30, calls=15)
    document = {"what": "bench_quantize", "machine": describe(commit), "rows": [], "host_us": {}}
    document["host_us"] = host_times(device)
    for m in counts:
        plain, gated = (torch.randn((m, columns), device=device).bfloat16() for columns in (K, 2 * GATED_K))
        for x, calls in ((plain, plain_calls(plain)), (gated, gated_calls(gated))):
            document["rows"] += measured(x, calls, timer)
        if out:  # whatever stops the rest
            write_result(out / "quantize.json", document)
    print("host:", ", ".join(f"{name} {us:.2f} us" for name, us in document["host_us"].items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for quantize.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--table", type=Path, help="print the tables of this result instead of measuring")
    arguments = parser.parse_args()
    if arguments.table:
        print(tables(read_result(arguments.table)))
        return 0
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured")
        return 1
    measure(arguments.out, arguments.commit, arguments.rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
