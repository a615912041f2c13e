"""mma.sync of a kind, as sm_120a has it: elements of 4, 6 and 8 bits, and scales for blocks of K.

The products of Triton in test_triton.py are kernels that nobody wrote for this simulator.
"""

from __future__ import annotations

import pytest
import torch
from ptx_tools import kernel, run_kernel

TARGET = "sm_120a"
M, N = 16, 8
# Bits of exponent and fraction; a bias of 1 less than half the exponents.
FORMATS = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}
PAIRS = [("e4m3", "e5m2"), ("e2m3", "e4m3"), ("e5m2", "e2m1"), ("e3m2", "e2m3"), ("e2m1", "e3m2")]
KINDS = [
    # kind, scales of 32 or 64 of K, their type, formats of A and B, type of sums
    *[("f8f6f4", 0, "", *pair, d) for pair in PAIRS for d in ("f32", "f16")],
    *[("mxf8f6f4", 1, "ue8m0", *pair, "f32") for pair in PAIRS],
    ("mxf4", 2, "ue8m0", "e2m1", "e2m1", "f32"),
    *[("mxf4nvf4", count, kind, "e2m1", "e2m1", "f32") for count, kind in ((2, "ue8m0"), (4, "ue8m0"), (4, "ue4m3"))],
]


def values_of(form: str, codes: torch.Tensor) -> torch.Tensor:
    exponent, fraction = FORMATS[form]
    bits, bias = codes.double(), 2 ** (exponent - 1) - 1
    fractions = bits.remainder(2**fraction) / 2**fraction
    exponents = (bits / 2**fraction).floor().remainder(2**exponent)
    normal, subnormal = (1 + fractions) * torch.exp2(exponents - bias), fractions * 2.0 ** (1 - bias)
    magnitude = torch.where(exponents > 0, normal, subnormal)
    return torch.where(bits >= 2 ** (exponent + fraction), -magnitude, magnitude)


def random_codes(form: str, rows: int, k: int) -> torch.Tensor:
    """Of finite values."""
    codes = torch.randint(0, 2 ** (1 + sum(FORMATS[form])), (rows, k))
    if form in ("e4m3", "e5m2"):
        return torch.where(codes % 128 < {"e4m3": 127, "e5m2": 124}[form], codes, 1)
    return codes


def words_of(form: str, codes: torch.Tensor, in_bytes: bool) -> torch.Tensor:
    """[rows, K] -> int32, the first of K in the low bits; what surrounds an element in its byte is random."""
    if not in_bytes:
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    elif form == "e2m1":
        codes = codes << 2 | torch.randint(0, 4, codes.shape) | torch.randint(0, 4, codes.shape) << 6
    elif form in ("e2m3", "e3m2"):
        codes = codes | torch.randint(0, 4, codes.shape) << 6
    return codes.to(torch.uint8).view(torch.int32)


def scale_values(kind: str, scales: torch.Tensor) -> torch.Tensor:
    return torch.exp2(scales.double() - 127) if kind == "ue8m0" else values_of("e4m3", scales % 128)


def program(kind: str, scales: int, scale_type: str, a: str, b: str, d: str, selectors: str) -> str:
    k = 32 if kind.endswith("f8f6f4") else 64
    scaled = f".block_scale.scale_vec::{scales}X" if scales else ""
    loads = "".join(f"    ld.global.u32 %r{i}, [%in+{4 * i}];\n" for i in range(12))
    moves = "".join(f"    mov.b32 %f{i}, %r{6 + i};\n" for i in range(4))
    sums = "{%f0, %f1, %f2, %f3}" if d == "f32" else "{%r6, %r7}"
    stores = "".join(f"    st.global.f32 [%out+{4 * i}], %f{i};\n" for i in range(4))
    if d == "f16":
        stores = "".join(f"    st.global.u32 [%out+{4 * i}], %r{6 + i};\n" for i in range(2))
    types = f"{d}.{a}.{b}.{d}" + (f".{scale_type}" if scales else "")
    operands = f"{sums}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {sums}{selectors}"
    return kernel(
        f"""
    mul.wide.u32 %offset, %t, 48;
    add.s64 %in, %in, %offset;
    mul.wide.u32 %offset, %t, 16;
    add.s64 %out, %out, %offset;
{loads}{moves}    mov.b16 %h0, 0;
    mov.b16 %h1, 1;
    mma.sync.aligned.kind::{kind}{scaled}.m16n8k{k}.row.col.{types} {operands};
{stores}""",
        target=TARGET,
    )


@pytest.mark.parametrize(("kind", "scales", "scale_type", "a", "b", "d"), KINDS)
def test_product(kind: str, scales: int, scale_type: str, a: str, b: str, d: str) -> None:
    in_bytes = kind.endswith("f8f6f4")
    k = 32 if in_bytes else 64
    for draw in range(4):
        torch.manual_seed(draw)
        a_codes, b_codes = random_codes(a, M, k), random_codes(b, N, k)
        a_words, b_words = words_of(a, a_codes, in_bytes), words_of(b, b_codes, in_bytes)
        c = torch.randn(M, N)
        given = torch.zeros(32, 12, dtype=torch.int32)
        low, high = (120, 134) if scale_type == "ue8m0" else (0, 126)
        bytes_of_scales = torch.randint(low, high, (2, 32, 4))  # of A and of B, lane by lane
        given[:, 10], given[:, 11] = bytes_of_scales.to(torch.uint8).view(torch.int32).view(2, 32)
        sums = c.half().view(torch.int32) if d == "f16" else c.view(torch.int32)
        for lane in range(32):
            group, member = divmod(lane, 4)
            for r in range(4):
                given[lane, r] = a_words[group + 8 * (r % 2), member + 4 * (r // 2)]
                if d == "f32":
                    given[lane, 6 + r] = sums[group + 8 * (r // 2), 2 * member + r % 2]
            for r in range(2):
                given[lane, 4 + r] = b_words[group, member + 4 * r]
                if d == "f16":
                    given[lane, 6 + r] = sums[group + 8 * r, member]
        selectors, expected_a, expected_b = "", values_of(a, a_codes), values_of(b, b_codes)
        if scales:
            byte_a, byte_b = (scales * int(torch.randint(0, 4 // scales, ())) for _ in range(2))
            thread_a, thread_b = int(torch.randint(0, 2, ())), int(torch.randint(0, 4, ()))
            first = f"%h{thread_a}" if draw % 2 else str(thread_a)
            selectors = f", {{%r10}}, {{{byte_a}, {first}}}, {{%r11}}, {{{byte_b}, {thread_b}}}"
            rows = [bytes_of_scales[0, 4 * (row % 8) + 2 * thread_a + row // 8] for row in range(M)]
            columns = [bytes_of_scales[1, 4 * column + thread_b] for column in range(N)]
            of_a = torch.stack(rows)[:, byte_a : byte_a + scales].repeat_interleave(k // scales, 1)
            of_b = torch.stack(columns)[:, byte_b : byte_b + scales].repeat_interleave(k // scales, 1)
            expected_a = expected_a * scale_values(scale_type, of_a)
            expected_b = expected_b * scale_values(scale_type, of_b)
        out = torch.zeros(32, 4, dtype=torch.float32)
        run_kernel(program(kind, scales, scale_type, a, b, d, selectors), out, given)
        found = torch.zeros(M, N).double()
        values = out.view(torch.float16) if d == "f16" else out
        for lane in range(32):
            for i in range(4):
                found[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] = values[lane, i].double()
        bound = expected_a.abs() @ expected_b.abs().T + c.double().abs()
        start = c.half().double() if d == "f16" else c.double()
        wanted = expected_a @ expected_b.T + start
        holds = wanted.abs() < (65000 if d == "f16" else torch.inf)
        assert holds.any()
        assert ((found - wanted).abs() <= (2**-11 if d == "f16" else 1e-6) * bound)[holds].all()


@pytest.mark.parametrize(
    ("kind", "target", "what"),
    [
        ("kind::mxf8f6f4.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", TARGET, "needs .block_scale"),
        ("kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue4m3", TARGET, "no scales of this number"),
        ("kind::mxf4nvf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", TARGET, "and .scale_vec"),
        ("kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e4m3.f32.ue8m0", TARGET, "of this kind with these types"),
        ("kind::mxf4.block_scale.m16n8k32.row.col.f32.e2m1.e2m1.f32.ue8m0", TARGET, "of this kind with these types"),
        ("kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120", "sm_120"),
        ("kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_100a", "sm_100a"),
    ],
)
def test_what_is_no_product_is_refused(kind: str, target: str, what: str) -> None:
    sums = "{%f0, %f1, %f2, %f3}"
    body = f"mma.sync.aligned.{kind} {sums}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {sums}, %r6, {{0, 0}}, %r7, {{0, 0}};"
    with pytest.raises(RuntimeError, match=what.replace(".", r"\.")):
        run_kernel(kernel(body, target=target), torch.zeros(1, dtype=torch.int32))


def test_a_selector_that_selects_nothing_is_a_hazard() -> None:
    text = program("mxf4", 2, "ue8m0", "e2m1", "e2m1", "f32", ", {%r10}, {1, 0}, {%r11}, {0, 0}")
    given = torch.zeros(32, 12, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"scales of A must be selected by a byte .* got \{1, 0\}"):
        run_kernel(text, torch.zeros(32, 4), given)
