"""Speed of the scale-layout kernels, beside a plain copy of the same bytes.

python benchmarks/bench_layout.py --out results
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from machine import describe, write_result
from timing import Timer

import deep_gemm

# [groups,] rows, scales along K: decode, prefill, weight gradients, experts; and one that fills the chip.
SHAPES = [(64, 56), (4096, 4), (4096, 16), (4096, 56), (4096, 128), (32768, 56), (32, 1024, 56), (1 << 20, 56)]


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
    if arguments.out:
        document = {"what": "bench_layout", "machine": describe(arguments.commit), "rows": rows}
        write_result(arguments.out / "layout.json", document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
