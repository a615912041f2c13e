"""Latency of a K block at decode: wait, read scales, multiply, wait, promote; by warpgroups and by what overlaps.

python benchmarks/micro/decode_chain.py --out results
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from harness import Bench, clocks, constants, kernel_file, num_sms, timed_launch


@dataclass(frozen=True)
class Variant:
    cols: int = 16  # tokens
    warpgroups: int = 1
    striped: bool = False  # warpgroups take K blocks in turn; else each has 64 rows of its own
    overlap: bool = False  # the next K block is multiplied while this one is promoted
    copy: bool = False  # stages come from the L2, by plain copies
    alone: bool = True  # one CTA; else one on every SM
    blocks: int = 1000  # of each warpgroup


def source(v: Variant) -> str:
    head = constants(kCols=v.cols, kWarpgroups=v.warpgroups, kStriped=v.striped, kOverlap=v.overlap, kCopy=v.copy)
    return head + kernel_file("decode_chain.cu")


def measure(v: Variant, device: torch.device) -> dict:
    grid = 1 if v.alone else num_sms(device)
    # Any byte but NaN: the sums must stay numbers, or the multiplier would be idle.
    data = torch.randint(0, 0x78, (16 << 20,), dtype=torch.uint8, device=device)
    cycles, begin, end = clocks(grid, device)
    sink = torch.zeros(1, device=device)
    tensors = [data, cycles, begin, end, sink]
    timed_launch("decode_chain", source(v), grid, v.warpgroups * 128 + 32, 1, tensors, [v.blocks])
    blocks = v.blocks * (v.warpgroups if v.striped else 1)
    rows = 64 if v.striped else 64 * v.warpgroups
    median = cycles.double().median().item()
    return {
        "rows": rows,
        "cycles": median / blocks,  # of one K block of the CTA's tile
        "cycles_per_64_rows": median / blocks / (rows / 64),
        "tensor_cycles": rows / 64 * 2 * v.cols,
        "clock_mhz": median / max(1, (end - begin).double().median().item()) * 1e3,
    }


def variants() -> list[Variant]:
    found = []
    for cols, overlap in itertools.product((8, 16, 32, 64), (False, True)):
        found.append(Variant(cols, overlap=overlap))
        found += [Variant(cols, w, striped, overlap) for w in (2, 4) for striped in (False, True)]
    found += [Variant(16, 3, striped=True), Variant(16, 3, striped=True, overlap=True)]
    for cols, overlap in itertools.product((16, 64), (False, True)):
        for w, striped in ((1, False), (2, False), (2, True), (4, True)):
            found.append(Variant(cols, w, striped, overlap, copy=True))
            found.append(Variant(cols, w, striped, overlap, copy=True, alone=False))
    # Four warpgroups leave a thread 120 registers: too few for two partial sums of n64.
    return [v for v in found if not (v.overlap and v.cols == 64 and v.warpgroups == 4)]


def show(row: dict) -> str:
    parts = [f"m64n{row['cols']} x {row['warpgroups']}"]
    parts += ["K blocks in turn"] if row["striped"] else []
    parts += ["overlapped"] if row["overlap"] else []
    parts += ["copies"] if row["copy"] else []
    parts += [] if row["alone"] else ["all SMs"]
    return (
        f"{', '.join(parts):58s} {row['cycles']:6.0f} cycles a K block of {row['rows']:3d} rows, "
        f"{row['cycles_per_64_rows']:5.0f} for 64; tensor {row['tensor_cycles']:4.0f}; {row['clock_mhz']:5.0f} MHz"
    )


def smaller(v: Variant) -> Variant:
    return replace(v, blocks=24, alone=True)


if __name__ == "__main__":
    bench = Bench("decode_chain", __doc__.splitlines()[0], variants(), source, measure, show, smaller)
    raise SystemExit(bench.main())
