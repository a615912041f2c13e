"""The functions of ptx/wgmma*.cuh, each at each width it has: right operands, right accumulators, exact sums."""

from __future__ import annotations

import struct

import pytest
import torch
from ptx_tools import compile_cuda
from test_wgmma import TYPES, swizzled

from deep_gemm import simulator

ROWS, SPAN_BYTES = 64, 128
FLOAT_WIDTHS = [8, 16, 24, 32, 40, 48, 56, 64, *range(80, 257, 16)]
INTEGER_WIDTHS = [8, 16, 24, 32, *range(48, 257, 16)]
SOME_WIDTHS = [8, 24, 112, 256]
FLOATS = [
    # function, majors of A and B (1: MN-major)
    ("e4m3", "", 0, 0),
    ("bf16", "<false, false>", 0, 0),
    ("f16", "<false, false>", 0, 0),
    ("f16", "<true, false>", 1, 0),
    ("f16", "<false, true>", 0, 1),
    ("bf16", "<true, true>", 1, 1),
]
FLOATS_FROM_REGISTERS = [("e4m3", "", 0), ("bf16", "<true>", 1), ("f16", "<false>", 0), ("f16", "<true>", 1)]
INTEGERS = ["s8_s8", "s8_u8", "u8_s8", "u8_u8"]


def image(matrix: torch.Tensor, mn_major: int) -> torch.Tensor:
    """[rows, 128 bytes of K] as it stands in shared memory with 128-byte swizzle; MN-major in blocks of 64 rows."""
    rows, k = matrix.shape
    if not mn_major:
        raw = matrix.contiguous().view(torch.uint8).reshape(-1)
    else:
        padded = torch.zeros(-(-rows // 64) * 64, k, dtype=matrix.dtype)
        padded[:rows] = matrix
        raw = padded.view(-1, 64, k).transpose(1, 2).contiguous().view(torch.uint8).reshape(-1)
    chunks = torch.tensor([swizzled(16 * i, SPAN_BYTES) // 16 for i in range(raw.numel() // 16)])
    data = torch.zeros(max(256 * SPAN_BYTES, raw.numel()), dtype=torch.uint8)
    data.view(-1, 16)[chunks] = raw.view(-1, 16)
    return data


def random_operand(kind: str, rows: int) -> torch.Tensor:
    dtype = TYPES[kind]
    k = SPAN_BYTES // dtype.itemsize
    if not dtype.is_floating_point:
        bounds = torch.iinfo(dtype)
        return torch.randint(bounds.min, bounds.max + 1, (rows, k), dtype=torch.int32).to(dtype)
    return torch.randint(-8, 9, (rows, k)).float().div(4).to(dtype)


def check(
    function: str,
    kind_a: str,
    kind_b: str,
    widths: list[int],
    major_a: int = 0,
    major_b: int = 0,
    registers: bool = False,
) -> None:
    dtype = torch.float32 if TYPES[kind_a].is_floating_point else torch.int32
    text = compile_cuda(
        "wgmma_functions.cu",
        **{"FUNCTION(n)": function},
        ACCUMULATOR="float" if dtype.is_floating_point else "int32_t",
        A_IN_REGISTERS=int(registers),
        A_MN_MAJOR=major_a,
        B_MN_MAJOR=major_b,
        WIDTHS=" ".join(f"WIDTH({n})" for n in widths),
    )
    for n in widths:
        torch.manual_seed(n)
        a, b = random_operand(kind_a, ROWS), random_operand(kind_b, n)
        tensors = [image(a, major_a), image(b, major_b), a.contiguous().view(torch.uint8)]
        d = torch.full((ROWS, n), -1, dtype=dtype)
        params = struct.pack("QQQQi4x", *(t.data_ptr() for t in (*tensors, d)), n)
        report = simulator.run(text, block=[128], params=params, tensors=[d], inputs=tensors)
        assert not report.hazards
        # Small multiples of 1/16, or integers: every sum is exact.
        assert torch.equal(d.double(), a.double() @ b.double().T), n


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("kind", "majors", "major_a", "major_b"), FLOATS)
def test_floats(kind: str, majors: str, major_a: int, major_b: int) -> None:
    widths = FLOAT_WIDTHS if not majors or (kind == "f16" and not (major_a or major_b)) else SOME_WIDTHS
    check(f"ptx::Wgmma<n>::{kind}{majors}", kind, kind, widths, major_a, major_b)


@pytest.mark.parametrize(("kind", "majors", "major_b"), FLOATS_FROM_REGISTERS)
def test_floats_with_a_from_registers(kind: str, majors: str, major_b: int) -> None:
    widths = FLOAT_WIDTHS if kind == "e4m3" else SOME_WIDTHS
    check(f"ptx::WgmmaFromRegisters<n>::{kind}{majors}", kind, kind, widths, 0, major_b, registers=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kinds", INTEGERS)
@pytest.mark.parametrize("registers", [False, True])
def test_integers(kinds: str, registers: bool) -> None:
    widths = INTEGER_WIDTHS if kinds == "s8_s8" else SOME_WIDTHS
    name = "WgmmaIntegerFromRegisters" if registers else "WgmmaInteger"
    check(f"ptx::{name}<n>::{kinds}", *kinds.split("_"), widths, registers=registers)
