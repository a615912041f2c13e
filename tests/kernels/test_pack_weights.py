"""The kernels that pack weights, bit for bit against torch: deep_gemm/weights packs CPU tensors with it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from devices import EVERY_DEVICE, FEW

from deep_gemm._extension import C
from deep_gemm.utils import pack_int4
from deep_gemm.weights import codes as code
from deep_gemm.weights.packings import Places, packing_of
from deep_gemm.weights.words import to_words

ELEMENTS = {name: number for number, name in enumerate(C.element_names().split())}
OUT_OF_RANGE, MINUS_EIGHT = 1, 2


@dataclass(frozen=True)
class Kind:
    """Of codes."""

    element: str  # as what they lie
    smallest: int  # that is given
    signed: bool = False
    offset: bool = False  # half of the range is subtracted
    places: Places | None = None  # beside activations of 16 bits

    @property
    def bits(self) -> int:
        return 8 if self.element in ("e4m3p", "s8b", "u8") else 4

    @property
    def half(self) -> int:
        return 1 << self.bits - 1


NIBBLES, BYTES, E2M1, E4M3 = (packing_of(name, "bf16").places for name in ("int4", "int8", "e2m1", "e4m3"))
KINDS = {
    "twos_complement": Kind("s4", -8, signed=True),
    "sign_and_magnitude": Kind("s4m", -7, signed=True),
    "unsigned": Kind("s4", 0, offset=True),
    "unsigned_sign_and_magnitude": Kind("s4m", 1, offset=True),
    "with_zeros": Kind("u4", 0, offset=True),
    "signed_with_zeros": Kind("u4", -8, signed=True),
    "e2m1": Kind("e2m1", 0),
    "e2m1_folded": Kind("e2m1x", 0),
    "wide": Kind("s4b", -8, signed=True, places=NIBBLES),
    "wide_with_zeros": Kind("u4", 0, offset=True, places=NIBBLES),
    "wide_e2m1": Kind("e2m1", 0, places=E2M1),
    "wide_e4m3": Kind("e4m3p", 0, places=E4M3),
    "wide_bytes": Kind("s8b", -128, signed=True, places=BYTES),
    "wide_unsigned_bytes": Kind("s8b", 0, offset=True, places=BYTES),
    "wide_bytes_with_zeros": Kind("u8", -128, signed=True, places=BYTES),
    "wide_unsigned_bytes_with_zeros": Kind("u8", 0, offset=True, places=BYTES),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
OF_FOUR_BITS = pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.bits == 4])
SHAPES = [(1, 2), (64, 128), (65, 96), (130, 2880 // 8), (24, 272)]


def random_codes(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """int8, of E4M3 the bits of any numbers."""
    kind, generator = KINDS[name], torch.Generator().manual_seed(shape[-1])
    if kind.bits == 8:
        bits = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return (bits.masked_fill(bits & 127 == 127, 0) if kind.element == "e4m3p" else bits).view(torch.int8)
    return torch.randint(kind.smallest, 8 if kind.signed else 16, shape, generator=generator, dtype=torch.int8)


def wanted(name: str, codes: torch.Tensor) -> torch.Tensor:
    """By torch, [G, row blocks, K blocks, bytes]."""
    kind = KINDS[name]
    rows, columns = code.padded_shape(*codes.shape[1:])
    padding = (0, columns - codes.shape[2], 0, rows - codes.shape[1])
    lying = [torch.nn.functional.pad(one - kind.half * kind.offset, padding) for one in codes]
    if kind.places is not None:
        added = kind.half if kind.element in ("s4b", "u4", "s8b", "u8") else 0
        return torch.stack([to_words((one + added).view(torch.uint8), kind.places) for one in lying])
    orders = {"s4m": code.to_sign_magnitude, "u4": lambda blocks: blocks ^ 0x88, "e2m1x": code.to_lookup}
    blocks = torch.stack([code.to_blocks(one) for one in lying])
    return orders[kind.element](blocks) if kind.element in orders else blocks


def packed(name: str, values: torch.Tensor, pairs: bool = False) -> tuple[torch.Tensor, int]:
    """By the kernel, with what it found; nothing behind the blocks is written."""
    kind = KINDS[name]
    groups, n, k = values.shape
    rows, columns = code.padded_shape(n, 2 * k if pairs else k)
    shape = (groups, rows // code.BLOCK_ROWS, columns // 128, 64 * 128 * kind.bits // 8)
    size = torch.Size(shape).numel()
    room = torch.full((size + 64,), 0xA5, dtype=torch.uint8, device=values.device)
    found = torch.zeros(1, dtype=torch.int32, device=values.device)
    codes = room[:size].view(shape)
    smallest = -kind.half if kind.signed else 0
    C.pack_codes(values, codes, found, ELEMENTS[kind.element], kind.places is not None, smallest, kind.offset, pairs)
    assert (room[size:] == 0xA5).all()
    return codes.cpu(), int(found)


@pytest.mark.sampled(48)
@pytest.mark.parametrize("device", EVERY_DEVICE, indirect=True)
@EVERY_KIND
def test_codes_lie_as_torch_packs_them(device, kind) -> None:
    codes = random_codes(kind, (2, 130, 272))
    blocks, found = packed(kind, codes.to(device))
    assert torch.equal(blocks, wanted(kind, codes))
    assert found == 0


@pytest.mark.parametrize("device", FEW, indirect=True)
@OF_FOUR_BITS
def test_two_codes_a_byte_lie_as_codes_do(device, kind) -> None:
    codes = random_codes(kind, (2, 130, 272))
    blocks, found = packed(kind, pack_int4(codes << 4 >> 4).to(device), pairs=True)
    assert torch.equal(blocks, wanted(kind, codes))
    assert found == 0


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        *((name, pairs) for name in ("sign_and_magnitude", "unsigned", "wide_with_zeros") for pairs in (False, True)),
        ("wide_e4m3", False),
        ("wide_unsigned_bytes", False),
    ],
)
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
        ("wide", 8, OUT_OF_RANGE),
        ("wide_e4m3", 127, OUT_OF_RANGE),
        ("wide_e4m3", -1, OUT_OF_RANGE),
        ("wide_e4m3", 126, 0),
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
    C.pack_scales(scales.to(device), out, n, 1, given, kept, 64)
    spread = exact.repeat_interleave(given // kept, -1)[..., : out.shape[1]].transpose(1, 2) * 64
    count = spread.shape[1]
    assert torch.equal(out[:, :count, :n].cpu(), spread)
    assert not out[:, count:].any()
    assert not out[:, :, n:].any()


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("lying", ["k_first", "rows_first"])
def test_scales_of_blocks_are_those_of_each_of_their_rows(device, lying) -> None:
    groups, n, k = 2, 290, 640
    scales = torch.rand((groups, 3, k // 128), generator=torch.Generator().manual_seed(0))
    out = torch.full((groups, k // 128, 384), torch.nan, device=device)
    given = scales.mT.contiguous().mT if lying == "rows_first" else scales
    C.pack_scales(given.to(device), out, n, 128, 128, 128, 256)
    assert torch.equal(out[:, :, :n].cpu(), scales.repeat_interleave(128, 1)[:, :n].mT * 256)
    assert not out[:, :, n:].any()


@pytest.mark.gpu
def test_packing_a_large_matrix(cuda) -> None:
    codes = torch.randint(-7, 8, (1, 4096 + 64, 7168), dtype=torch.int8, device=cuda)
    blocks, found = packed("sign_and_magnitude", codes)
    assert torch.equal(blocks, wanted("sign_and_magnitude", codes).cpu())
    assert found == 0
