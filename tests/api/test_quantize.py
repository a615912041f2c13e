"""The quantisers of deep_gemm.utils, value by value against their formulas in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from deep_gemm import pack_weights, utils

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def fp32(x: float) -> float:
    """Rounded. (A quotient of two FP32 numbers may be rounded to FP64 first: the result is the same.)"""
    return torch.tensor(x, dtype=torch.float64).float().item()


def rounded(x: float, scale: float) -> int:
    return round(fp32(x / scale))  # halves to even


def int8_symmetric(row):
    scale = fp32(max(fp32(1e-4), *map(abs, row)) / 127)
    return [max(-127, min(127, rounded(x, scale))) for x in row], scale


def int8_asymmetric(row):
    low, high = min(0.0, *row), max(0.0, *row)
    scale = fp32(max(fp32(1e-4), fp32(high - low)) / 255)
    zero = -128 - rounded(low, scale)
    return [max(-128, min(127, rounded(x, scale) + zero)) for x in row], scale, zero


def int4_symmetric(group):
    scale = fp32(max(fp32(1e-4), *map(abs, group)) / 7)
    return [max(-7, min(7, rounded(x, scale))) for x in group], scale


def int4_asymmetric(group):
    low, high = min(0.0, *group), max(0.0, *group)
    scale = fp32(max(fp32(1e-4), fp32(high - low)) / 15)
    zero = -rounded(low, scale)
    return [max(0, min(15, rounded(x, scale) + zero)) for x in group], scale, zero


def mxfp4(group):
    wanted = fp32(max(fp32(1e-4), *map(abs, group)) / 6)
    mantissa, exponent = math.frexp(wanted)
    exponent = exponent - 1 if mantissa == 0.5 else exponent
    codes = []
    for x in group:
        magnitude = abs(x) / 2.0**exponent
        code = min(range(8), key=lambda c: (abs(E2M1[c] - magnitude), c % 2))
        codes.append(code + 8 if x < 0 and code else code)
    return codes, exponent + 127


def rows_of_every_kind(columns: int) -> torch.Tensor:
    """Normal numbers, zeros, ties, one sign only, tiny and huge ones, one large value among small ones."""
    generator = torch.Generator().manual_seed(columns)
    rows = [torch.randn(columns, generator=generator) * 10.0**power for power in (-8, -4, -1, 0, 3, 30)]
    rows += [rows[3].abs(), -rows[3].abs(), torch.zeros(columns), torch.full((columns,), -2.5)]
    rows += [torch.nn.functional.pad(torch.tensor([100.0]), (0, columns - 1))]
    halves = torch.arange(columns - 2) % 14 - 6.5
    # The first two make the scale 1: of the symmetric casts, and of the asymmetric ones with zero points even and odd.
    ends = [(7, 0), (-7, 0), (127, 0), (-6, 9), (-7, 8), (-126, 129), (-127, 128)]
    rows += [torch.cat((torch.tensor(pair), halves)) for pair in ends]
    rows += [torch.cat((torch.tensor((-6, 0)), halves.clamp(-6, 6) / 2)), torch.cat((torch.tensor((6, 0)), halves / 4))]
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("quantize", "formula"),
    [
        (utils.per_token_cast_to_int8, int8_symmetric),
        (lambda x: utils.per_token_cast_to_int8(x, symmetric=False), int8_asymmetric),
        (utils.per_channel_cast_to_int8, int8_symmetric),
        (lambda x: utils.quantize_to_int4(x, None), int4_symmetric),
        (lambda x: utils.quantize_to_int4(x, None, symmetric=False), int4_asymmetric),
        (utils.quantize_to_mxfp4, mxfp4),
    ],
    ids=["int8", "int8_asymmetric", "int8_channel", "int4", "uint4", "mxfp4"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_value_is_that_of_the_formula(quantize, formula, dtype) -> None:
    x = rows_of_every_kind(32).to(dtype)
    got = quantize(x)
    for row, values in enumerate(x.float().tolist()):
        for tensor, wanted in zip(got, formula(values), strict=True):
            assert tensor[row].flatten().tolist() == (wanted if isinstance(wanted, list) else [wanted])


@pytest.mark.parametrize("symmetric", [True, False])
def test_int4_groups_are_quantised_by_themselves(symmetric) -> None:
    w = torch.randn((2, 5, 96), generator=torch.Generator().manual_seed(0))
    whole = utils.quantize_to_int4(w, 32, symmetric)
    assert [tensor.shape for tensor in whole[1:]] == [(2, 5, 3)] * (len(whole) - 1)
    for group in range(3):
        columns = slice(32 * group, 32 * group + 32)
        values, *scales = utils.quantize_to_int4(w[..., columns], None, symmetric)
        assert torch.equal(whole[0][..., columns], values)
        assert all(torch.equal(a[..., group], b) for a, b in zip(whole[1:], scales, strict=True))


def test_mxfp4_is_what_the_cast_to_fp4_gives() -> None:
    w = rows_of_every_kind(64)
    codes, exponents = utils.quantize_to_mxfp4(w)
    packed, scales = utils.per_token_cast_to_fp4(w, use_ue8m0=True, gran_k=32)
    assert (codes.dtype, exponents.dtype, exponents.shape) == (torch.uint8, torch.uint8, (len(w), 2))
    assert torch.equal(codes[:, 0::2] | codes[:, 1::2] << 4, packed.view(torch.uint8))
    assert torch.equal(2.0 ** (exponents.float() - 127), scales)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group_size", [None, 64])
def test_quantised_weights_are_those_that_pack(symmetric, group_size) -> None:
    w = torch.randn((3, 70, 192), generator=torch.Generator().manual_seed(1))
    values, scales, *zeros = utils.quantize_to_int4(w, group_size, symmetric)
    element = "int4" if symmetric else "uint4"
    packed = pack_weights(values, scales, *zeros, element=element, activations="fp8", group_size=group_size)
    assert not symmetric or not packed.holds_minus_eight
    largest_step = scales.amax() / 2 * 1.0001
    assert bool(((packed.dequantize() - w).abs() <= largest_step).all())


def test_packed_int4_has_the_first_value_in_the_low_nibble() -> None:
    assert utils.pack_int4(torch.tensor([[1, 2, -1, -8]], dtype=torch.int8)).tolist() == [[0x21, 0x8F - 256]]


def test_every_pair_of_int4_values_comes_back() -> None:
    values = torch.arange(-8, 8, dtype=torch.int8)
    pairs = torch.cartesian_prod(values, values).view(2, 16, 16)
    packed = utils.pack_int4(pairs)
    assert (packed.dtype, packed.shape) == (torch.int8, (2, 16, 8))
    assert torch.equal(utils.unpack_int4(packed), pairs)
    assert torch.equal(utils.unpack_int4(packed.view(torch.uint8)), pairs)
    assert torch.equal(
        utils.unpack_int4(packed.transpose(1, 2)), utils.unpack_int4(packed.transpose(1, 2).contiguous())
    )


BYTES = torch.zeros((2, 4), dtype=torch.int8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: utils.quantize_to_int4(torch.ones(2, 48), 32), ValueError, "multiple of the group of 32, got 48"),
        (lambda: utils.quantize_to_mxfp4(torch.ones(2, 48)), ValueError, "multiple of the group of 32, got 48"),
        (lambda: utils.quantize_to_int4(torch.ones(2, 48), 0), ValueError, "group_size must be at least 1, got 0"),
        (lambda: utils.quantize_to_int4(torch.ones(48), 16), ValueError, r"\[\.\.\., N, K\].*got shape \[48\]"),
        (lambda: utils.quantize_to_int4(torch.ones(0, 32), 32), ValueError, r"none of them 0"),
        (lambda: utils.quantize_to_int4(BYTES, 4), TypeError, "floating-point"),
        (lambda: utils.quantize_to_int4(torch.full((1, 32), torch.inf), 32), ValueError, "w must be finite"),
        (lambda: utils.quantize_to_mxfp4(torch.full((1, 32), torch.nan)), ValueError, "w must be finite"),
        (lambda: utils.pack_int4(BYTES + 8), ValueError, "within -8..7"),
        (lambda: utils.pack_int4(BYTES - 9), ValueError, "within -8..7"),
        (lambda: utils.pack_int4(BYTES[:, :3]), ValueError, r"even last dimension.*\[2, 3\]"),
        (lambda: utils.pack_int4(BYTES.int()), TypeError, "torch.int8, got torch.int32"),
        (lambda: utils.unpack_int4(BYTES.int()), TypeError, "torch.uint8, got torch.int32"),
        (lambda: utils.unpack_int4(BYTES[0, 0]), ValueError, "got a scalar"),
    ],
)
def test_what_cannot_be_quantised_is_refused(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
