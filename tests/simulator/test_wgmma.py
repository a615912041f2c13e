"""wgmma against a product in FP64: element types, majors, swizzles, A from registers, accumulator types."""

# ruff: noqa: E501  (PTX stands in the tables as it is, one case a line)

from __future__ import annotations

import itertools
import re
import struct
from functools import partial

import pytest
import torch
from ptx_tools import HEADER, SCHEDULES, evaluate

from deep_gemm import simulator

M = 64
TYPES = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "tf32": torch.float32,
    "s8": torch.int8,
    "u8": torch.uint8,
}
SWIZZLE_FIELD = {0: 0, 128: 1, 64: 2, 32: 3}


def swizzled(offset: int, span: int) -> int:
    return offset ^ ((offset >> 7) & (span // 16 - 1)) << 4 if span else offset


def place(matrix: torch.Tensor, span: int, mn_major: bool) -> tuple[torch.Tensor, int, int]:
    """A [rows, 32 bytes of K] operand as it must stand in shared memory, with the leading and stride offsets."""
    rows, k = matrix.shape
    size = matrix.element_size()
    data = torch.zeros(32768, dtype=torch.uint8)
    raw = matrix.contiguous().view(torch.uint8).reshape(rows, k, size)
    width = span or 16  # bytes that stand together in one row of the pattern
    if mn_major:
        leading, stride = (4096, 8 * width) if span else (1024 + 512, 128)
        if span == 0:
            leading, stride = 8192, 128
    else:
        leading, stride = (16, 8 * width) if span else (128, 256)
    for r, c in itertools.product(range(rows), range(k)):
        if not mn_major and span:
            offset = r // 8 * stride + r % 8 * width + c * size
        elif not mn_major:
            offset = r // 8 * stride + c * size // 16 * leading + r % 8 * 16 + c * size % 16
        elif span:
            per_block = width // size
            offset = r // per_block * leading + c // 8 * stride + c % 8 * width + r % per_block * size
        else:
            offset = r // 8 * stride + c // 8 * leading + c % 8 * 16 + r % 8 * size
        offset = swizzled(offset, span)
        data[offset : offset + size] = raw[r, c]
    return data, leading, stride


def descriptor(base: str, leading: int, stride: int, span: int, to: str) -> str:
    high = SWIZZLE_FIELD[span] << 62 | (stride >> 4) << 32 | (leading >> 4) << 16
    return f"""
    and.b32 %r10, {base}, 0x3ffff;
    shr.u32 %r10, %r10, 4;
    cvt.u64.u32 {to}, %r10;
    or.b64 {to}, {to}, {high if high < 1 << 63 else high - (1 << 64)};"""


def text(
    n: int,
    shape_k: int,
    types: str,
    desc_a: str,
    desc_b: str,
    a_operand: str,
    tail: str,
    registers: int,
    register_type: str,
    rounds: int,
    start: int | None = None,
) -> str:
    """`start`: what every accumulator holds before the first product, which is then added to it."""
    name = "f" if register_type == "f32" else "q"
    d = ", ".join(f"%{name}{i}" for i in range(registers))
    multiply = "".join(
        f"    wgmma.mma_async.sync.aligned.m64n{n}k{shape_k}.{types} {{{d}}}, {a_operand}, %d6, %p{1 if i == 0 else 2}{tail};\n"
        for i in range(rounds)
    )
    starts = "" if start is None else "".join(f"    mov.b32 %{name}{i}, {start};\n" for i in range(registers))
    stores = "".join(f"    st.global.{register_type} [%d8+{4 * i}], %{name}{i};\n" for i in range(registers))
    return f"""{HEADER}
.visible .entry test(.param .u64 out, .param .u64 in)
.maxntid 128, 1, 1
{{
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b32 %q<128>;
    .reg .f32 %f<128>;
    .reg .b64 %d<32>;
    .shared .align 1024 .b8 data[65536];
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [in];
    mov.u32 %r0, data;
    mov.u32 %r2, %tid.x;
    shl.b32 %r3, %r2, 4;
COPY:
    cvt.u64.u32 %d3, %r3;
    add.u64 %d4, %d2, %d3;
    ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d4];
    add.u32 %r8, %r0, %r3;
    st.shared.v4.u32 [%r8], {{%r4, %r5, %r6, %r7}};
    add.u32 %r3, %r3, 2048;
    setp.lt.u32 %p0, %r3, 65536;
    @%p0 bra COPY;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    {desc_a}
    add.u32 %r11, %r0, 32768;
    {desc_b}
    setp.ne.u32 %p1, 0, {int(start is not None)};
    setp.eq.u32 %p2, 0, 0;
    shl.b32 %r12, %r2, 4;
    cvt.u64.u32 %d9, %r12;
    add.u64 %d9, %d9, %d2;
    ld.global.v4.u32 {{%r13, %r14, %r15, %r16}}, [%d9+65536];
{starts}    wgmma.fence.sync.aligned;
{multiply}    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %d8, %r2, {4 * registers};
    add.u64 %d8, %d8, %d1;
{stores}    ret;
}}
"""


def fragment(a: torch.Tensor) -> torch.Tensor:
    """A as the registers of 128 threads: four words each, row and column by the figure in the PTX manual."""
    size = a.element_size()
    raw = a.contiguous().view(torch.uint8)
    out = torch.zeros(128, 4, 4, dtype=torch.uint8)
    for thread, register in itertools.product(range(128), range(4)):
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register % 2)
        first = (thread % 4 + 4 * (register // 2)) * 4  # byte in the row: each thread has four neighbouring bytes
        out[thread, register] = raw[row, first : first + 4]
    assert size in (1, 2, 4)
    return out.reshape(-1)


def run(
    n: int,
    kind: str,  # of A and B, or of each: s8.u8
    span_a: int,
    span_b: int,
    major_a: int = 0,
    major_b: int = 0,
    registers_a: bool = False,
    accumulator: str = "f32",
    rounds: int = 1,
    scale_b: int = 1,
    schedule: str = "eager",
    seed: int = 0,
    start: int | None = None,
    saturate: bool = False,
    moved: str = "",
    rules: str = "manual",
    hazards: tuple[str, ...] = (),
) -> None:
    """`moved`: an instruction that moves each accumulator to another register before the wait, and which is stored."""
    kinds = kind.split(".") if "." in kind else [kind, kind]
    integer = kinds[0] in ("s8", "u8")
    k = 32 // TYPES[kinds[0]].itemsize
    generator = torch.Generator().manual_seed(n)
    if integer:
        a, b = (
            torch.randint(-100 if each == "s8" else 0, 100, (rows, k), generator=generator).to(TYPES[each])
            for each, rows in zip(kinds, (M, n), strict=True)
        )
    else:
        a, b = (
            torch.randint(-8, 9, (rows, k), generator=generator).to(torch.float32).div(4).to(TYPES[kind])
            for rows in (M, n)
        )
    image_a, leading_a, stride_a = place(a, span_a, bool(major_a))
    image_b, leading_b, stride_b = place(b, span_b, bool(major_b))
    data = torch.cat([image_a, image_b, fragment(a)])
    register_type = "f32" if accumulator == "f32" else "b32"
    registers = n // 4 if accumulator == "f16" else n // 2
    tail = "" if integer else f", 1, {scale_b}"
    if kind in ("bf16", "f16"):
        tail += f", {major_b}" if registers_a else f", {major_a}, {major_b}"
    code = text(
        n, k, f"{accumulator}.{'.'.join(kinds)}{'.satfinite' if saturate else ''}", descriptor("%r0", leading_a, stride_a, span_a, "%d5"),
        descriptor("%r11", leading_b, stride_b, span_b, "%d6"), "{%r13, %r14, %r15, %r16}" if registers_a else "%d5", tail, registers, register_type, rounds, start,
    )  # fmt: skip
    if moved:
        moves = "".join(f"    {moved} %f{64 + i}, %f{i};\n" for i in range(registers))
        code = code.replace("    wgmma.wait_group", f"{moves}    wgmma.wait_group")
        code = re.sub(r"(st\.global.*%f)(\d+)", lambda store: f"{store[1]}{64 + int(store[2])}", code)
    out = torch.zeros(128, registers, dtype=torch.float32 if accumulator == "f32" else torch.int32)
    report = simulator.run(
        code,
        block=[128],
        params=struct.pack("QQ", out.data_ptr(), data.data_ptr()),
        tensors=[out],
        inputs=[data],
        schedule=schedule,
        seed=seed,
        rules=rules,
        hazards="report",
    )
    assert {hazard.kind for hazard in report.hazards} == set(hazards)
    if moved not in ("", "mov.b32"):
        return  # of what is not there yet
    if accumulator == "f16":
        out = out.view(torch.float16).float()
    result = torch.zeros(M, n, dtype=torch.float64)
    for thread, i in itertools.product(range(128), range(n // 2)):
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * ((i >> 1) & 1)
        result[row, 8 * (i // 4) + 2 * (thread % 4) + (i & 1)] = out[thread, i].double()
    expected = rounds * scale_b * (a.double() @ b.double().T) + (start or 0)
    if saturate:
        expected = expected.clamp(-(2**31), 2**31 - 1)
    elif integer:
        expected = (expected + 2**31) % 2**32 - 2**31
    assert torch.equal(result, expected)  # integers or small multiples of 1/16: every sum is exact


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "bf16", "f16", "tf32"])
def test_k_major(kind: str, span: int) -> None:
    run(16, kind, span, span)


@pytest.mark.parametrize("kind", ["s8", "u8", "s8.u8", "u8.s8"])
def test_integer(kind: str) -> None:
    run(24 if kind == "s8" else 32, kind, 128, 64, accumulator="s32")
    run(48, kind, 128, 128, accumulator="s32", registers_a=True)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("start", [2**31 - 1, -(2**31)])
def test_integer_sums_wrap_around_or_saturate(start: int, saturate: bool) -> None:
    run(8, "s8", 128, 128, accumulator="s32", start=start, saturate=saturate, rounds=2)


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ("m64n40k32.s32.s8.s8", "N of an integer product"),
        ("m64n16k16.f32.bf16.f16", "no product of these types"),
        ("m64n16k32.f32.s8.s8", "no product of these types"),
        ("m64n16k16.s32.s8.s8", "the K of the shape"),
    ],
)
def test_what_the_manual_does_not_have_is_refused(shape: str, what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        evaluate(f"wgmma.mma_async.sync.aligned.{shape} {{%r0, %r0, %r0, %r0}}, %d1, %d2, 1;", [])


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize(("major_a", "major_b"), [(1, 0), (0, 1), (1, 1)])
def test_mn_major(kind: str, span: int, major_a: int, major_b: int) -> None:
    run(128, kind, span, span, major_a, major_b)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "bf16", "f16", "tf32"])
def test_a_from_registers(kind: str) -> None:
    run(32, kind, 128, 128, registers_a=True)


@pytest.mark.parametrize("n", [8, 64, 200, 256])
def test_widths(n: int) -> None:
    run(n, "e4m3", 128, 128)


def test_accumulator_f16() -> None:
    run(32, "f16", 128, 128, accumulator="f16")


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_accumulates_and_negates(schedule: str, seed: int) -> None:
    run(64, "bf16", 128, 128, rounds=3, schedule=schedule, seed=seed)
    run(64, "bf16", 128, 128, scale_b=-1, schedule=schedule, seed=seed)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_move_before_the_wait_takes_what_arrives(schedule: str, seed: int) -> None:
    """As nvcc writes it: in the machine code both names are one register, which nothing reads before the wait."""
    run_moved = partial(run, 64, "bf16", 128, 128, rounds=2, schedule=schedule, seed=seed)
    run_moved(moved="mov.b32", hazards=("wgmma wait",))
    run_moved(moved="mov.b32", rules="hardware")
    run_moved(moved="neg.f32", rules="hardware", hazards=("wgmma wait",))
