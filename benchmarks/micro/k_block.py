"""What bounds a K block on one SM: cycles of k_block.cu with its parts left out one by one.

python benchmarks/micro/k_block.py --out results
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402
from machine import describe  # noqa: E402

from deep_gemm._extension import C  # noqa: E402

SMEM_BYTES = 232448
BLOCKS = 4000


@dataclass(frozen=True)
class Variant:
    cols: int = 128  # N of one wgmma
    warpgroups: int = 2
    row_tiles: int = 1  # m64 tiles of a warpgroup
    col_tiles: int = 1  # N tiles of a warpgroup
    promote: int = 1  # 0: not; 1: a scale a row; 2: row times column scale; 3: their products made while multiplying
    rows_in_registers: bool = False
    copy: int = 0  # 1: from regions of its own; 2: from regions shared as tiles of a GEMM share them
    cluster: int = 1  # CTAs that share the columns' operand
    multiply: bool = True

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
    constants = {
        "kCols": v.cols,
        "kWarpgroups": v.warpgroups,
        "kRowTiles": v.row_tiles,
        "kColTiles": v.col_tiles,
        "kPromote": v.promote,
        "kRowsInRegisters": int(v.rows_in_registers),
        "kCopy": v.copy,
        "kCluster": v.cluster,
        "kMultiply": int(v.multiply),
        "kBlocks": BLOCKS,
    }
    head = "".join(f"constexpr int {name} = {value};\n" for name, value in constants.items())
    return head + multiply_registers(v.cols) + (HERE / "k_block.cu").read_text()


def measure(v: Variant) -> dict:
    device = torch.device("cuda")
    num_sms = torch.cuda.get_device_properties(device).multi_processor_count
    values = torch.randn(64 << 20, device=device).mul_(64).to(torch.float8_e4m3fn).view(torch.uint8)
    cycles, ns = (torch.zeros(num_sms, dtype=torch.int64, device=device) for _ in range(2))
    sink = torch.zeros(1, device=device)
    threads = v.warpgroups * 128 + 128
    for _ in range(2):
        C.jit_launch(
            "k_block", source(v), num_sms, threads, v.cluster, SMEM_BYTES, False, [values, cycles, ns, sink], [1 << 26]
        )
        torch.cuda.synchronize()
    block = cycles.double().median().item() / BLOCKS
    return {
        **asdict(v),
        "cycles": block,
        "tensor_cycles": v.tensor_cycles,
        "smem_cycles": v.smem_bytes / 128,
        "clock_mhz": (cycles.double() / ns.double()).median().item() * 1e3,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="directory for k_block.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--compile-only", action="store_true", help="for sm_90a, without a GPU")
    arguments = parser.parse_args()
    rows = []
    for variant in VARIANTS:
        if arguments.compile_only:
            C.jit_compile("k_block", source(variant), "sm_90a", "cubin")
            continue
        row = measure(variant)
        rows.append(row)
        parts = [f"{variant.warpgroups} x {variant.row_tiles}x{variant.col_tiles} m64n{variant.cols}"]
        parts += [f"promote {variant.promote}"] if variant.promote else []
        parts += ["rows in registers"] if variant.rows_in_registers else []
        parts += [f"copies {variant.copy}"] if variant.copy else []
        parts += [f"cluster of {variant.cluster}"] if variant.cluster > 1 else []
        parts += [] if variant.multiply else ["no wgmma"]
        print(
            f"{', '.join(parts):60} {row['cycles']:7.0f} cycles {row['cycles'] / row['clock_mhz'] * 1e3:6.0f} ns   "
            f"tensor {row['tensor_cycles']:5}   smem {row['smem_cycles']:5.0f}   {row['clock_mhz']:5.0f} MHz",
            flush=True,
        )
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"what": "k_block", "machine": describe(arguments.commit), "rows": rows}, indent=1)
        (arguments.out / "k_block.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
