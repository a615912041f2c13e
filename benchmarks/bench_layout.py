"""Speed of the kernels that lay out scales and pack weights, beside a plain copy of the same bytes.

python benchmarks/bench_layout.py --out results
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from machine import describe, write_result
from timing import Timer

import deep_gemm
from deep_gemm._extension import C
from deep_gemm.utils import pack_int4
from deep_gemm.weights.formats import ELEMENT_NUMBERS

# [groups,] rows, scales along K: decode, prefill, weight gradients, experts; and one that fills the chip.
SHAPES = [(64, 56), (4096, 4), (4096, 16), (4096, 56), (4096, 128), (32768, 56), (32, 1024, 56), (1 << 20, 56)]
# Weights to pack: N, K.
WEIGHTS = [(4096, 7168), (7168, 2048), (7168, 16384), (8192, 8192)]


def packing(timer: Timer, n: int, k: int, device: torch.device) -> list[dict[str, object]]:
    """Codes a byte and two a byte into blocks of sign and magnitude, and a copy of as many bytes as these move."""
    values = torch.randint(-7, 8, (1, n, k), dtype=torch.int8, device=device)
    pairs = pack_int4(values)
    blocks = torch.empty((1, -(-n // 128) * 2, -(-k // 128), 4096), dtype=torch.uint8, device=device)
    found = torch.zeros(1, dtype=torch.int32, device=device)
    element = ELEMENT_NUMBERS["s4m"]
    other = torch.empty_like(pairs)
    calls = {
        "bytes": lambda: C.pack_codes(values, blocks, found, element, False, -8, False, False),
        "pairs": lambda: C.pack_codes(pairs, blocks, found, element, False, -8, False, True),
        "copy": lambda: other.copy_(pairs),
    }
    for call in calls.values():
        call()
    moved = {"bytes": values.nbytes + blocks.nbytes, "pairs": pairs.nbytes + blocks.nbytes, "copy": 2 * pairs.nbytes}
    return [
        {
            "shape": (n, k),
            "what": f"pack {name}",
            "us": timing.median * 1e6,
            "gb_per_s": moved[name] / timing.median * 1e-9,
            "method": timing.method,
        }
        for name, timing in zip(calls, timer.time(*calls.values()), strict=True)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for layout.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured")
        return 1
    device = torch.device("cuda")
    timer = Timer(device, 1 << 30, calls=10)
    rows = []
    for shape in SHAPES:
        scales = torch.exp2(torch.randint(-20, 20, shape, device=device).float())
        other = torch.empty_like(scales)
        columns = scales.transpose(-1, -2).contiguous().transpose(-1, -2)[..., :-1, :]  # MN-major, but not aligned
        calls = {
            "row-major": lambda x=scales: deep_gemm.get_mn_major_tma_aligned_tensor(x),
            "mn-major": lambda x=columns: deep_gemm.get_mn_major_tma_aligned_tensor(x),
            "packed": lambda x=scales: deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(x),
            "copy": lambda x=scales, y=other: y.copy_(x),
        }
        for call in calls.values():
            call()
        size = scales.numel() * 4
        moved = {"row-major": 2 * size, "mn-major": 2 * size, "packed": size + size // 4, "copy": 2 * size}
        line = f"{'x'.join(str(extent) for extent in shape):16s}"
        for name, timing in zip(calls, timer.time(*calls.values()), strict=True):
            rate = moved[name] / timing.median * 1e-9
            rows.append(
                {"shape": shape, "what": name, "us": timing.median * 1e6, "gb_per_s": rate, "method": timing.method}
            )
            line += f"  {name} {timing.median * 1e6:7.2f} us {rate:5.0f} GB/s"
        print(line, flush=True)
    for n, k in WEIGHTS:
        found = packing(timer, n, k, device)
        print(
            f"{n}x{k}:",
            *(f"{row['what']} {row['us']:7.2f} us {row['gb_per_s']:5.0f} GB/s " for row in found),
            flush=True,
        )
        rows += found
    if arguments.out:
        document = {"what": "bench_layout", "machine": describe(arguments.commit), "rows": rows}
        write_result(arguments.out / "layout.json", document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
