"""Zero points of packed weights, and integer scales of groups within others: what is stored, and what is refused."""

from __future__ import annotations

import pickle

import pytest
import torch
from packed_inputs import FORMATS, matrix_of, random, same, two_levels, values_of, wanted, weights

from deep_gemm import PackedWeights, pack_weights


def unsigned(words, first):
    """As kernels take a code from which something is subtracted."""
    return (words & 15 if first else words >> 4).view(torch.int8)


@pytest.mark.parametrize("element", ["int4", "uint4"])
@pytest.mark.parametrize("activations", ["int8", "fp8"])
def test_words_of_zero_points_say_what_kernels_do_to_unsigned_codes(element, activations) -> None:
    arguments = weights(element, activations, (128, 256), 64)
    if element == "int4":
        arguments["zeros"] = random((128, 4), -9, 8).to(torch.int32)
    packed = pack_weights(**arguments)
    smallest = 0 if element == "uint4" else -8
    assert torch.equal(matrix_of(packed.codes[0], unsigned), arguments["values"] - smallest)
    zeros = arguments["zeros"] - smallest
    if activations == "fp8":
        assert torch.equal(
            packed.zeros[0].T.contiguous().view(torch.int8).view(128, 4, 4), zeros.unsqueeze(2).expand(-1, -1, 4)
        )
    else:
        assert torch.equal(packed.zeros[0].T, (1 << 16) + 128 - zeros)
    assert packed.scale_factor == (512 if activations == "fp8" else 1)
    assert torch.equal(packed.scales[0].T, arguments["scales"] * packed.scale_factor)


def test_words_of_zero_points_for_16_bits_hold_what_is_added_in_both_formats() -> None:
    arguments = weights("uint4", "bf16", (128, 256), 64)
    packed = pack_weights(**arguments)
    halves = packed.zeros[0].T.contiguous().view(torch.int16).view(128, 4, 2)
    for half, dtype in enumerate((torch.bfloat16, torch.float16)):
        assert torch.equal(halves[..., half].contiguous().view(dtype).float() * 512, -arguments["zeros"].float())
    assert packed.scale_factor == 512


def test_words_of_two_levels_hold_the_integer_scale_too() -> None:
    arguments = two_levels("uint4", (128, 256), 64)
    packed = pack_weights(**arguments)
    factors = arguments["scales"].int()
    low = (128 - 8 * factors).to(torch.int16)
    assert torch.equal(
        packed.zeros[0].T.contiguous().view(torch.int16).view(128, 4, 2), torch.stack((low, factors.to(torch.int16)), 2)
    )
    assert torch.equal(packed.scales[0], arguments["second_scales"].unsqueeze(0))
    assert (packed.scale_group, packed.zero_group) == (None, 64)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("element", ["int4", "uint4"])
@pytest.mark.parametrize("group_size", [None, 32, 96, 128], ids=str)
@pytest.mark.parametrize("shape", [(130, 768), (3, 64, 768)], ids=str)
def test_two_levels_of_scales_come_back_exactly(element, group_size, shape) -> None:
    arguments = two_levels(element, shape, group_size)
    packed, whole = pack_weights(**arguments), wanted(arguments)
    assert packed.two_levels
    assert torch.equal(packed.dequantize(), whole)
    assert same(pickle.loads(pickle.dumps(packed)), packed)
    assert same(PackedWeights.from_state_dict(packed.state_dict("w."), "w."), packed)
    assert torch.equal(packed.slice_n(0, 64).dequantize(), whole[..., :64, :])
    assert torch.equal(packed.slice_k(0, 768).dequantize(), whole)
    if group_size in (32, 128):
        assert torch.equal(packed.slice_k(128, 640).dequantize(), whole[..., 128:640])
    if len(shape) == 3:
        new = two_levels(element, shape[1:], group_size, seed=7)
        packed[1] = pack_weights(**new)
        assert torch.equal(packed[1].dequantize(), wanted(new))
        assert torch.equal(packed[2].dequantize(), whole[2])


def test_one_second_scale_for_all_rows() -> None:
    arguments = two_levels("int4", (2, 64, 128), 32)
    for second in (0.25, torch.tensor(0.25), torch.full((2, 64), 0.25), [torch.full((64,), 0.25)] * 2):
        packed = pack_weights(**{**arguments, "second_scales": second})
        assert torch.equal(packed.dequantize(), wanted({**arguments, "second_scales": torch.full((2, 64), 0.25)}))


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({"activations": "fp8", "zeros": 17}, -17),
        ({"activations": "fp8", "zeros": -2}, 17),
        ({"activations": "bf16", "zeros": 241}, -241),
        ({"activations": "int8", "zeros": 129}, -129),
        ({"activations": "int8", "zeros": -113}, 128),
        ({"activations": "int8", "zeros": 8, "factor": 17}, -136),
        ({"activations": "int8", "zeros": 7, "factor": 16}, 128),
    ],
)
def test_values_that_kernels_cannot_multiply_are_refused(changed, value) -> None:
    """By the codes that are there: one step nearer they are packed."""
    activations, zero, factor = changed["activations"], changed["zeros"], changed.get("factor")
    values = torch.tensor([0, 15], dtype=torch.int8).repeat(4, 64)
    scales = torch.ones(4, 2) if factor is None else torch.full((4, 2), factor, dtype=torch.int8)
    zeros = torch.full((4, 2), zero, dtype=torch.int32)
    arguments = {"element": "uint4", "activations": activations, "group_size": 64}
    arguments["second_scales"] = None if factor is None else 1.0
    low, high = {"fp8": (-16, 16), "bf16": (-240, 240), "int8": (-128, 127)}[activations]
    with pytest.raises(ValueError, match=rf"within {low}..{high} for '{activations}' activations, but one is {value}"):
        pack_weights(values, scales, zeros, **arguments)
    values[values == (0 if value < 0 else 15)] += 1 if value < 0 else -1
    assert pack_weights(values, scales, zeros, **arguments).needs_zeros


def test_zero_points_of_gptq_reach_16() -> None:
    values, zeros = values_of("uint4", (64, 128)), torch.full((64, 2), 16, dtype=torch.uint8)
    packed = pack_weights(values, torch.ones(64, 2), zeros, element="uint4", activations="fp8", group_size=64)
    assert torch.equal(packed.dequantize(), values - 16.0)


@pytest.mark.parametrize(("element", "activations"), FORMATS)
@pytest.mark.parametrize("smallest", [-8, -7])
def test_an_expert_without_zero_points_goes_into_a_stack_that_has_them(element, activations, smallest) -> None:
    kind = {"element": element, "activations": activations, "group_size": 32}
    arguments = weights(shape=(2, 64, 128), **kind)
    if element == "int4":
        arguments["zeros"] = torch.ones((2, 64, 4), dtype=torch.int32)
    packed = pack_weights(**arguments)
    new = weights(shape=(64, 128), seed=5, smallest=smallest + (8 if element == "uint4" else 0), **kind)
    if element == "uint4":
        new["zeros"].fill_(8)
    one = pack_weights(**new)
    assert packed.needs_zeros
    assert not one.needs_zeros
    packed.write(0, one)
    assert torch.equal(packed[0].dequantize(), wanted(new))


def test_levels_of_scales_do_not_mix() -> None:
    stack = pack_weights(**two_levels("uint4", (2, 64, 128), 32))
    with pytest.raises(ValueError, match="two_levels must be True, got False"):
        stack[0] = pack_weights(**weights("uint4", "int8", (64, 128), 32))


def test_zero_points_do_not_go_into_a_stack_without() -> None:
    arguments = weights("uint4", "int8", (2, 64, 128), 32)
    packed = pack_weights(**{**arguments, "zeros": torch.full_like(arguments["zeros"], 8)})
    with pytest.raises(ValueError, match="new weights have zero points"):
        packed[0] = pack_weights(**weights("uint4", "int8", (64, 128), 32))
