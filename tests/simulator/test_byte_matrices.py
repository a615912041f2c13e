"""ldmatrix and stmatrix of elements of 4, 6 and 8 bits, as sm_100a and sm_120a have them."""

from __future__ import annotations

import pytest
import torch
from ptx_tools import kernel, run_kernel

TARGET = "sm_120a"
ROWS = 32  # of 16 bytes, in shared memory
FORMS = {8: "b8", 6: "b8x16.b6x16_p32", 4: "b8x16.b4x16_p64"}


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Rows of 16 elements, the lowest bit of the first one first; what fills them up to 16 bytes is random."""
    stream = (codes.unsqueeze(-1) >> torch.arange(bits)) % 2
    rows = (stream.view(ROWS, -1, 8) << torch.arange(8)).sum(-1).to(torch.uint8)
    given = torch.randint(0, 256, (ROWS, 16), dtype=torch.uint8)
    given[:, : rows.shape[1]] = rows
    return given


def lines(instruction: str, registers: int) -> str:
    """Lane i writes row i, and its address is in %r2; the registers %r10 and up are then stored for each lane."""
    stores = "".join(f"    st.global.u32 [%out+{4 * i}], %r{10 + i};\n" for i in range(registers))
    return kernel(
        f"""
    .shared .align 16 .b8 rows[{16 * ROWS}];
    mov.u32 %r9, rows;
    shl.b32 %r1, %t, 4;
    add.u32 %r2, %r9, %r1;
    mul.wide.u32 %offset, %t, 16;
    add.s64 %in, %in, %offset;
    ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%in];
    st.shared.v4.u32 [%r2], {{%r3, %r4, %r5, %r6}};
    bar.warp.sync -1;
    {instruction}
    mul.wide.u32 %offset, %t, {4 * registers};
    add.s64 %out, %out, %offset;
{stores}""",
        target=TARGET,
    )


def names(count: int) -> str:
    return ", ".join(f"%r{10 + i}" for i in range(count))


def loaded(shape: str, bits: int, registers: int, codes: torch.Tensor) -> torch.Tensor:
    """Bytes by lane and register."""
    out = torch.zeros(32, registers, dtype=torch.int32)
    instruction = f"ldmatrix.sync.aligned.{shape}.shared.{FORMS[bits]} {{{names(registers)}}}, [%r2];"
    run_kernel(lines(instruction, registers), out, packed(codes, bits).view(torch.int32))
    return out.view(torch.uint8).view(32, registers, 4)


@pytest.mark.parametrize("bits", [4, 6])
def test_rows_of_packed_elements_are_spread(bits: int) -> None:
    torch.manual_seed(bits)
    codes = torch.randint(0, 2**bits, (ROWS, 16))
    lanes = loaded("m8n16.x4", bits, 4, codes)
    for lane in range(32):
        for matrix in range(4):
            wanted = codes[8 * matrix + lane // 4, 4 * (lane % 4) :][:4]
            assert lanes[lane, matrix].tolist() == wanted.tolist()


@pytest.mark.parametrize("matrices", [1, 2])
@pytest.mark.parametrize("bits", [4, 6, 8])
def test_bytes_are_transposed_on_the_way(bits: int, matrices: int) -> None:
    """A register has four rows of a column: measured so on an sm_120a by others; CUTLASS's layouts say the same."""
    torch.manual_seed(bits)
    codes = torch.randint(0, 2**bits, (ROWS, 16))
    lanes = loaded(f"m16n16.x{matrices}.trans", bits, 2 * matrices, codes)
    for lane in range(32):
        for register in range(2 * matrices):
            first, column = 16 * (register // 2) + 4 * (lane % 4), lane // 4 + 8 * (register % 2)
            assert lanes[lane, register].tolist() == codes[first : first + 4, column].tolist()


@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_sums_of_a_product_are_stored_by_columns(matrices: int) -> None:
    """Byte j of lane l is that of the sum d[j] of a 16x8 product: row l / 4 + 8 (j / 2), column 2 (l % 4) + j % 2."""
    torch.manual_seed(matrices)
    given = torch.randint(0, 256, (32, 4, 4), dtype=torch.uint8)  # by lane and register
    loads = "".join(f"    ld.global.u32 %r{20 + i}, [%in+{4 * i}];\n" for i in range(matrices))
    values = ", ".join(f"%r{20 + i}" for i in range(matrices))
    back = "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r2];"
    text = lines(
        f"{loads}    stmatrix.sync.aligned.m16n8.x{matrices}.trans.shared.b8 [%r2], {{{values}}};\n"
        f"    bar.warp.sync -1;\n    {back}",
        4,
    )
    out = torch.zeros(32, 4, dtype=torch.int32)
    run_kernel(text, out, given.view(torch.int32))
    stored = out.view(torch.uint8).view(ROWS, 16)
    wanted = given.view(ROWS, 16).clone()  # rows of no matrix stay
    for matrix in range(matrices):
        for lane in range(32):
            for j in range(4):
                wanted[8 * matrix + 2 * (lane % 4) + j % 2, lane // 4 + 8 * (j // 2)] = given[lane, matrix, j]
    assert stored.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("instruction", "what"),
    [
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r1, %r2}, [%r0];", "m16n16 and m16n8 need .trans"),
        ("ldmatrix.sync.aligned.m8n16.x1.trans.shared.b8x16.b4x16_p64 {%r1}, [%r0];", "m8n16 has none"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1}, [%r0];", "m16n16 has 2 registers"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b16 {%r1, %r2}, [%r0];", "m16n16 needs .b8, or"),
        ("stmatrix.sync.aligned.m16n8.x1.trans.shared.b16 [%r0], {%r1};", "m16n8 has elements of .b8"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b8 {%r1}, [%r0];", "m8n8 has elements of .b16"),
    ],
)
def test_what_the_manual_does_not_have_is_refused(instruction: str, what: str) -> None:
    with pytest.raises(RuntimeError, match=what.replace(".", r"\.")):
        run_kernel(kernel(instruction, target=TARGET), torch.zeros(1, dtype=torch.int32))
