"""pack_weights and PackedWeights: nothing is lost, and every code lies where the kernels look for it."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deep_gemm import PackedWeights, pack_weights
from deep_gemm.utils import pack_int4
from deep_gemm.weights import codes as code
from deep_gemm.weights import pack
from deep_gemm.weights.pack import Matrix, pack_matrices

FORMATS = [(element, activations) for element in ("int4", "uint4") for activations in ("int8", "fp8", "bf16")]
GROUPS = [None, 32, 64, 128, 96, 192, 256]


def random(shape, low, high, seed=0) -> torch.Tensor:
    return torch.randint(low, high + 1, tuple(shape), generator=torch.Generator().manual_seed(seed))


def values_of(element, shape, seed=0, smallest=None) -> torch.Tensor:
    low, high = {"int4": (-8, 7), "uint4": (0, 15)}[element]
    return random(shape, low if smallest is None else smallest, high, seed).to(torch.int8)


def weights(element, activations, shape, group_size, seed=0, smallest=None) -> dict:
    """Arguments of pack_weights."""
    *_, k = shape
    groups = shape[:-1] if group_size is None else (*shape[:-1], k // group_size)
    generator = torch.Generator().manual_seed(seed)
    return {
        "values": values_of(element, shape, seed, smallest),
        "scales": torch.rand(groups, generator=generator) + 0.01,
        "zeros": random(groups, 0, 15, seed + 1).to(torch.int32) if element == "uint4" else None,
        "element": element,
        "activations": activations,
        "group_size": group_size,
    }


def two_levels(element, shape, group_size, seed=0) -> dict:
    """The same with integer scales of groups, whose products with codes reach both ends of s8."""
    arguments = weights(element, "int8", shape, group_size, seed)
    scales = random(arguments["scales"].shape, -8, 8, seed + 2).to(torch.int8)
    scales[..., ::2] = 16
    if element == "uint4":
        arguments["zeros"] = torch.full(scales.shape, 8, dtype=torch.int32)
    return {**arguments, "scales": scales, "second_scales": torch.rand(shape[:-1]) + 0.01}


def wanted(arguments) -> torch.Tensor:
    """scale * (q - zero), of FP32 scales, and times the second scale in FP32 where there is one."""
    values, scales, zeros = arguments["values"], arguments["scales"], arguments["zeros"]
    second = arguments.get("second_scales")
    if arguments["group_size"] is None:
        scales, zeros = scales.unsqueeze(-1), zeros if zeros is None else zeros.unsqueeze(-1)
    group = values.shape[-1] // scales.shape[-1]
    difference = values.int() if zeros is None else values.int() - zeros.int().repeat_interleave(group, -1)
    scaled = difference.float() * scales.repeat_interleave(group, -1)
    return scaled if second is None else scaled * second.unsqueeze(-1)


def places():
    """Of a block: row, k, the byte, and whether the code is the first one there."""
    for warp, half, r in itertools.product(range(4), range(2), range(8)):
        for v, s, h, quad, byte in itertools.product(range(2), range(2), range(2), range(4), range(4)):
            row, k = 16 * warp + 8 * half + r, 64 * v + 32 * s + 16 * h + 4 * quad + byte
            yield row, k, v * 2048 + (32 * warp + 4 * r + quad) * 16 + s * 8 + h * 4 + byte, half == 0


PLACES = torch.tensor(list(places()))


def matrix_of(codes: torch.Tensor, take) -> torch.Tensor:
    """[rows, K] of [rows / 64, K / 128, 4096]: what `take(words of 4 bytes, whether first)` says of each code."""
    row, k, place, first = PLACES.T
    n_blocks, k_blocks, _ = codes.shape
    words = codes.view(n_blocks, k_blocks, -1, 4)
    halves = torch.stack([take(words, True), take(words, False)]).view(2, n_blocks, k_blocks, -1)
    blocks = torch.zeros((n_blocks, k_blocks, 64, 128), dtype=halves.dtype)
    blocks[:, :, row, k] = halves.permute(1, 2, 0, 3)[:, :, 1 - first, place]
    return blocks.transpose(1, 2).reshape(n_blocks * 64, k_blocks * 128)


def high_nibbles(words, first):
    """As kernels convert for INT8: 16 times the value."""
    return (words << 4 if first else words & 0xF0).view(torch.int8)


def e4m3_of_sign_and_magnitude(words, first):
    """As kernels convert for FP8: a word rotated left by 4, and masked."""
    word = words.contiguous().view(torch.int32).long() & 0xFFFFFFFF
    turned = word if first else (word << 4 | word >> 28)
    masked = turned & 0x87878787
    return torch.where(masked >= 1 << 31, masked - (1 << 32), masked).int().view(torch.float8_e4m3fn).float()


def padded(values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(values, (0, -values.shape[1] % 128, 0, -values.shape[0] % 128))


@pytest.mark.parametrize("shape", [(128, 128), (130, 2880)], ids=str)
def test_codes_for_int8_lie_where_the_kernel_looks_for_them(shape) -> None:
    packed = pack_weights(**weights("int4", "int8", shape, None))
    assert packed.codes.shape == (1, -(-shape[0] // 128) * 2, -(-shape[1] // 128), 4096)
    assert torch.equal(matrix_of(packed.codes[0], high_nibbles), padded(values_of("int4", shape)) * 16)


@pytest.mark.parametrize("shape", [(128, 128), (130, 2880)], ids=str)
def test_codes_for_fp8_are_subnormal_e4m3_once_masked(shape) -> None:
    packed = pack_weights(**weights("int4", "fp8", shape, None, smallest=-7))
    values = values_of("int4", shape, smallest=-7)
    assert not packed.holds_minus_eight
    assert torch.equal(matrix_of(packed.codes[0], e4m3_of_sign_and_magnitude), padded(values) * 2.0**-9)


def test_one_code_of_minus_eight_makes_the_whole_stack_twos_complement() -> None:
    arguments = weights("int4", "fp8", (2, 128, 256), 128, smallest=-7)
    arguments["values"][1, 77, 200] = -8
    packed = pack_weights(**arguments)
    assert packed.holds_minus_eight
    assert torch.equal(matrix_of(packed.codes[0], high_nibbles), arguments["values"][0] * 16)
    assert torch.equal(packed.scales.transpose(1, 2), arguments["scales"] * 512)
    assert torch.equal(packed.dequantize(), wanted(arguments))


@pytest.mark.parametrize(("element", "activations"), FORMATS)
def test_every_code_in_every_place_of_a_block_comes_back(element, activations) -> None:
    smallest = -7 if (element, activations) == ("int4", "fp8") else {"int4": -8, "uint4": 0}[element]
    count = 15 if smallest == -7 else 16
    place = torch.arange(128 * 128).view(128, 128)
    for shift in range(count):
        values = ((place + shift) % count + smallest).to(torch.int8)
        zeros = torch.full((128,), 8, dtype=torch.int32) if element == "uint4" else None
        packed = pack_weights(values, torch.ones(128), zeros, element=element, activations=activations)
        assert not packed.needs_zeros
        assert torch.equal(packed.dequantize(), values.float() - (8 if element == "uint4" else 0))


@pytest.mark.parametrize(("element", "activations"), FORMATS)
@pytest.mark.parametrize("group_size", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [(130, 768), (3, 64, 768)], ids=str)
def test_weights_come_back_exactly(element, activations, group_size, shape) -> None:
    arguments = weights(element, activations, shape, group_size)
    packed = pack_weights(**arguments)
    assert packed.shape == shape
    assert packed.needs_zeros == (element == "uint4")
    assert torch.equal(packed.dequantize(), wanted(arguments))
    assert torch.equal(packed.dequantize(torch.bfloat16), wanted(arguments).bfloat16())


@pytest.mark.parametrize("activations", ["int8", "fp8"])
def test_a_k_that_is_no_multiple_of_128(activations) -> None:
    arguments = weights("uint4", activations, (5, 2880), 32)
    packed = pack_weights(**arguments)
    assert packed.scales.shape == packed.zeros.shape == (1, 92, 128)
    assert packed.scale_group == packed.zero_group == 32
    assert torch.equal(packed.dequantize(), wanted(arguments))


@pytest.mark.parametrize(
    ("activations", "group_size", "groups", "factor"),
    [
        ("int8", None, 1, 1 / 16),
        ("int8", 32, 12, 1 / 16),
        ("int8", 384, 3, 1 / 16),
        ("fp8", None, 3, 512),
        ("fp8", 64, 6, 512),
        ("fp8", 384, 3, 512),
    ],
)
def test_scales_lie_as_kernels_read_them(activations, group_size, groups, factor) -> None:
    arguments = weights("int4", activations, (130, 384), group_size, smallest=-7)
    packed = pack_weights(**arguments)
    assert packed.scales.shape == (1, groups, 256)
    assert packed.scale_factor == factor
    given = arguments["scales"] if group_size else arguments["scales"].unsqueeze(1)
    assert torch.equal(packed.scales[0, :, :130].T, given.repeat_interleave(groups // given.shape[1], 1) * factor)
    assert not packed.scales[0, :, 130:].any()


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.uint8], ids=str)
def test_scales_of_every_type_are_taken_exactly(dtype) -> None:
    values = values_of("int4", (4, 128))
    if dtype == torch.uint8:
        scales, exact = torch.tensor([[0], [1], [127], [240]], dtype=dtype), 2.0 ** torch.tensor([-127, -126, 0, 113])
    else:
        scales = torch.tensor([[0.1], [3.7], [0.02], [200.0]]).to(dtype)
        exact = scales.float().squeeze(1)
    packed = pack_weights(values, scales, element="int4", activations="fp8", group_size=128)
    assert torch.equal(packed.dequantize(), values * exact.float().unsqueeze(1))


@pytest.fixture
def with_kernel(monkeypatch) -> None:
    """CPU tensors are packed as those of a GPU are, on the simulator."""
    monkeypatch.setattr(pack, "_write_with_torch", pack._write_with_kernel)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("element", "activations", "smallest"),
    [*((*pair, None) for pair in FORMATS if pair[1] != "bf16"), ("int4", "fp8", -7), ("e2m1", "fp8", None)],
)
def test_the_kernel_packs_the_same_bits(element, activations, smallest, packed, request) -> None:
    """Also where it finds a -8 and has to pack again, and in parts."""
    arguments = weights("int4" if element == "int4" else "uint4", activations, (2, 150, 384), 32, smallest=smallest)
    arguments["element"] = element
    if element == "e2m1":
        arguments["zeros"] = None
    if packed:
        arguments |= {"values": pack_int4((arguments["values"] << 4) >> 4), "packed": True}
    by_torch = pack_weights(**arguments)
    request.getfixturevalue("with_kernel")
    request.getfixturevalue("monkeypatch").setattr(code, "_VALUES_AT_ONCE", 1)
    assert same(pack_weights(**arguments), by_torch)


@pytest.mark.parametrize(("element", "value"), [("int4", 8), ("int4", -9), ("uint4", -1), ("uint4", 16), ("e2m1", 99)])
def test_the_kernel_refuses_the_same_values(element, value, with_kernel) -> None:
    values = torch.zeros((40, 128), dtype=torch.int8)
    values[39, 127] = value
    zeros = torch.zeros((40, 1), dtype=torch.int32) if element == "uint4" else None
    with pytest.raises(ValueError, match=rf"values of '{element}' must lie within .*, but one is {value}"):
        pack_weights(values, torch.ones(40, 1), zeros, element=element, activations="fp8", group_size=128)


def test_a_matrix_larger_than_one_part_is_packed_like_its_parts(monkeypatch) -> None:
    arguments = weights("uint4", "fp8", (500, 256), 64)
    whole = pack_weights(**arguments)
    monkeypatch.setattr(code, "_VALUES_AT_ONCE", 1)
    parts = pack_weights(**arguments)
    assert torch.equal(whole.codes, parts.codes)
    assert torch.equal(parts.dequantize(), wanted(arguments))


def test_no_more_than_a_part_lies_unpacked(monkeypatch) -> None:
    asked = []

    def read(first: int, last: int) -> torch.Tensor:
        asked.append((first, last))
        return torch.ones((last - first, 256), dtype=torch.int8)

    monkeypatch.setattr(code, "_VALUES_AT_ONCE", 256 * 256)
    matrices = [Matrix(600, 256, read, torch.ones(600))] * 2
    pack_matrices(matrices, is_stack=True, element="int4", activations="int8", group_size=None)
    assert asked == [(0, 256), (256, 512), (512, 600)] * 2


@pytest.mark.parametrize("element", ["int4", "uint4"])
def test_packed_values_give_the_same_weights(element) -> None:
    arguments = weights(element, "int8", (2, 100, 256), 64)
    pairs = pack_int4(arguments["values"] if element == "int4" else (arguments["values"] << 4) >> 4)
    packed = pack_weights(**{**arguments, "values": pairs}, packed=True)
    assert torch.equal(packed.codes, pack_weights(**arguments).codes)


def test_values_may_have_any_strides() -> None:
    arguments = weights("int4", "int8", (128, 256), 64)
    strided = {"values": arguments["values"].T.contiguous().T, "scales": arguments["scales"].T.contiguous().T}
    assert same(pack_weights(**{**arguments, **strided}), pack_weights(**arguments))


def test_a_sequence_of_experts_is_a_stack() -> None:
    arguments = weights("uint4", "int8", (3, 64, 128), 32)
    lists = {name: arguments[name].unbind(0) for name in ("values", "scales", "zeros")}
    packed = pack_weights(**{**arguments, **lists})
    assert packed.shape == (3, 64, 128)
    assert torch.equal(packed.dequantize(), wanted(arguments))


def same(a: PackedWeights, b: PackedWeights) -> bool:
    (tensors_a, data_a), (tensors_b, data_b) = a.tensors(), b.tensors()
    return data_a == data_b and all(map(torch.equal, tensors_a, tensors_b))


@pytest.mark.parametrize(("element", "activations"), FORMATS)
def test_weights_survive_tensors_state_dict_and_pickle(element, activations) -> None:
    packed = pack_weights(**weights(element, activations, (2, 64, 256), 64))
    tensors, metadata = packed.tensors()
    assert same(PackedWeights.from_tensors(tensors, metadata), packed)
    assert same(pickle.loads(pickle.dumps(packed)), packed)
    assert same(copy.deepcopy(packed), packed)
    file = io.BytesIO()
    torch.save(packed.state_dict("layer.0."), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert same(PackedWeights.from_state_dict(state, "layer.0."), packed)


def test_weights_of_a_later_layout_are_refused() -> None:
    tensors, metadata = pack_weights(**weights("int4", "int8", (64, 128), None)).tensors()
    with pytest.raises(ValueError, match=r"version 3 of the layout, but this release reads 2: pack them again"):
        PackedWeights.from_tensors(tensors, {**metadata, "version": 3})
    with pytest.raises(ValueError, match=r"metadata names 3 tensors \(codes, scales, sums\), but 1 came"):
        PackedWeights.from_tensors(tensors[:1], metadata)
    with pytest.raises(ValueError, match=r"codes must be a contiguous torch.uint8 tensor of shape \[1, 2, 1, 4096\]"):
        PackedWeights.from_tensors((tensors[0][:, :1], *tensors[1:]), metadata)
    with pytest.raises(ValueError, match=r"state has no w.metadata"):
        PackedWeights.from_state_dict({}, "w.")


@pytest.mark.parametrize(("element", "activations"), FORMATS)
@pytest.mark.parametrize("group_size", [None, 64, 256], ids=str)
@pytest.mark.parametrize("shape", [(330, 512), (2, 330, 512)], ids=str)
def test_slices_are_those_of_the_weights(element, activations, group_size, shape) -> None:
    arguments = weights(element, activations, shape, group_size)
    packed, whole = pack_weights(**arguments), wanted(arguments)
    for start, stop in [(0, 128), (64, 128), (64, 320), (128, 330), (0, 330)]:
        part = packed.slice_n(start, stop)
        assert part.shape == (*shape[:-2], stop - start, shape[-1])
        assert torch.equal(part.dequantize(), whole[..., start:stop, :])
    for start, stop in [(0, 256), (256, 512)]:
        part = packed.slice_k(start, stop)
        assert part.shape == (*shape[:-1], stop - start)
        assert torch.equal(part.dequantize(), whole[..., start:stop])


def test_a_slice_is_packed_as_the_part_by_itself_would_be() -> None:
    arguments = weights("int4", "fp8", (256, 256), 128, smallest=-7)
    part = {name: arguments[name][64:128] for name in ("values", "scales")}
    assert same(pack_weights(**arguments).slice_n(64, 128), pack_weights(**{**arguments, **part}))
    part = {"values": arguments["values"][:, 128:], "scales": arguments["scales"][:, 1:]}
    assert same(pack_weights(**arguments).slice_k(128, 256), pack_weights(**{**arguments, **part}))


@pytest.mark.parametrize("cut", [lambda w: w.slice_n(0, 128), lambda w: w.slice_k(0, 256)], ids=["n", "k"])
def test_a_slice_is_a_copy(cut) -> None:
    arguments = weights("uint4", "int8", (128, 256), None)
    packed = pack_weights(**arguments)
    for tensor in cut(packed).tensors()[0]:
        tensor.zero_()
    assert torch.equal(packed.dequantize(), wanted(arguments))


def test_the_last_slice_of_an_odd_k() -> None:
    arguments = weights("int4", "int8", (64, 480), 32)
    assert torch.equal(pack_weights(**arguments).slice_k(128, 480).dequantize(), wanted(arguments)[:, 128:])


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda w: w.slice_n(32, 128), r"multiples of 64 \(stop may be N=256\).*are 32 and 128"),
        (lambda w: w.slice_n(0, 100), r"multiples of 64"),
        (lambda w: w.slice_n(128, 128), r"within N=256, start first, but are 128 and 128"),
        (lambda w: w.slice_n(0, 320), r"within N=256"),
        (lambda w: w.slice_k(128, 256), r"multiples of 256 \(stop may be K=512\), because groups and blocks"),
        (lambda w: w[0:2:2], r"must take neighbours"),
        (lambda w: w[1:1], r"must take neighbours"),
    ],
)
def test_slices_that_would_cut_what_lies_together_are_refused(cut, message) -> None:
    packed = pack_weights(**weights("int4", "int8", (2, 256, 512), 256))
    with pytest.raises(ValueError, match=message):
        cut(packed)


def test_experts_are_picked_without_a_copy() -> None:
    arguments = weights("uint4", "fp8", (4, 64, 256), 128)
    packed, whole = pack_weights(**arguments), wanted(arguments)
    assert packed[-1].shape == (64, 256)
    assert torch.equal(packed[-1].dequantize(), whole[3])
    assert torch.equal(packed[1:3].dequantize(), whole[1:3])
    assert packed[2].codes.data_ptr() == packed.codes[2].data_ptr()
    assert [expert.shape for expert in packed] == [(64, 256)] * 4
    with pytest.raises(IndexError, match="one of 4 experts, but is 4"):
        packed[4]
    with pytest.raises(TypeError, match="only stacks"):
        packed[0][0]


@pytest.mark.parametrize(("element", "activations"), FORMATS)
def test_an_expert_is_replaced_where_it_lies(element, activations) -> None:
    arguments = weights(element, activations, (3, 100, 256), 64)
    new = weights(element, activations, (100, 256), 64, seed=9)
    packed, one = pack_weights(**arguments), pack_weights(**new)
    addresses = [tensor.data_ptr() for tensor in packed.tensors()[0]]
    packed[1] = one
    whole = wanted(arguments)
    whole[1] = wanted(new)
    assert torch.equal(packed.dequantize(), whole)
    assert [tensor.data_ptr() for tensor in packed.tensors()[0]] == addresses


def test_an_expert_without_minus_eight_goes_into_a_stack_that_holds_it() -> None:
    packed = pack_weights(**weights("int4", "fp8", (2, 64, 128), 32))
    new = weights("int4", "fp8", (64, 128), 32, seed=5, smallest=-7)
    one = pack_weights(**new)
    assert packed.holds_minus_eight
    assert not one.holds_minus_eight
    packed.write(0, one)
    assert torch.equal(packed[0].dequantize(), wanted(new))


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
    with pytest.raises(ValueError, match="two_levels must be True, but is False"):
        stack[0] = pack_weights(**weights("uint4", "int8", (64, 128), 32))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shape": (64, 256)}, r"one matrix of \[64, 128\] is wanted, but the shape is \[64, 256\]"),
        ({"shape": (1, 64, 128)}, r"but the shape is \[1, 64, 128\]"),
        ({"group_size": None}, "group_size must be 32, but is None"),
        ({"activations": "int8"}, "activations must be 'fp8', but is 'int8'"),
        ({"smallest": -8}, "hold -8, which those they replace do not"),
        ({"element": "uint4", "smallest": None}, "element must be 'int4', but is 'uint4'"),
    ],
)
def test_experts_of_another_kind_are_refused(changed, message) -> None:
    kind = {"element": "int4", "activations": "fp8", "shape": (64, 128), "group_size": 32, "smallest": -7}
    packed = pack_weights(**weights(**{**kind, "shape": (2, 64, 128)}))
    before = copy.deepcopy(packed)
    with pytest.raises(ValueError, match=message):
        packed.write(0, pack_weights(**weights(**{**kind, **changed})))
    assert same(packed, before)


def test_zero_points_do_not_go_into_a_stack_without() -> None:
    arguments = weights("uint4", "int8", (2, 64, 128), 32)
    packed = pack_weights(**{**arguments, "zeros": torch.full_like(arguments["zeros"], 8)})
    with pytest.raises(ValueError, match="new weights have zero points"):
        packed[0] = pack_weights(**weights("uint4", "int8", (64, 128), 32))


def test_repr_tells_what_it_is() -> None:
    assert repr(pack_weights(**weights("int4", "fp8", (3, 100, 256), 64, smallest=-7))) == (
        "PackedWeights(3 x [100, 256] of int4 for fp8 activations, a scale for 64 of K, 0.1 MB, cpu)"
    )
    assert repr(pack_weights(**weights("uint4", "fp8", (100, 256), None))) == (
        "PackedWeights([100, 256] of uint4 for fp8 activations, a scale for all of K, zero points, 0.0 MB, cpu)"
    )
    assert repr(pack_weights(**two_levels("int4", (100, 256), 64))) == (
        "PackedWeights([100, 256] of int4 for int8 activations, a scale for 64 of K within one for all of it, "
        "zero points, 0.0 MB, cpu)"
    )


def test_the_example_of_the_documents_runs(capsys) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "low_precision.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    exec(compile(example, "low_precision.md", "exec"), {})
    assert capsys.readouterr().out.strip() == example.rsplit("  # ", 1)[1].strip()


def test_to_the_same_device_copies_nothing() -> None:
    packed = pack_weights(**weights("uint4", "int8", (64, 128), 32))
    assert packed.to("cpu").codes.data_ptr() == packed.codes.data_ptr()
    assert packed.device == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("element", "activations"), FORMATS)
def test_packing_on_a_gpu_gives_the_same_bits(element, activations, cuda) -> None:
    arguments = weights(element, activations, (3, 130, 2880), 32)
    moved = {name: x.to(cuda) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    packed = pack_weights(**moved)
    assert packed.device == cuda
    assert same(packed.to("cpu"), pack_weights(**arguments))
    assert torch.equal(packed.dequantize().cpu(), wanted(arguments))


REFUSED = [
    ({"element": "int5"}, ValueError, "element must be one of int4, uint4, e2m1, int8, e4m3, but is 'int5'"),
    ({"activations": "fp16"}, ValueError, "activations must be one of int8, int4, fp8, bf16, but is 'fp16'"),
    ({"element": "e2m1"}, NotImplementedError, "e2m1 for int8 activations are not served yet: int4 for int8"),
    (
        {"second_scales": torch.ones(64), "activations": "fp8"},
        NotImplementedError,
        "second_scales are not served for weights of int4 and 'fp8' activations: they are for int4 and uint4",
    ),
    ({"second_scales": torch.ones(())}, TypeError, "scales must be torch.int8 where there are second_scales, but are"),
    (
        {"second_scales": torch.ones(63), "scales": torch.ones((64, 4), dtype=torch.int8)},
        ValueError,
        r"second_scales must have the shape \[64, 1\] \(one for each row.*have \[63, 1\]",
    ),
    ({"element": "uint4"}, ValueError, "'uint4' need zeros"),
    ({"values": torch.ones(64, 128)}, TypeError, r"must be torch.int8, but are torch.float32"),
    ({"values": torch.ones(64, 128, dtype=torch.uint8)}, TypeError, r"must be torch.int8, but are torch.uint8"),
    ({"values": torch.ones(128, dtype=torch.int8)}, ValueError, r"\[N, K\] or \[G, N, K\], but the shape is \[128\]"),
    ({"values": torch.ones(0, 128, dtype=torch.int8)}, ValueError, r"neither of them 0, but the shape is \[0, 128\]"),
    ({"values": torch.full((64, 128), 8, dtype=torch.int8)}, ValueError, r"within -8..7, but one is 8"),
    ({"values": torch.full((64, 128), -9, dtype=torch.int8)}, ValueError, r"within -8..7, but one is -9"),
    ({"values": []}, ValueError, "those of at least one matrices"),
    ({"group_size": 16}, ValueError, "a multiple of 32 or None, but is 16"),
    ({"group_size": 48}, ValueError, "a multiple of 32 or None, but is 48"),
    ({"group_size": 96}, ValueError, "K must be a multiple of group_size=96, but is 128"),
    ({"group_size": True}, TypeError, "group_size must be an integer"),
    ({"group_size": None}, ValueError, r"scales must have the shape \[64, 1\] \(one for each row.*have \[64, 4\]"),
    ({"group_size": 64}, ValueError, r"scales must have the shape \[64, 2\] \(one for 64 of K\), but have \[64, 4\]"),
    ({"scales": torch.ones(64, 4).double()}, TypeError, r"scales must be float32, .*but are torch.float64"),
    ({"scales": torch.full((64, 4), torch.nan)}, ValueError, "scales must be finite"),
    ({"scales": torch.full((64, 4), torch.inf)}, ValueError, "scales must be finite"),
    ({"scales": torch.full((64, 4), 2.0**-149)}, ValueError, "exactly times 0.0625"),
    ({"scales": torch.full((64, 4), 255, dtype=torch.uint8)}, ValueError, "scales must be finite"),
    ({"scales": [torch.ones(64, 4)] * 2, "values": [torch.ones(64, 128, dtype=torch.int8)]}, ValueError, "of 1 matr"),
    ({"zeros": torch.ones(64, 2, dtype=torch.int32)}, ValueError, r"zeros must have the shape \[64, 4\]"),
    ({"zeros": torch.ones(64, 4)}, TypeError, "zeros must be torch.int32, torch.int8 or torch.uint8"),
    ({"zeros": torch.full((64, 4), 256, dtype=torch.int32)}, ValueError, r"within -128..255"),
    ({"values": torch.ones(64, 128, dtype=torch.int8, device="meta")}, ValueError, "scales must be on meta"),
]


@pytest.mark.parametrize(("changed", "error", "message"), REFUSED)
def test_what_cannot_be_packed_is_refused(changed, error, message) -> None:
    arguments = weights("int4", "int8", (64, 128), 32)
    with pytest.raises(error, match=message):
        pack_weights(**{**arguments, **changed})


def test_experts_of_different_sizes_are_refused() -> None:
    values = [torch.ones(n, 128, dtype=torch.int8) for n in (64, 65)]
    with pytest.raises(ValueError, match=r"one size, but are \[64, 128\] and \[65, 128\]"):
        pack_weights(values, [torch.ones(64), torch.ones(65)], element="int4", activations="int8")


def fp4_weights(scales: torch.Tensor, codes: torch.Tensor | None = None, **changed):
    codes = random((scales.shape[0], 16 * scales.shape[1]), 0, 15).to(torch.uint8) if codes is None else codes
    arguments = {"element": "e2m1", "activations": "bf16", "group_size": codes.shape[1] // scales.shape[1], **changed}
    return codes, pack_weights(codes, scales, **arguments)


def values_of_fp4(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return code.E2M1[codes.long()] * scales.float().repeat_interleave(codes.shape[1] // scales.shape[1], 1)


def test_every_e4m3_scale_and_code_of_nvfp4_comes_back() -> None:
    scales = torch.arange(127, dtype=torch.uint8).repeat_interleave(2).view(-1, 2).view(torch.float8_e4m3fn)
    codes, packed = fp4_weights(scales, torch.arange(16, dtype=torch.uint8).repeat(127, 2))
    assert packed.second_scales is not None
    assert torch.equal(packed.dequantize(), values_of_fp4(codes, scales))
    _, scaled = fp4_weights(scales, codes, second_scales=torch.linspace(0.1, 1, 127))
    wanted_values = values_of_fp4(codes, scales) * torch.linspace(0.1, 1, 127).unsqueeze(1)
    assert torch.equal(scaled.dequantize(), wanted_values)


def test_groups_of_zeros_do_not_widen_the_range_of_mxfp4_scales() -> None:
    exponents = torch.tensor([[127, 0, 103, 120]], dtype=torch.uint8)
    codes = torch.ones((1, 128), dtype=torch.uint8)
    _, far = fp4_weights(exponents, codes)
    codes[:, 32:64] = 8
    _, near = fp4_weights(exponents, codes)
    assert far.second_scales is None
    assert near.second_scales is not None
    assert torch.equal(far.dequantize()[:, 64:], near.dequantize()[:, 64:])


def test_scales_that_no_weight_can_be_multiplied_by_are_applied_to_sums() -> None:
    codes, packed = fp4_weights(torch.rand((5, 4)), random((5, 128), 0, 15).to(torch.uint8))
    assert packed.second_scales is None
    with pytest.raises(ValueError, match="groups of 16 want scales that weights are multiplied by exactly"):
        fp4_weights(torch.rand((5, 8)))
    with pytest.raises(ValueError, match=r"second_scales .* want scales that weights are multiplied by exactly"):
        fp4_weights(torch.rand((5, 4)), codes, second_scales=0.5)
    with pytest.raises(ValueError, match=r"second_scales must be one, or \[N\] = \[5\], but are \[4\]"):
        fp4_weights(torch.ones((5, 8)), second_scales=torch.ones(4))


def test_parts_of_nvfp4_weights_are_packed_as_they_would_be_alone() -> None:
    scales = torch.exp2(random((2, 192, 16), -9, 8).float()).to(torch.float8_e4m3fn)
    codes, second = random((2, 192, 256), 0, 15).to(torch.uint8), torch.rand(2, 192)
    keys = {"element": "e2m1", "activations": "bf16", "group_size": 16}
    stack = pack_weights(codes, scales, second_scales=second, **keys)
    assert torch.equal(PackedWeights.from_state_dict(stack.state_dict()).dequantize(), stack.dequantize())
    part = stack.slice_n(64, 192)
    assert torch.equal(part.dequantize(), stack.dequantize()[:, 64:])
    assert torch.equal(stack.slice_k(128, 256).dequantize(), stack.dequantize()[..., 128:])
    other = pack_weights(codes[1], scales[0], second_scales=second[1], **keys)
    stack[0] = other
    assert torch.equal(stack[0].dequantize(), other.dequantize())
    with pytest.raises(ValueError, match="scales are not multiplied as those"):
        stack[0] = replace(other, second_scales=None, scales=torch.zeros(1, 16, 256))


def test_every_e4m3_value_comes_back() -> None:
    values = torch.arange(256, dtype=torch.uint8).repeat(4, 1)
    values = values.masked_fill(values & 127 == 127, 0).view(torch.float8_e4m3fn)
    packed = pack_weights(values, torch.full((4, 2), 0.75), element="e4m3", activations="bf16", group_size=128)
    assert torch.equal(packed.dequantize(), values.float() * 0.75)
    values.view(torch.uint8)[1, 3] = 0xFF
    with pytest.raises(ValueError, match="values of 'e4m3' must not be NaN"):
        pack_weights(values, torch.ones(4), element="e4m3", activations="bf16")
