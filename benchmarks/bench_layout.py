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
from deep_gemm.weights.packings import ELEMENT_NUMBERS, packing_of

# [groups,] rows, scales along K: decode, prefill, weight gradients, experts; and one that fills the chip.
SHAPES = [(64, 56), (4096, 4), (4096, 16), (4096, 56), (4096, 128), (32768, 56), (32, 1024, 56), (1 << 20, 56)]
# Weights to pack: N, K.
WEIGHTS = [(4096, 7168), (7168, 2048), (7168, 16384), (8192, 8192)]


# Weights, activations, and the order in which kernels want the codes.
ORDERS = [
    ("int4", "fp8", "s4m"),
    ("int4", "fp8", "s4"),
    ("uint4", "fp8", "u4"),
    ("e2m1", "fp8", "e2m1"),
    ("e2m1", "fp8", "e2m1x"),
    ("int4", "bf16", "s4b"),
    ("e2m1", "bf16", "e2m1"),
    ("e4m3", "bf16", "e4m3p"),
]


def packing(timer: Timer, n: int, k: int, device: torch.device) -> list[dict[str, object]]:
    """Codes a byte and two a byte into blocks of each order, and a copy of as many bytes as those of two move."""
    found = torch.zeros(1, dtype=torch.int32, device=device)
    calls, moved = {}, {}
    for element, activations, order in ORDERS:
        form = packing_of(element, activations)
        codes = torch.randint(form.smallest, form.largest + 1, (1, n, k), dtype=torch.int16, device=device)
        if element == "e4m3":
            codes = torch.randn((1, n, k), device=device).to(torch.float8_e4m3fn)
        else:
            codes = codes.clamp(min=form.smallest + (order == "s4m")).to(torch.int8)
        given = {"bytes": codes} if element == "e4m3" else {"bytes": codes, "pairs": pack_int4((codes & 15 ^ 8) - 8)}
        blocks = torch.empty((1, -(-n // 128) * 2, -(-k // 128), form.block_bytes), dtype=torch.uint8, device=device)
        how = (ELEMENT_NUMBERS[order], form.places is not None, form.smallest, form.offset != 0)
        for name, values in given.items():
            what = f"{order} for {activations}, {name}"
            calls[what] = lambda v=values, b=blocks, how=how, two=name == "pairs": C.pack_codes(v, b, found, *how, two)
            moved[what] = values.nbytes + blocks.nbytes
    pairs = torch.zeros((n, k // 2), dtype=torch.uint8, device=device)
    other = torch.empty_like(pairs)
    calls["copy"], moved["copy"] = (lambda: other.copy_(pairs)), 2 * pairs.nbytes
    for call in calls.values():
        call()
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
