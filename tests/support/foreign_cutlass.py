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
NOWHERE = 1 << 12
# CUtensorMapDataType to the simulator's types; CUTLASS copies 16-bit elements as integers.
MAP_TYPES = {0: 0, 1: 1, 3: 4, 6: 2, 7: 3, 9: 1, 11: 3, 13: 5, 14: 6, 15: 7}
DTYPES = {
    "cutlass::bfloat16_t": torch.bfloat16,
    "cutlass::half_t": torch.float16,
    "cutlass::float_e4m3_t": torch.float8_e4m3fn,
    "float": torch.float32,
}
E4M3, E2M1, E3M2 = (f"cutlass::float_{name}_t" for name in ("e4m3", "e2m1", "e3m2"))
# With block scales: how CUTLASS calls them, elements of 16 bytes or of what a copy that unpacks asks for, bits of
# exponent and fraction.
SCALED = {E4M3: ("mx_float8_t", 16, (4, 3)), E3M2: ("mx_float6_t", 128, (3, 2)), E2M1: ("mx_float4_t", 128, (2, 1))}
NVFP4, NVFP4_ALIGN, NVFP4_GROUP = "nv_float4_t", 32, 16
BF16 = "cutlass::bfloat16_t"
UE8M0, UE4M3 = "cutlass::float_ue8m0_t", "cutlass::float_ue4m3_t"
NORM = 2.0  # what a quantised D is multiplied by

SOURCE = """#include "{header}"
struct Traits {{
    using Arch = cutlass::arch::{arch};
    using Operator = cutlass::arch::{operator};
    using A = {a};
    using B = {b};
    using C = {c};
    using D = {d};
    using Fusion = {fusion};
    static constexpr int kAlignA = {align_a}, kAlignB = {align_b};
    using Tile = cute::Shape<{tile}>;
    using Cluster = cute::Shape<{cluster}>;
    using EpilogueSchedule = cutlass::epilogue::{epilogue};
    using Schedule = cutlass::gemm::{schedule};
    using Scheduler = {scheduler};
    static void change(auto& arguments) {{ {change} }}
{more}}};
int main(int count, char** given) {{ return {describe}<Traits>(count, given); }}
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
    element: str = BF16
    d: str = BF16
    c: str = ""  # if another than D's, or than BF16 where D is quantised
    d_scale: str = ""  # of a quantised D, of E2M1: its scale for 16 of N
    scaled: bool = False  # MX: a scale for 32 of K
    b: str = ""  # element of B, if another
    nvfp4: bool = False  # a scale of E4M3 for 16 of K
    problem: tuple[int, int, int] = (200, 264, 320)
    num_sms: int = 4
    change: str = ""  # of CUTLASS's arguments
    limit: float = 1e-5

    def stored(self, element: str) -> tuple[str, int]:
        """CUTLASS's type of an operand, and the elements that it must be aligned to."""
        if self.nvfp4:
            return f"cutlass::{NVFP4}<{element}>", NVFP4_ALIGN
        if self.scaled:
            return f"cutlass::{SCALED[element][0]}<{element}>", SCALED[element][1]
        return element, 16 // DTYPES[element].itemsize

    def fusion(self) -> tuple[str, str]:
        """C's element, and what is done with sums."""
        if not self.d_scale:
            return self.d, f"cutlass::epilogue::fusion::LinearCombination<{self.d}, float, {self.d}, float>"
        c = self.c or BF16
        to = f"{self.d}, float, {self.d_scale}, cutlass::layout::RowMajor, {c}"
        return c, f"cutlass::epilogue::fusion::LinCombBlockScaleFactor<{NVFP4_GROUP}, {to}>"

    def source(self, header: str = "foreign_cutlass.cuh", describe: str = "describe", more: str = "") -> str:
        c, fusion = self.fusion()
        (a, align_a), (b, align_b) = self.stored(self.element), self.stored(self.b or self.element)
        return SOURCE.format(
            header=header,
            describe=describe,
            more=more,
            arch=self.arch,
            operator="OpClassBlockScaledTensorOp" if self.scaled or self.nvfp4 else "OpClassTensorOp",
            a=a,
            b=b,
            c=c,
            d=self.d,
            fusion=fusion,
            align_a=align_a,
            align_b=align_b,
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
    """A tensor map that the program printed. Dimensions of one element have a stride of zero there; one that the kernel
    changes before it uses it has no address, and gets one that no tensor has."""
    kind, address, interleave, swizzle, *dimensions = line.split()
    sizes, strides, box, steps = zip(*(map(int, d.split(",")) for d in dimensions), strict=True)
    if int(interleave) or set(steps) != {1} or int(kind) not in MAP_TYPES or int(swizzle) > 3:
        raise RuntimeError(f"a tensor map that is not modelled: {line}")
    used = [stride or max(strides) for stride in strides[1:]]
    return bytes(C.simulator_tensor_map(int(address) or NOWHERE, MAP_TYPES[int(kind)], sizes, used, box, int(swizzle)))


def with_maps(params: bytes, maps: list[bytes]) -> bytes:
    out = bytearray(params)
    at = out.find(MARK)
    while at >= 0:
        out[at : at + MAP_BYTES] = maps[int.from_bytes(out[at + 16 : at + 24], "little")]
        at = out.find(MARK, at)
    return bytes(out)


def atoms_of(scales: torch.Tensor) -> torch.Tensor:
    """Atoms of 128 rows and 4 groups: row r at 16 (r % 32) + 4 (r / 32)."""
    height, groups = scales.shape
    return scales.view(height // 128, 4, 32, groups // 4, 4).permute(0, 3, 2, 1, 4).contiguous()


def padded(rows: int, groups: int) -> tuple[int, int]:
    return -(-rows // 128) * 128, -(-groups // 4) * 4


def small_values(form: tuple[int, int], codes: torch.Tensor) -> torch.Tensor:
    """Of elements of 4 and 6 bits."""
    exponent, fraction = form
    bias, low = 2 ** (exponent - 1) - 1, (codes % 2**fraction).double() / 2**fraction
    exponents = (codes >> fraction) % 2**exponent
    normal, subnormal = (1 + low) * torch.exp2(exponents.double() - bias), low * 2.0 ** (1 - bias)
    return torch.where(exponents > 0, normal, subnormal) * torch.where(codes >> (exponent + fraction) > 0, -1, 1)


def random_elements(gemm: Gemm, element: str, rows: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """As they are stored, and their values in FP64."""
    k = gemm.problem[2]
    if element in (E3M2, E2M1):
        form = SCALED[element][2]
        bits = 1 + sum(form)
        codes = torch.randint(0, 2**bits, (rows, k), generator=generator)
        stream = (codes.unsqueeze(-1) >> torch.arange(bits)) % 2  # of a row, the lowest bit first
        return (stream.view(rows, -1, 8) << torch.arange(8)).sum(-1).to(torch.uint8), small_values(form, codes)
    stored = torch.randn(rows, k, generator=generator)
    if element == "float":
        stored = (stored.view(torch.int32) & ~0x1FFF).view(torch.float32)  # TF32
    stored = stored.to(DTYPES[element])
    return stored, stored.double()


def random_operand(gemm: Gemm, element: str, rows: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """As it is stored, its scales as they are stored, and its values in FP64."""
    stored, values = random_elements(gemm, element, rows, generator)
    if not (gemm.scaled or gemm.nvfp4):
        return stored, torch.zeros(1), values
    group = NVFP4_GROUP if gemm.nvfp4 else 32
    shape = padded(rows, gemm.problem[2] // group)
    if gemm.nvfp4:
        scales = (torch.rand(shape, generator=generator) + 0.5).to(torch.float8_e4m3fn)
        factors, scales = scales.double(), scales.view(torch.uint8)
    else:
        scales = torch.randint(123, 130, shape, dtype=torch.uint8, generator=generator)
        factors = torch.exp2(scales.double() - 127)
    spread = factors[:rows, : gemm.problem[2] // group].repeat_interleave(group, 1)
    return stored, atoms_of(scales), values * spread


def e8m0_above(x: torch.Tensor) -> torch.Tensor:
    return torch.exp2(x.log2().ceil())


def quantised(gemm: Gemm, sums: torch.Tensor) -> torch.Tensor:
    """What E2M1 and its scales keep of sums: a scale is the group's maximum by that of E2M1, ties go to even."""
    groups = sums.view(sums.shape[0], -1, NVFP4_GROUP)
    scales = groups.abs().amax(-1, keepdim=True) * NORM / 6
    scales = e8m0_above(scales) if gemm.d_scale == UE8M0 else scales.to(torch.float8_e4m3fn).double()
    scaled = (groups * NORM / scales).clamp(-6, 6)
    steps = torch.exp2(scaled.abs().clamp(min=1).log2().floor() - 1)
    return ((scaled / steps).round() * steps * scales).view(sums.shape)


def dequantised(gemm: Gemm, d: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Times NORM, as `quantised` has them."""
    (m, n, _), (rows, groups) = gemm.problem, padded(gemm.problem[0], gemm.problem[1] // NVFP4_GROUP)
    codes = torch.stack([d & 15, d >> 4], -1).view(m, n).long()
    as_rows = scales.view(rows // 128, groups // 4, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(rows, groups)
    is_e8m0 = gemm.d_scale == UE8M0
    factors = torch.exp2(as_rows.double() - 127) if is_e8m0 else as_rows.view(torch.float8_e4m3fn).double()
    return small_values(SCALED[E2M1][2], codes) * factors[:m, : n // NVFP4_GROUP].repeat_interleave(NVFP4_GROUP, 1)


def described(compiled: Compiled, arguments: list[int]) -> tuple[dict[str, str], list[bytes]]:
    """What the program prints, by key; and the tensor maps."""
    done = subprocess.run(
        [str(compiled.program), *map(str, arguments)], capture_output=True, text=True, check=False, cwd="/"
    )
    if done.returncode:
        raise RuntimeError(done.stderr or f"the program that prints parameters ended with {done.returncode}")
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    maps = [encoded(rest) for key, rest in lines if key == "map"]
    return {key: rest for key, rest in lines if key != "map"}, maps


def launch(gemm: Gemm, compiled: Compiled) -> Launch:
    m, n, _ = gemm.problem
    generator = torch.Generator().manual_seed(3)
    a, scales_a, a_values = random_operand(gemm, gemm.element, m, generator)
    b, scales_b, b_values = random_operand(gemm, gemm.b or gemm.element, n, generator)
    d = torch.empty(m, n // 2, dtype=torch.uint8) if gemm.d_scale else torch.empty(m, n, dtype=DTYPES[gemm.d])
    d_scales = torch.empty(math.prod(padded(m, n // NVFP4_GROUP)), dtype=torch.uint8)
    norm = torch.tensor([NORM])
    workspace = torch.zeros(4 << 20, dtype=torch.uint8)
    tensors = [a, b, d, workspace, scales_a, scales_b, d_scales, norm]
    arguments = [*gemm.problem, gemm.num_sms, *(t.data_ptr() for t in tensors)]
    facts, maps = described(compiled, arguments)
    assert int(facts["workspace"]) <= workspace.numel(), facts["workspace"]
    grid, block, cluster = (tuple(map(int, facts[key].split())) for key in ("grid", "block", "cluster"))
    wanted = a_values @ b_values.T

    def apart() -> float:
        if gemm.d_scale:
            return difference(dequantised(gemm, d, d_scales), quantised(gemm, wanted))
        return difference(d, wanted)

    return Launch(
        params=with_maps(bytes.fromhex(facts["params"]), maps),
        outputs=[d, d_scales, workspace],
        zeros=[workspace],
        inputs=[a, b, scales_a, scales_b, norm],
        difference=apart,
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
GEFORCE = ("120a", "Sm120", (128, 128, 128), (1, 1, 1))  # CUTLASS's example 79
TO_FP4 = {"element": E2M1, "nvfp4": True, "d": E2M1, "problem": (200, 288, 320)}
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
    Gemm("MXFP8, mma.sync", *GEFORCE, element=E4M3, scaled=True),
    Gemm("MXFP8 x MXFP6, mma.sync", *GEFORCE, element=E4M3, b=E3M2, scaled=True, problem=(200, 264, 384)),
    Gemm("MXFP8 x MXFP4, mma.sync", *GEFORCE, element=E4M3, b=E2M1, scaled=True, problem=(200, 264, 384)),
    Gemm("NVFP4, mma.sync", *GEFORCE, element=E2M1, nvfp4=True),
    Gemm("NVFP4 to FP4 by E8M0, ping-pong, mma.sync", *GEFORCE, PINGPONG, d_scale=UE8M0, **TO_FP4),
    Gemm("NVFP4 to FP4 by E4M3, mma.sync", *GEFORCE, d_scale=UE4M3, **TO_FP4),
]
KERNELS = [gemm.kernel() for gemm in GEMMS]
