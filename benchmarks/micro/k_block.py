"""What bounds a K block on one SM: cycles of k_block.cu with its parts left out one by one.

python benchmarks/micro/k_block.py --out results
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from harness import Bench, constants, kernel_file, num_sms, timed_launch

BLOCKS = 4000


@dataclass(frozen=True)
class Variant:
    cols: int = 128  # N of one wgmma
    warpgroups: int = 2
    row_tiles: int = 1  # m64 tiles of a warpgroup
    col_tiles: int = 1  # N tiles of a warpgroup
    promote: int = 1  # 0: not; 1: a scale a row; 2: row x column; 3: products, 4: columns' scales into registers ahead,
    # 5: products by one TF32 wgmma
    rows_in_registers: bool = False
    copy: int = 0  # 1: from regions of its own; 2: from regions shared as tiles of a GEMM share them
    cluster: int = 1  # CTAs that share the columns' operand
    multiply: bool = True
    blocks: int = BLOCKS

    @property
    def tensor_cycles(self) -> int:
        return self.warpgroups * self.row_tiles * self.col_tiles * self.cols * 2

    @property
    def smem_bytes(self) -> int:
        """Read by wgmma (or ldmatrix), and written by copies, for one K block."""
        tiles = self.row_tiles * self.col_tiles
        rows_read = 64 * 128 * (self.row_tiles if self.rows_in_registers else tiles)
        read = self.warpgroups * (rows_read + tiles * self.cols * 128)
        written = (64 * self.warpgroups * self.row_tiles + self.cols * self.col_tiles) * 128
        return read * self.multiply + written * (self.copy > 0)


def multiply_registers(cols: int) -> str:
    """wgmma whose m64 operand comes from registers."""
    count = cols // 2
    d = ", ".join(f"%{i}" for i in range(count))
    a = ", ".join(f"%{count + i}" for i in range(4))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
    return f"""
__device__ __forceinline__ void multiply_registers(float* d, const unsigned* a, unsigned long cols, int accumulate) {{
    asm volatile("{{\\n .reg .pred p;\\n setp.ne.b32 p, %{count + 5}, 0;\\n"
        " wgmma.mma_async.sync.aligned.m64n{cols}k32.f32.e4m3.e4m3 {{{d}}}, {{{a}}}, %{count + 4}, p, 1, 1;\\n}}\\n"
        : {outputs} : {inputs}, "l"(cols), "r"(accumulate));
}}
"""


def source(v: Variant) -> str:
    head = constants(
        kCols=v.cols,
        kWarpgroups=v.warpgroups,
        kRowTiles=v.row_tiles,
        kColTiles=v.col_tiles,
        kPromote=v.promote,
        kRowsInRegisters=v.rows_in_registers,
        kCopy=v.copy,
        kCluster=v.cluster,
        kMultiply=v.multiply,
        kBlocks=v.blocks,
    )
    return head + multiply_registers(v.cols) + kernel_file("k_block.cu")


def measure(v: Variant, device: torch.device) -> dict:
    grid = num_sms(device) if device.type == "cuda" else v.cluster
    size = 64 << 20 if device.type == "cuda" else 2 << 20  # half for each operand
    values = torch.randn(size, device=device).mul_(64).to(torch.float8_e4m3fn).view(torch.uint8)
    cycles, ns = (torch.zeros(grid, dtype=torch.int64, device=device) for _ in range(2))
    tensors = [values, cycles, ns, torch.zeros(1, device=device)]
    timed_launch("k_block", source(v), grid, v.warpgroups * 128 + 128, v.cluster, tensors, [size])
    return {
        "cycles": cycles.double().median().item() / v.blocks,
        "tensor_cycles": v.tensor_cycles,
        "smem_cycles": v.smem_bytes / 128,
        "clock_mhz": (cycles.double() / ns.double().clamp(min=1)).median().item() * 1e3,
    }


VARIANTS = [
    *(Variant(cols=n, warpgroups=w, promote=0) for w in (1, 2) for n in (64, 128, 192, 256)),
    *(Variant(cols=n, warpgroups=w) for w in (1, 2, 3) for n in (64, 128)),
    Variant(cols=192),
    Variant(multiply=False),
    Variant(promote=2, multiply=False),
    Variant(promote=2, warpgroups=1),
    Variant(promote=2),
    Variant(promote=2, warpgroups=3),
    Variant(promote=2, warpgroups=3, copy=2),
    Variant(warpgroups=3, copy=2),
    Variant(warpgroups=3, copy=1),
    Variant(promote=3, warpgroups=1),
    Variant(promote=3),
    Variant(promote=3, copy=2),
    Variant(promote=2, cols=192),
    Variant(promote=2, row_tiles=2),
    Variant(promote=4, warpgroups=1),
    Variant(promote=4),
    Variant(promote=4, copy=2),
    Variant(promote=2, copy=2),
    Variant(promote=5),
    Variant(promote=5, copy=2),
    Variant(promote=4, cols=96, warpgroups=3),
    Variant(promote=2, cols=96, warpgroups=3),
    Variant(row_tiles=2, copy=1),
    Variant(row_tiles=2, copy=2, cluster=2),
    Variant(row_tiles=2, copy=1, cluster=2),
    Variant(cols=192, copy=2, cluster=2),
    Variant(copy=2, cluster=2),
    Variant(row_tiles=2, copy=1, multiply=False),
    Variant(row_tiles=2, copy=2, cluster=2, multiply=False),
    Variant(copy=2, multiply=False),
    Variant(row_tiles=2, promote=0),
    Variant(row_tiles=2, promote=0, copy=2),
    Variant(row_tiles=2),
    Variant(row_tiles=2, copy=2),
    Variant(copy=2),
    Variant(cols=192, copy=2),
    Variant(col_tiles=2),
    Variant(col_tiles=2, rows_in_registers=True),
    Variant(rows_in_registers=True, promote=0),
    Variant(row_tiles=2, copy=2, multiply=False, promote=0),
    Variant(row_tiles=2, copy=2, multiply=False),
]


def show(row: dict) -> str:
    parts = [f"{row['warpgroups']} x {row['row_tiles']}x{row['col_tiles']} m64n{row['cols']}"]
    parts += [f"promote {row['promote']}"] if row["promote"] else []
    parts += ["rows in registers"] if row["rows_in_registers"] else []
    parts += [f"copies {row['copy']}"] if row["copy"] else []
    parts += [f"cluster of {row['cluster']}"] if row["cluster"] > 1 else []
    parts += [] if row["multiply"] else ["no wgmma"]
    nanoseconds = row["cycles"] / max(row["clock_mhz"], 1) * 1e3
    return (
        f"{', '.join(parts):60} {row['cycles']:7.0f} cycles {nanoseconds:6.0f} ns   tensor {row['tensor_cycles']:5}   "
        f"smem {row['smem_cycles']:5.0f}   {row['clock_mhz']:5.0f} MHz"
    )


if __name__ == "__main__":
    about = __doc__.splitlines()[0]
    bench = Bench("k_block", about, VARIANTS, source, measure, show, lambda v: replace(v, blocks=9))
    raise SystemExit(bench.main())
