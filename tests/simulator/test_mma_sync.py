"""mma.sync against a product in FP64: every shape and pair of types; integers exactly, with both ways to overflow."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import itertools

import pytest
import torch
from ptx_tools import evaluate, kernel, run_kernel

from deep_gemm import simulator

M, N = 16, 8  # of most shapes
FLOATS = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
RANGES = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}
SHAPES = [
    # M, K, D, A, B
    *[(16, k, d, "f16", "f16") for k in (8, 16) for d in ("f16", "f32")],
    *[(16, k, "f32", "bf16", "bf16") for k in (8, 16)],
    *[(16, k, "f32", "tf32", "tf32") for k in (4, 8)],
    *[(m, k, "s32", a, b) for m, k in ((16, 16), (16, 32), (8, 16)) for a in ("s8", "u8") for b in ("s8", "u8")],
    *[(m, k, "s32", a, b) for m, k in ((16, 32), (16, 64), (8, 32)) for a in ("s4", "u4") for b in ("s4", "u4")],
    *[(16, k, d, a, b) for k in (16, 32) for d in ("f16", "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")],
]


def bits_of(kind: str) -> int:
    return FLOATS[kind].itemsize * 8 if kind in FLOATS else int(kind[1:])


def random_matrix(kind: str, rows: int, k: int) -> torch.Tensor:
    """Values in FP64 that the type holds exactly."""
    if kind in RANGES:
        return torch.randint(*RANGES[kind], (rows, k)).double()
    values = torch.randn(rows, k).to(FLOATS[kind])
    if kind == "tf32":
        values = (values.view(torch.int32) & ~0x1FFF).view(torch.float32)
    return values.double()


def packed_rows(kind: str, values: torch.Tensor) -> torch.Tensor:
    """[rows, K] as 32-bit words, neighbours in K in one word, the first in its low bits."""
    bits = bits_of(kind)
    if kind in FLOATS:
        return values.to(FLOATS[kind]).contiguous().view(torch.int32)
    fields = (values.long() & ((1 << bits) - 1)).view(values.shape[0], -1, 32 // bits)
    words = (fields << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def run(
    m: int, k: int, d: str, a: str, b: str, c_values: torch.Tensor, saturate: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns D, A and B in FP64."""
    torch.manual_seed(k)
    a_values, b_values = random_matrix(a, m, k), random_matrix(b, N, k)
    a_words, b_words = packed_rows(a, a_values), packed_rows(b, b_values)
    b_registers = k * bits_of(a) // 128
    halves = m // 8  # the registers of A, and of D, go over these first
    a_registers, d_registers = halves * b_registers, halves if d == "f16" else 2 * halves
    given = torch.zeros(32, 16, dtype=torch.int32)
    c_words = c_values.half().view(torch.int32) if d == "f16" else c_values.to(sum_type(d)).view(torch.int32)
    for lane in range(32):
        group, member = divmod(lane, 4)
        for r in range(a_registers):
            given[lane, r] = a_words[group + 8 * (r % halves), member + 4 * (r // halves)]
        for r in range(b_registers):
            given[lane, 4 + r] = b_words[group, member + 4 * r]
        for r in range(d_registers):
            place = (group + 8 * r, member) if d == "f16" else (group + 8 * (r // 2), 2 * member + r % 2)
            given[lane, 8 + r] = c_words[place]

    def registers(first: int, count: int) -> str:
        return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"

    loads = "".join(f"    ld.global.u32 %r{i}, [%in+{4 * i}];\n" for i in range(12))
    stores = "".join(f"    st.global.u32 [%out+{4 * i}], %r{8 + i};\n" for i in range(d_registers))
    if d == "f32":
        loads += "".join(f"    mov.b32 %f{8 + i}, %r{8 + i};\n" for i in range(4))
        stores = "".join(f"    st.global.f32 [%out+{4 * i}], %f{8 + i};\n" for i in range(4))
    sums = registers(8, d_registers).replace("%r", "%f" if d == "f32" else "%r")
    body = f"""
    mul.wide.u32 %offset, %t, 64;
    add.s64 %in, %in, %offset;
    mul.wide.u32 %offset, %t, 16;
    add.s64 %out, %out, %offset;
{loads}    mma.sync.aligned.m{m}n8k{k}.row.col{".satfinite" if saturate else ""}.{d}.{a}.{b}.{d} {sums}, {registers(0, a_registers)}, {registers(4, b_registers)}, {sums};
{stores}"""
    out = torch.zeros(32, 4, dtype=torch.int32)
    run_kernel(kernel(body), out, given)
    result = torch.zeros(m, N, dtype=torch.float64)
    values = out.view(torch.float16) if d == "f16" else out.view(sum_type(d))
    for lane, i in itertools.product(range(32), range(2 * halves)):
        result[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] = values[lane, i].double()
    return result, a_values, b_values


def sum_type(d: str) -> torch.dtype:
    return torch.int32 if d == "s32" else torch.float32


@pytest.mark.parametrize(("m", "k", "d", "a", "b"), SHAPES)
def test_product(m: int, k: int, d: str, a: str, b: str) -> None:
    c = torch.randint(-100, 101, (m, N)).double()
    result, a_values, b_values = run(m, k, d, a, b, c)
    expected = a_values @ b_values.T + c
    if d == "s32":
        assert torch.equal(result, expected)
    else:
        bound = a_values.abs() @ b_values.abs().T + c.abs()
        assert ((result - expected).abs() <= (2**-11 if d == "f16" else 1e-6) * bound + 1e-30).all()


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("start", [2**31 - 1, -(2**31)])
@pytest.mark.parametrize(("m", "k"), [(16, 32), (8, 16)])
def test_integers_wrap_around_or_saturate(m: int, k: int, start: int, saturate: bool) -> None:
    result, a, b = run(m, k, "s32", "s8", "s8", torch.full((m, N), start).double(), saturate)
    exact = a @ b.T + start
    wrapped = (exact + 2**31) % 2**32 - 2**31
    assert torch.equal(result, exact.clamp(-(2**31), 2**31 - 1) if saturate else wrapped)


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ("m16n8k32.row.col.f32.bf16.bf16.f32", "no product of these types and this shape"),
        ("m16n8k16.row.col.f32.f16.bf16.f32", "no product of these types and this shape"),
        ("m16n8k16.col.col.f32.f16.f16.f32", ".row.col expected"),
        ("m8n8k16.row.col.f32.f16.f16.f32", "no product of these types and this shape"),
        ("m8n8k32.row.col.s32.s8.s8.s32", "no product of these types and this shape"),
        ("m16n16k16.row.col.f32.f16.f16.f32", "only products of shape m16n8 and m8n8"),
        ("m16n8k8.row.col.f32.f16.f16.f32", "the numbers of registers"),
    ],
)
def test_what_is_not_there_is_refused(shape: str, what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        evaluate(
            f"mma.sync.aligned.{shape} {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%f0, %f1, %f2, %f3}};",
            [],
        )


def uninitialised_column(stored: str) -> simulator.Report:
    """B's column 0 comes from shared memory nobody wrote; lane 0 holds D's columns 0 and 1."""
    body = f"""
    mov.u32 %r0, data;
    shl.b32 %r1, %t, 2;
    add.u32 %r1, %r0, %r1;
    setp.ge.u32 %p1, %t, 4;
    mov.u32 %r2, 0;
    @%p1 st.shared.u32 [%r1], %r2;
    bar.warp.sync -1;
    ld.shared.u32 %r3, [%r1];
    mov.f32 %f0, 0f00000000;
    mov.f32 %f1, %f0;
    mov.f32 %f2, %f0;
    mov.f32 %f3, %f0;
    mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {{%f0, %f1, %f2, %f3}}, {{%r2, %r2}}, {{%r3}}, {{%f0, %f1, %f2, %f3}};
    setp.eq.u32 %p2, %t, 0;
    @%p2 st.global.f32 [%out], {stored};"""
    text = kernel(body, shared=".shared .align 16 .b32 data[32];")
    return run_kernel(text, torch.zeros(1), hazards="report")


def test_what_comes_from_memory_nobody_wrote_is_followed_by_row_and_column() -> None:
    assert [hazard.kind for hazard in uninitialised_column("%f0").hazards] == ["uninitialised"]
    assert not uninitialised_column("%f1").hazards
