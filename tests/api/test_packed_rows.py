"""PackedWeights of MXFP4 where Blackwell packs them: rows of codes, and exponents."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from fp4_inputs import Fp8Rows
from inputs import GuardedOutput
from packed_inputs import random, same

import deep_gemm
from deep_gemm import PackedWeights, pack_weights, simulator, weights_from_checkpoint
from deep_gemm.utils import pack_int4
from deep_gemm.weights import codes as code

BLACKWELL = "sm_100a"


@pytest.fixture(autouse=True)
def sm100() -> Iterator[None]:
    with simulator.options(target=BLACKWELL):
        yield


def mxfp4(shape: tuple[int, ...], group: int | None = 32, seed: int = 0) -> dict:
    """Arguments of pack_weights."""
    *rows, k = shape
    exponents = random((*rows, 1 if group is None else k // group), 110, 140, seed).to(torch.uint8)
    return {
        "values": random(shape, 0, 15, seed + 1).to(torch.uint8),
        "scales": exponents.squeeze(-1) if group is None else exponents,
        "element": "e2m1",
        "activations": "fp8",
        "group_size": group,
    }


def wanted(arguments: dict) -> torch.Tensor:
    values, exponents = arguments["values"], arguments["scales"]
    if arguments["group_size"] is None:
        exponents = exponents.unsqueeze(-1)
    scales = torch.exp2(exponents.double() - 127).float()
    return code.E2M1[values.long()] * scales.repeat_interleave(values.shape[-1] // scales.shape[-1], -1)


SHAPES = pytest.mark.parametrize("shape", [(64, 128), (150, 384), (2, 150, 288), (3, 40, 2880)], ids=str)


@SHAPES
@pytest.mark.parametrize("group", [32, 96, None], ids=str)
def test_weights_come_back_exactly(shape, group) -> None:
    if group is not None and shape[-1] % group != 0:
        group = 64
    arguments = mxfp4(shape, group)
    packed = pack_weights(**arguments)
    assert packed.in_rows
    assert torch.equal(packed.dequantize(), wanted(arguments))


def test_rows_and_words_lie_as_kernels_read_them() -> None:
    arguments = mxfp4((2, 150, 288))
    packed = pack_weights(**arguments)
    assert packed.codes.shape == (2, 150, 192)  # K up to a multiple of 128
    codes = arguments["values"]
    assert torch.equal(packed.codes[..., :144], codes[..., 0::2] | codes[..., 1::2] << 4)
    assert not packed.codes[..., 144:].any()
    assert packed.scales.dtype == torch.int32
    assert packed.scales.shape == (2, 3, 256)  # a word for 128 of K, N contiguous
    exponents = packed.scales.view(torch.uint8).view(2, 3, 256, 4).transpose(1, 2).reshape(2, 256, 12)
    assert torch.equal(exponents[:, :150, :9], arguments["scales"])


@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_larger_groups_lie_as_groups_of_32(group) -> None:
    arguments = mxfp4((24, 256), group)
    spread = {**arguments, "scales": arguments["scales"].repeat_interleave(group // 32, -1), "group_size": 32}
    packed, same_in_32 = pack_weights(**arguments), pack_weights(**spread)
    assert torch.equal(packed.codes, same_in_32.codes)
    assert torch.equal(packed.scales, same_in_32.scales)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e8m0fnu], ids=str)
def test_scales_of_every_type_are_taken_exactly(dtype) -> None:
    arguments = mxfp4((24, 128))
    exponents = arguments["scales"]
    scales = exponents.view(dtype) if dtype == torch.float8_e8m0fnu else torch.exp2(exponents.float() - 127).to(dtype)
    assert same(pack_weights(**{**arguments, "scales": scales}), pack_weights(**arguments))


def test_pairs_of_codes_are_packed_as_the_codes_are() -> None:
    arguments = mxfp4((2, 40, 96))
    pairs = pack_int4((arguments["values"] << 4).view(torch.int8) >> 4)
    assert same(pack_weights(**{**arguments, "values": pairs, "packed": True}), pack_weights(**arguments))


def test_a_matrix_larger_than_one_part_is_packed_like_its_parts(monkeypatch) -> None:
    arguments = mxfp4((300, 128))
    whole = pack_weights(**arguments)
    monkeypatch.setattr(code, "_VALUES_AT_ONCE", 128)
    assert same(pack_weights(**arguments), whole)
    assert torch.equal(whole.dequantize(), wanted(arguments))


@pytest.mark.parametrize("exponent", [0, 254])
def test_the_least_and_the_largest_exponent_are_kept(exponent) -> None:
    arguments = {**mxfp4((24, 128)), "scales": torch.full((24, 4), exponent, dtype=torch.uint8)}
    packed = pack_weights(**arguments)
    assert (packed.scales.view(torch.uint8).view(1, 128, 4)[:, :24] == exponent).all()
    assert torch.equal(packed.dequantize(), wanted(arguments))


def test_weights_whose_scale_is_zero_are_zeros() -> None:
    arguments = mxfp4((24, 128))
    scales = torch.exp2(arguments["scales"].float() - 127)
    scales[:, 2] = 0
    packed = pack_weights(**{**arguments, "scales": scales})
    expected = wanted(arguments)
    expected[:, 64:96] = 0
    assert torch.equal(packed.dequantize(), expected)


@pytest.mark.parametrize(("scale", "shown"), [(3.0, "3"), (-2.0, "-2"), (1e-39, "1e-39")])
def test_scales_that_are_no_powers_of_two_are_refused(scale, shown) -> None:
    scales = torch.ones((24, 4))
    scales[7, 1] = scale
    message = rf"scales of e2m1 .* must be powers of two on Blackwell .* one is {shown}: quantise .*quantize_to_mxfp4"
    with pytest.raises(ValueError, match=message):
        pack_weights(**{**mxfp4((24, 128)), "scales": scales})


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"values": torch.full((24, 128), 16, dtype=torch.uint8)}, ValueError, "must lie within 0..15, but one is 16"),
        ({"scales": torch.ones((24, 3))}, ValueError, r"scales must have the shape \[24, 4\]"),
        ({"second_scales": 2.0}, NotImplementedError, "second_scales are not served"),
        ({"group_size": 48}, ValueError, "group_size must be a multiple of 32"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_packed_is_refused(changed, error, message) -> None:
    with pytest.raises(error, match=message):
        pack_weights(**{**mxfp4((24, 128)), **changed})


def test_weights_survive_tensors_state_dict_pickle_and_copies() -> None:
    packed = pack_weights(**mxfp4((2, 72, 160)))
    assert same(PackedWeights.from_tensors(*packed.tensors()), packed)
    assert same(pickle.loads(pickle.dumps(packed)), packed)
    assert same(copy.deepcopy(packed), packed)
    assert same(packed.to("cpu"), packed)
    file = io.BytesIO()
    torch.save(packed.state_dict("w."), file)
    file.seek(0)
    assert same(PackedWeights.from_state_dict(torch.load(file, weights_only=True), "w."), packed)


def test_tensors_of_other_shapes_are_refused() -> None:
    packed = pack_weights(**mxfp4((72, 160)))
    with pytest.raises(ValueError, match=r"codes must be a contiguous torch.uint8 tensor of shape \[1, 72, 128\]"):
        replace(packed, codes=packed.codes[:, :64])
    with pytest.raises(ValueError, match=r"scales must be a contiguous torch.int32 tensor of shape \[1, 2, 128\]"):
        replace(packed, scales=packed.scales.float())


def test_repr_tells_how_they_lie() -> None:
    packed = pack_weights(**mxfp4((3, 64, 128)))
    assert repr(packed) == (
        "PackedWeights(3 x [64, 128] of e2m1 for fp8 activations, a scale for 32 of K, in rows, 0.0 MB, cpu)"
    )


@pytest.mark.parametrize("group", [32, 256])
@pytest.mark.parametrize("shape", [(330, 512), (2, 330, 512)], ids=str)
def test_slices_are_those_of_the_weights(group, shape) -> None:
    arguments = mxfp4(shape, group)
    packed, whole = pack_weights(**arguments), wanted(arguments)
    for start, stop in [(0, 128), (64, 128), (64, 330), (0, 330)]:
        part = packed.slice_n(start, stop)
        cut = {name: arguments[name][..., start:stop, :] for name in ("values", "scales")}
        assert same(part, pack_weights(**{**arguments, **cut}))
        assert torch.equal(part.dequantize(), whole[..., start:stop, :])
    for start, stop in [(0, 256), (256, 512)]:
        part = packed.slice_k(start, stop)
        cut = {"values": arguments["values"][..., start:stop]}
        cut["scales"] = arguments["scales"][..., start // group : stop // group]
        assert same(part, pack_weights(**{**arguments, **cut}))
        assert torch.equal(part.dequantize(), whole[..., start:stop])


def test_the_last_slice_of_a_k_that_is_no_multiple_of_128() -> None:
    arguments = mxfp4((24, 288))
    part = pack_weights(**arguments).slice_k(128, 288)
    assert torch.equal(part.dequantize(), wanted(arguments)[:, 128:])


def test_experts_are_picked_without_a_copy_and_replaced_where_they_lie() -> None:
    arguments = mxfp4((3, 72, 160))
    packed, whole = pack_weights(**arguments), wanted(arguments)
    assert torch.equal(packed[1].dequantize(), whole[1])
    assert packed[1:].codes.data_ptr() == packed.codes[1:].data_ptr()
    other = mxfp4((72, 160), seed=5)
    place = packed.codes.data_ptr()
    packed[2] = pack_weights(**other)
    assert packed.codes.data_ptr() == place
    assert torch.equal(packed.dequantize(), torch.stack([whole[0], whole[1], wanted(other)]))


def test_an_expert_that_lies_otherwise_is_refused() -> None:
    rows = pack_weights(**mxfp4((2, 72, 160)))
    with simulator.options(target="sm_90a"):
        blocks = pack_weights(**mxfp4((2, 72, 160)))
    with pytest.raises(ValueError, match=r"the new weights lie in blocks, .* those that they replace in rows"):
        rows[0] = blocks[0]
    with pytest.raises(ValueError, match=r"the new weights lie in rows, .* those that they replace in blocks"):
        blocks[0] = rows[0]


def test_mxfp4_of_a_checkpoint_lies_in_rows() -> None:
    arguments = mxfp4((2, 40, 96))
    codes, scales = arguments["values"], arguments["scales"]
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).unflatten(-1, (-1, 16))
    tensors = {"weight_blocks": blocks, "weight_scales": scales}
    packed = weights_from_checkpoint("mxfp4", tensors, activations="fp8", prefix="weight_")
    assert same(packed, pack_weights(**arguments))


@pytest.mark.parametrize("runs", ["sm_90a", "sm_80"])
def test_a_product_refuses_rows_where_no_kernel_multiplies_them(runs) -> None:
    with simulator.options(target=BLACKWELL):
        w = pack_weights(**mxfp4((24, 128)))
    a, d = Fp8Rows((3, 128)), GuardedOutput((3, 24), torch.float32, "cpu")
    message = "w was packed in rows, which Blackwell .*: pack it on the device, or for the target, that multiplies it"
    with simulator.options(target=runs), pytest.raises(ValueError, match=message):
        deep_gemm.fp8_fp4_gemm_nt(a.pair, w, d.tensor)
    d.assert_untouched()


def test_blocks_that_were_packed_for_hopper_are_multiplied_on_blackwell() -> None:
    """Their codes are converted, as there: FP8 activations come with FP32 scales."""
    with simulator.options(target="sm_90a"):
        w = pack_weights(**mxfp4((24, 128)))
    generator = torch.Generator().manual_seed(3)
    data, scales = torch.randn((3, 128), generator=generator).to(torch.float8_e4m3fn), torch.rand((3, 1)) + 0.5
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    with simulator.options(target=BLACKWELL, hazards="error"):
        deep_gemm.fp8_fp4_gemm_nt((data, scales), w, d.tensor)
    d.check()
    want = (data.double() * scales.double()) @ w.dequantize().double().T
    torch.testing.assert_close(d.tensor.double(), want, rtol=1e-5, atol=1e-5)
