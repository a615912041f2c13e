"""PackedWeights in use: stored and read again, sliced, and experts that are picked and replaced."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from packed_inputs import EVERY_ORDER, FORMATS, same, two_levels, wanted, weights

from deep_gemm import PackedWeights, pack_weights


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


@pytest.mark.parametrize("name", [*EVERY_ORDER, "two levels"])
def test_weights_of_version_2_are_read(name) -> None:
    """Which had three flags in the place of an order."""
    packed = pack_weights(**(two_levels("uint4", (2, 150, 384), 32) if name == "two levels" else EVERY_ORDER[name]))
    tensors, metadata = packed.tensors()
    flags = ("holds_minus_eight", "two_levels", "folds_exponents")
    older = {**metadata, "version": 2, **{flag: getattr(packed, flag) for flag in flags}}
    del older["order"]
    assert same(PackedWeights.from_tensors(tensors, older), packed)


def test_weights_of_a_later_layout_are_refused() -> None:
    tensors, metadata = pack_weights(**weights("int4", "int8", (64, 128), None)).tensors()
    with pytest.raises(ValueError, match=r"version 5 of the layout, but this release reads 2 to 4: pack them again"):
        PackedWeights.from_tensors(tensors, {**metadata, "version": 5})
    with pytest.raises(ValueError, match=r"order must be one of \('s4', 'u4', 'u4, two levels'\), got 's4m'"):
        PackedWeights.from_tensors(tensors, {**metadata, "order": "s4m"})
    with pytest.raises(ValueError, match=r"zeros must be there where the order is 'u4'"):
        PackedWeights.from_tensors(tensors, {**metadata, "order": "u4"})
    with pytest.raises(ValueError, match=r"metadata names 3 tensors \(codes, scales, sums\), but 1 came"):
        PackedWeights.from_tensors(tensors[:1], metadata)
    with pytest.raises(ValueError, match=r"codes must be a contiguous torch.uint8 tensor of shape \[1, 2, 1, 4096\]"):
        PackedWeights.from_tensors((tensors[0][:, :1], *tensors[1:]), metadata)
    with pytest.raises(ValueError, match=r"state has no w.metadata"):
        PackedWeights.from_state_dict({}, "w.")


@pytest.mark.sampled(18)
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
        (lambda w: w.slice_n(32, 128), r"multiples of 64 \(stop may be N=256\).*got 32 and 128"),
        (lambda w: w.slice_n(0, 100), r"multiples of 64"),
        (lambda w: w.slice_n(128, 128), r"within N=256, start first, got 128 and 128"),
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
    with pytest.raises(IndexError, match="one of 4 experts, got 4"):
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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shape": (64, 256)}, r"one matrix of \[64, 128\] is wanted, got shape \[64, 256\]"),
        ({"shape": (1, 64, 128)}, r"got shape \[1, 64, 128\]"),
        ({"group_size": None}, "group_size must be 32, got None"),
        ({"activations": "int8"}, "activations must be 'fp8', got 'int8'"),
        ({"smallest": -8}, "hold -8, which those they replace do not"),
        ({"element": "uint4", "smallest": None}, "element must be 'int4', got 'uint4'"),
    ],
)
def test_experts_of_another_kind_are_refused(changed, message) -> None:
    kind = {"element": "int4", "activations": "fp8", "shape": (64, 128), "group_size": 32, "smallest": -7}
    packed = pack_weights(**weights(**{**kind, "shape": (2, 64, 128)}))
    before = copy.deepcopy(packed)
    with pytest.raises(ValueError, match=message):
        packed.write(0, pack_weights(**weights(**{**kind, **changed})))
    assert same(packed, before)


def test_to_the_same_device_copies_nothing() -> None:
    packed = pack_weights(**weights("uint4", "int8", (64, 128), 32))
    assert packed.to("cpu").codes.data_ptr() == packed.codes.data_ptr()
    assert packed.device == torch.device("cpu")
