"""The kernels that pack weights, bit for bit against torch: deep_gemm/weights packs CPU tensors with it."""

from __future__ import annotations

import pytest
import torch
from devices import EVERY_DEVICE, FEW

from deep_gemm._extension import C
from deep_gemm.utils import pack_int4
from deep_gemm.weights import codes as code

ELEMENTS = {name: number for number, name in enumerate(C.element_names().split())}
OUT_OF_RANGE, MINUS_EIGHT = 1, 2
# Of codes: as what they lie, the smallest that is given, whether they are signed, whether 8 is subtracted.
KINDS = {
    "twos_complement": ("s4", -8, True, False),
    "sign_and_magnitude": ("s4m", -7, True, False),
    "unsigned": ("s4", 0, False, True),
    "unsigned_sign_and_magnitude": ("s4m", 1, False, True),
    "e2m1": ("e2m1", 0, False, False),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
SHAPES = [(1, 2), (64, 128), (65, 96), (130, 2880 // 8), (24, 272)]


def random_codes(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    _, smallest, signed, _ = KINDS[kind]
    generator = torch.Generator().manual_seed(shape[-1])
    return torch.randint(smallest, 8 if signed else 16, shape, generator=generator, dtype=torch.int8)


def wanted(kind: str, codes: torch.Tensor) -> torch.Tensor:
    """By torch, [G, row blocks, K blocks, bytes]."""
    element, _, _, offset = KINDS[kind]
    rows, columns = code.padded_shape(*codes.shape[1:])
    padding = (0, columns - codes.shape[2], 0, rows - codes.shape[1])
    blocks = [code.to_blocks(torch.nn.functional.pad(one - 8 * offset, padding)) for one in codes]
    return torch.stack([code.to_sign_magnitude(block) if element == "s4m" else block for block in blocks])


def packed(kind: str, values: torch.Tensor, pairs: bool = False) -> tuple[torch.Tensor, int]:
    """By the kernel, with what it found; nothing behind the blocks is written."""
    element, _, signed, offset = KINDS[kind]
    groups, n, k = values.shape
    rows, columns = code.padded_shape(n, 2 * k if pairs else k)
    shape = (groups, rows // code.BLOCK_ROWS, columns // 128, code.BLOCK_BYTES)
    size = torch.Size(shape).numel()
    room = torch.full((size + 64,), 0xA5, dtype=torch.uint8, device=values.device)
    found = torch.zeros(1, dtype=torch.int32, device=values.device)
    codes = room[:size].view(shape)
    C.pack_codes(values, codes, found, ELEMENTS[element], -8 if signed else 0, offset, pairs)
    assert (room[size:] == 0xA5).all()
    return codes.cpu(), int(found)


@pytest.mark.parametrize("device", EVERY_DEVICE, indirect=True)
@pytest.mark.parametrize("pairs", [False, True])
@EVERY_KIND
def test_codes_lie_as_torch_packs_them(device, kind, pairs) -> None:
    codes = random_codes(kind, (2, 130, 272))
    values = pack_int4(codes << 4 >> 4) if pairs else codes
    blocks, found = packed(kind, values.to(device), pairs)
    assert torch.equal(blocks, wanted(kind, codes))
    assert found == 0


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", ["sign_and_magnitude", "unsigned"])
def test_sizes_that_fill_no_blocks(device, kind, pairs, shape) -> None:
    codes = random_codes(kind, (1, *shape))
    values = pack_int4(codes << 4 >> 4) if pairs else codes
    blocks, found = packed(kind, values.to(device), pairs)
    assert torch.equal(blocks, wanted(kind, codes))
    assert found == 0


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("offset", "padding"), [(0, 16), (16, 0), (1, 0), (0, 3)])
def test_strides_and_offsets(device, offset, padding) -> None:
    groups, n, k = 2, 66, 144
    room = random_codes("sign_and_magnitude", (offset + groups * n * (k + padding),)).to(device)
    values = room[offset:].view(groups, n, k + padding)[:, :, :k]
    blocks, _ = packed("sign_and_magnitude", values)
    assert torch.equal(blocks, wanted("sign_and_magnitude", values.cpu()))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("place", [(0, 0), (129, 271), (70, 130)], ids=str)
@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        ("sign_and_magnitude", -8, MINUS_EIGHT),
        ("sign_and_magnitude", -9, OUT_OF_RANGE),
        ("sign_and_magnitude", 8, OUT_OF_RANGE),
        ("twos_complement", -8, 0),
        ("twos_complement", 127, OUT_OF_RANGE),
        ("twos_complement", -128, OUT_OF_RANGE),
        ("unsigned_sign_and_magnitude", 0, MINUS_EIGHT),
        ("unsigned_sign_and_magnitude", 16, OUT_OF_RANGE),
        ("unsigned", -1, OUT_OF_RANGE),
        ("e2m1", 16, OUT_OF_RANGE),
    ],
)
def test_one_value_that_is_no_code_is_found(device, kind, value, what, place) -> None:
    values = random_codes(kind, (2, 130, 272))
    values[1][place] = value
    _, found = packed(kind, values.to(device))
    assert found & what == what
    assert found & OUT_OF_RANGE == what & OUT_OF_RANGE


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("lying", ["k_first", "rows_first", "exponents", "words"])
@pytest.mark.parametrize(("given", "kept"), [(32, 32), (128, 32), (64, 64)])
def test_scales_lie_as_kernels_read_them(device, lying, given, kept) -> None:
    groups, n, k = 2, 130, 640
    exponents = torch.randint(0, 249, (groups, n, k // given), generator=torch.Generator().manual_seed(0))
    if lying == "words":
        exponents = torch.nn.functional.pad(exponents, (0, -exponents.shape[-1] % 4), value=7)
    bits = (exponents << 23).masked_fill(exponents == 0, 1 << 22)  # 2^-127 is subnormal
    scales = exact = bits.to(torch.int32).view(torch.float32)
    if lying == "exponents":
        scales = exponents.to(torch.uint8).view(torch.float8_e8m0fnu)
    if lying == "words":
        scales = exponents.to(torch.uint8).view(torch.int32)
    if lying == "rows_first":
        scales = scales.transpose(1, 2).contiguous().transpose(1, 2)
    out = torch.full((groups, k // kept + 1, 256), torch.nan, device=device)
    C.pack_scales(scales.to(device), out, n, given, kept, 64)
    spread = exact.repeat_interleave(given // kept, -1)[..., : out.shape[1]].transpose(1, 2) * 64
    count = spread.shape[1]
    assert torch.equal(out[:, :count, :n].cpu(), spread)
    assert not out[:, count:].any()
    assert not out[:, :, n:].any()


@pytest.mark.gpu
def test_packing_a_large_matrix(cuda) -> None:
    codes = torch.randint(-7, 8, (1, 4096 + 64, 7168), dtype=torch.int8, device=cuda)
    blocks, found = packed("sign_and_magnitude", codes)
    assert torch.equal(blocks, wanted("sign_and_magnitude", codes).cpu())
    assert found == 0
