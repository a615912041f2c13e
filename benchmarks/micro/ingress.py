"""How fast copies bring operands into SMs: by size of a box, boxes under way, and CTAs that share them.

python benchmarks/micro/ingress.py --out results
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch
from harness import Bench, clocks, constants, kernel_file, num_sms, timed_launch
from tensor_maps import matrix_map


@dataclass(frozen=True)
class Variant:
    box_bytes: int = 16384  # of a cluster: what arrives in each of its CTAs
    slots: int = 8  # boxes under way
    tensor: bool = True  # through a tensor map, 128 bytes a row; else plain bulk copies
    cluster: int = 1  # CTAs that copy a part of each box for all of them
    sharers: int = 1  # clusters that read the same data: neighbours, whose SMs lie in one GPC,
    apart: bool = False  # or clusters far from one another
    alone: bool = False  # one cluster; else as many as there are SMs for
    from_memory: bool = False  # each byte once; else from the L2
    cta_bytes: int = 4 << 20


def source(v: Variant) -> str:
    head = constants(kBoxBytes=v.box_bytes, kSlots=v.slots, kCluster=v.cluster, kTensor=v.tensor)
    return head + kernel_file("ingress.cu")


@functools.cache
def buffer(size: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device).random_()


def measure(v: Variant, device: torch.device) -> dict:
    sms = num_sms(device)
    grid = v.cluster if v.alone else (sms if v.cluster <= 2 else sms * 10 // 11) // v.cluster * v.cluster
    regions = -(-(grid // v.cluster) // v.sharers)
    boxes = v.cta_bytes // v.box_bytes
    # From the L2 each cluster goes round 128 KB: all of them are 17 MB. From memory as weights of K = 7168 lie.
    boxes_per_line = min(boxes, 56 if v.from_memory else (1 << 17) // v.box_bytes)
    lines = -(-boxes // boxes_per_line) if v.from_memory else 1
    row_bytes, box_rows = boxes_per_line * 128, v.box_bytes // 128
    size = regions * lines * boxes_per_line * v.box_bytes
    data = buffer(1200 << 20 if device.type == "cuda" else 1 << 20, device)
    assert size <= data.numel(), (v, size)
    encoded = matrix_map(data, regions * lines * box_rows, row_bytes, box_rows // v.cluster)
    cycles, begin, end = clocks(grid, device)
    numbers = [boxes, -v.sharers if v.apart else v.sharers, boxes_per_line, lines, *encoded]
    timed_launch("ingress", source(v), grid, 64, v.cluster, [data, cycles, begin, end], numbers)
    moved = boxes * v.box_bytes  # into each CTA
    seconds = max(1, (end.max() - begin.min()).item()) * 1e-9
    median = cycles.double().median().item()
    return {
        "ctas": grid,
        "in_flight_bytes": v.box_bytes * v.slots,
        "bytes_per_cycle": moved / max(1.0, median),
        "gb_per_s": moved * grid / v.cluster * 1e-9 / seconds,  # read: what is multicast counts once
        "us": seconds * 1e6,
    }


def variants() -> list[Variant]:
    found = []
    for alone in (True, False):
        for slots in (1, 2, 4, 8, 12):
            found.append(Variant(16384, slots, alone=alone))
        for slots in (4, 12, 24):
            found.append(Variant(8192, slots, alone=alone))
        found += [Variant(32768, 3, alone=alone), Variant(32768, 6, alone=alone), Variant(2048, 96, alone=alone)]
        found += [Variant(16384, 8, tensor=False, alone=alone), Variant(32768, 6, tensor=False, alone=alone)]
        found += [Variant(1024, 192, tensor=False, alone=alone)]
        for cluster in (2, 4):
            found += [Variant(16384, 8, cluster=cluster, alone=alone), Variant(32768, 6, cluster=cluster, alone=alone)]
    # As a GEMM shares: eight or sixteen tiles read the same operand.
    found += [Variant(16384, 8, sharers=8), Variant(32768, 6, sharers=8), Variant(16384, 8, sharers=16)]
    found += [Variant(16384, 8, sharers=8, cluster=2), Variant(32768, 6, sharers=8, cluster=2)]
    found += [Variant(16384, 8, sharers=n, apart=apart) for n in (2, 4, 12, 66) for apart in (False, True)]
    # From memory: how many bytes must be under way to get all of its rate.
    for slots in (1, 2, 3, 4, 6, 8, 12):
        found.append(Variant(16384, slots, from_memory=True, cta_bytes=8 << 20))
    found += [Variant(8192, slots, from_memory=True) for slots in (4, 8, 24)]
    found += [Variant(16384, 8, tensor=False, from_memory=True, cta_bytes=8 << 20)]
    found += [Variant(16384, 8, cluster=2, from_memory=True, cta_bytes=8 << 20)]
    return found


def show(row: dict) -> str:
    kind = "tensor" if row["tensor"] else "bulk"
    parts = [f"{row['box_bytes']:6d} B x {row['slots']:3d} {kind:6s} {row['ctas']:3d} CTAs"]
    parts += [f"multicast {row['cluster']}"] if row["cluster"] > 1 else []
    parts += [f"shared by {row['sharers']}{' apart' if row['apart'] else ''}"] if row["sharers"] > 1 else []
    parts += ["from memory"] if row["from_memory"] else []
    return f"{', '.join(parts):64s} {row['bytes_per_cycle']:6.1f} B/cycle an SM {row['gb_per_s']:7.0f} GB/s"


def smaller(v: Variant) -> Variant:
    return replace(v, cta_bytes=3 * v.box_bytes * v.slots, alone=True)


if __name__ == "__main__":
    bench = Bench("ingress", __doc__.splitlines()[0], variants(), source, measure, show, smaller)
    raise SystemExit(bench.main())
