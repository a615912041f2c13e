"""GEMM kernels of CUTLASS for foreign_kernels.py, each built by its collectives' builders (foreign_cutlass.cuh)."""

from __future__ import annotations

import math
import subprocess
from dataclasses import dataclass
from functools import partial

import torch
from foreign_launch import Compiled, Kernel, Launch, difference

from deep_gemm._extension import C

MARK = (0x666F7265696D6170).to_bytes(8, "little")
MAP_BYTES = 128
# CUtensorMapDataType to the simulator's types; CUTLASS copies 16-bit elements as integers.
MAP_TYPES = {0: 0, 1: 1, 3: 4, 6: 2, 7: 3, 9: 1, 11: 3, 13: 5, 14: 6, 15: 7}
DTYPES = {
    "cutlass::bfloat16_t": torch.bfloat16,
    "cutlass::half_t": torch.float16,
    "cutlass::float_e4m3_t": torch.float8_e4m3fn,
    "float": torch.float32,
}

SOURCE = """#include "foreign_cutlass.cuh"
struct Traits {{
    using Arch = cutlass::arch::{arch};
    using Operator = cutlass::arch::{operator};
    using A = {a};
    using B = {b};
    using D = {d};
    static constexpr int kAlignA = {align}, kAlignB = {align};
    using Tile = cute::Shape<{tile}>;
    using Cluster = cute::Shape<{cluster}>;
    using EpilogueSchedule = cutlass::epilogue::{epilogue};
    using Schedule = cutlass::gemm::{schedule};
    using Scheduler = {scheduler};
    static void change(auto& arguments) {{ {change} }}
}};
int main(int count, char** given) {{ return describe<Traits>(count, given); }}
"""


@dataclass(frozen=True)
class Gemm:
    name: str
    target: str
    arch: str
    tile: tuple[int, int, int]
    cluster: tuple[int, int, int]
    schedule: str = "collective::KernelScheduleAuto"
    epilogue: str = "collective::EpilogueScheduleAuto"
    scheduler: str = "cutlass::gemm::PersistentScheduler"
    element: str = "cutlass::bfloat16_t"
    d: str = "cutlass::bfloat16_t"
    scaled: bool = False  # MX: a scale for 32 of K
    problem: tuple[int, int, int] = (200, 264, 320)
    num_sms: int = 4
    change: str = ""  # of CUTLASS's arguments
    limit: float = 1e-5

    def source(self) -> str:
        stored = f"cutlass::mx_float8_t<{self.element}>" if self.scaled else self.element
        return SOURCE.format(
            arch=self.arch,
            operator="OpClassBlockScaledTensorOp" if self.scaled else "OpClassTensorOp",
            a=stored,
            b=stored,
            d=self.d,
            align=16 // DTYPES[self.element].itemsize,
            tile=", ".join(f"cute::_{x}" for x in self.tile),
            cluster=", ".join(f"cute::_{x}" for x in self.cluster),
            epilogue=self.epilogue,
            schedule=self.schedule,
            scheduler=self.scheduler,
            change=self.change,
        )

    def kernel(self) -> Kernel:
        return Kernel(self.name, "cutlass", self.target, self.source(), partial(launch, self))


def encoded(line: str) -> bytes:
    """A tensor map that the program printed. Dimensions of one element have a stride of zero there."""
    kind, address, interleave, swizzle, *dimensions = line.split()
    sizes, strides, box, steps = zip(*(map(int, d.split(",")) for d in dimensions), strict=True)
    if int(interleave) or set(steps) != {1} or int(kind) not in MAP_TYPES or int(swizzle) > 3:
        raise RuntimeError(f"a tensor map that is not modelled: {line}")
    used = [stride or max(strides) for stride in strides[1:]]
    return bytes(C.simulator_tensor_map(int(address), MAP_TYPES[int(kind)], sizes, used, box, int(swizzle)))


def with_maps(params: bytes, maps: list[bytes]) -> bytes:
    out = bytearray(params)
    at = out.find(MARK)
    while at >= 0:
        out[at : at + MAP_BYTES] = maps[int.from_bytes(out[at + 16 : at + 24], "little")]
        at = out.find(MARK, at)
    return bytes(out)


def random_operand(gemm: Gemm, rows: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """As it is stored, its scales as they are stored, and its values in FP64."""
    k = gemm.problem[2]
    stored = torch.randn(rows, k, generator=generator)
    if gemm.element == "float":
        stored = (stored.view(torch.int32) & ~0x1FFF).view(torch.float32)  # TF32
    stored = stored.to(DTYPES[gemm.element])
    if not gemm.scaled:
        return stored, torch.zeros(1), stored.double()
    height, groups = -(-rows // 128) * 128, -(-k // 128) * 4
    exponents = torch.randint(123, 130, (height, groups), dtype=torch.uint8, generator=generator)
    values = stored.double() * torch.exp2(exponents[:rows, : k // 32].double() - 127).repeat_interleave(32, 1)
    # Atoms of 128 rows and 4 groups: row r at 16 (r % 32) + 4 (r / 32).
    atoms = exponents.view(height // 128, 4, 32, groups // 4, 4).permute(0, 3, 2, 1, 4).contiguous()
    return stored, atoms, values


def launch(gemm: Gemm, compiled: Compiled) -> Launch:
    m, n, _ = gemm.problem
    generator = torch.Generator().manual_seed(3)
    a, scales_a, a_values = random_operand(gemm, m, generator)
    b, scales_b, b_values = random_operand(gemm, n, generator)
    d = torch.empty(m, n, dtype=DTYPES[gemm.d])
    workspace = torch.zeros(4 << 20, dtype=torch.uint8)
    tensors = [a, b, d, workspace, scales_a, scales_b]
    arguments = [*gemm.problem, gemm.num_sms, *(t.data_ptr() for t in tensors)]
    done = subprocess.run(
        [str(compiled.program), *map(str, arguments)], capture_output=True, text=True, check=False, cwd="/"
    )
    if done.returncode:
        raise RuntimeError(done.stderr or f"the program that prints parameters ended with {done.returncode}")
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    maps = [encoded(rest) for key, rest in lines if key == "map"]
    facts = {key: rest for key, rest in lines if key != "map"}
    assert int(facts["workspace"]) <= workspace.numel(), facts["workspace"]
    grid, block, cluster = (tuple(map(int, facts[key].split())) for key in ("grid", "block", "cluster"))
    wanted = a_values @ b_values.T
    return Launch(
        params=with_maps(bytes.fromhex(facts["params"]), maps),
        outputs=[d, workspace],
        zeros=[workspace],
        inputs=[a, b, scales_a, scales_b],
        difference=lambda: difference(d, wanted),
        limit=gemm.limit,
        grid=grid,
        block=(math.prod(block),),
        cluster=cluster,
        smem_bytes=int(facts["smem"]),
    )


PINGPONG, COOPERATIVE = "KernelTmaWarpSpecializedPingpong", "KernelTmaWarpSpecializedCooperative"
STREAM_K = "cutlass::gemm::StreamKScheduler"
SPLIT_EVENLY = (
    "using Mode = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamKParams::DecompositionMode; "
    "arguments.scheduler.decomposition_mode = Mode::StreamK;"
)
E4M3 = "cutlass::float_e4m3_t"
GEMMS = [
    Gemm(
        "ping-pong, BF16, clusters of 2",
        "90a",
        "Sm90",
        (64, 128, 64),
        (2, 1, 1),
        PINGPONG,
        "TmaWarpSpecialized",
    ),
    Gemm("ping-pong, FP8", "90a", "Sm90", (64, 128, 128), (1, 1, 1), PINGPONG, "TmaWarpSpecialized", element=E4M3),
    Gemm(
        "stream-K, TF32",
        "90a",
        "Sm90",
        (128, 128, 32),
        (1, 1, 1),
        COOPERATIVE,
        "TmaWarpSpecializedCooperative",
        STREAM_K,
        "float",
        "float",
        num_sms=3,
        problem=(200, 136, 1024),
        change=SPLIT_EVENLY,
    ),
    Gemm(
        "BF16, CTA pairs, static tiles",
        "100a",
        "Sm100",
        (256, 128, 64),
        (2, 1, 1),
        scheduler="cutlass::gemm::StaticPersistentScheduler",
    ),
    Gemm("MXFP8, CTA pairs, tiles by CLC", "100a", "Sm100", (256, 128, 128), (2, 1, 1), element=E4M3, scaled=True),
    Gemm(
        "MXFP8, one CTA, static tiles",
        "100a",
        "Sm100",
        (128, 128, 128),
        (1, 1, 1),
        scheduler="cutlass::gemm::StaticPersistentScheduler",
        element=E4M3,
        scaled=True,
    ),
    Gemm("MXFP8, mma.sync", "120a", "Sm120", (128, 128, 128), (1, 1, 1), element=E4M3, scaled=True),
]
KERNELS = [gemm.kernel() for gemm in GEMMS]
