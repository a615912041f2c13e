"""weights_from_checkpoint of integers: safetensors files in each checkpoint's own form give back its values."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import ACTIVATIONS, PREFIX, SHAPES, dequantised, random, scales_of

from deep_gemm import weights_from_checkpoint

# What configs say of who stored zero points.
GPTQ_WRITERS = {
    "gptqmodel": {"checkpoint_format": "gptq", "meta": {"quantizer": ["gptqmodel:2.2.0"]}},
    "nibbles": {"checkpoint_format": "gptq", "meta": {"quantizer": "auto_gptq:0.7.1"}},
    "v2": {"checkpoint_format": "gptq_v2"},
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activations", ACTIVATIONS)
@pytest.mark.parametrize("writer", GPTQ_WRITERS)
def test_gptq(through_file, shape, activations, writer) -> None:
    groups = (shape[0], shape[1] // 32)
    codes, zeros, scales = random(shape, 0, 15, 0), random(groups, 0, 15, 2), scales_of(groups, torch.float16)
    tensors = through_file(checkpoints.gptq(codes, scales, zeros, writer))
    config = {"bits": 4, "group_size": 32, "desc_act": False, "sym": False, **GPTQ_WRITERS[writer]}
    packed = weights_from_checkpoint("gptq", tensors, activations=activations, config=config, prefix=PREFIX)
    assert (packed.shape, packed.group_size, packed.input_permutation) == (shape, 32, None)
    assert torch.equal(packed.dequantize(), dequantised(codes, scales, zeros))


def test_gptq_with_symmetric_weights_needs_no_zeros(through_file) -> None:
    codes, zeros, scales = random((64, 128), 0, 15, 0), torch.full((64, 1), 8), scales_of((64, 1), torch.float16)
    tensors = through_file(checkpoints.gptq(codes, scales, zeros))
    assert tensors[f"{PREFIX}qzeros"].unique().tolist() == [0x77777777]
    packed = weights_from_checkpoint("gptq", tensors, activations="int8", config={"group_size": -1}, prefix=PREFIX)
    assert not packed.needs_zeros
    assert packed.group_size is None
    assert torch.equal(packed.dequantize(), dequantised(codes, scales, zeros))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_awq_in_its_order_of_nibbles(through_file, shape, activations) -> None:
    groups = (shape[0], shape[1] // 64)
    codes, zeros, scales = random(shape, 0, 15, 0), random(groups, 0, 15, 2), scales_of(groups, torch.float16)
    tensors = through_file(checkpoints.awq(codes, scales, zeros))
    config = {"bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
    packed = weights_from_checkpoint("awq", tensors, activations=activations, config=config, prefix=PREFIX)
    assert torch.equal(packed.dequantize(), dequantised(codes, scales, zeros))


@pytest.mark.parametrize("shape", [(96, 256), (20, 2880), (20, 96)], ids=str)
@pytest.mark.parametrize("zeros_as", [None, "words", "int8"])
@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_compressed_tensors_pack_quantized(through_file, shape, zeros_as, activations) -> None:
    groups = (shape[0], shape[1] // 32)
    values, scales = random(shape, -8, 7, 0), scales_of(groups, torch.bfloat16)
    zeros = None if zeros_as is None else random(groups, -8, 7, 2)
    tensors = checkpoints.pack_quantized(values, scales, zeros)
    if zeros_as == "int8":
        tensors["weight_zero_point"] = zeros.to(torch.int8)
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": zeros is None}
    config = {"config_groups": {"group_0": {"weights": weights}}, "format": "pack-quantized"}
    packed = weights_from_checkpoint(
        "compressed-tensors", through_file(tensors), activations=activations, config=config, prefix=PREFIX
    )
    assert (packed.element, packed.group_size, packed.needs_zeros) == ("int4", 32, zeros is not None)
    assert torch.equal(packed.dequantize(), dequantised(values, scales, zeros))


def test_compressed_tensors_of_a_k_that_fills_no_whole_words(through_file) -> None:
    values, scales = random((9, 100), -8, 7, 0), scales_of((9, 1), torch.bfloat16)
    tensors = through_file(checkpoints.pack_quantized(values, scales))
    assert tensors[f"{PREFIX}weight_packed"].shape == (9, 13)
    packed = weights_from_checkpoint("compressed-tensors", tensors, activations="int8", prefix=PREFIX)
    assert torch.equal(packed.dequantize(), dequantised(values, scales))


@pytest.mark.parametrize("per_tensor", [False, True])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_compressed_tensors_int_quantized_with_four_bits(through_file, per_tensor, asymmetric) -> None:
    values, rows = random((96, 256), -8, 7, 0).to(torch.int8), 1 if per_tensor else 96
    scales, zeros = scales_of((rows, 1), torch.bfloat16), random((rows, 1), -8, 7, 4).to(torch.int8)
    tensors = {"weight": values, "weight_scale": scales}
    if asymmetric:
        tensors["weight_zero_point"] = zeros
    config = {"num_bits": 4, "strategy": "tensor" if per_tensor else "channel"}
    packed = weights_from_checkpoint(
        "compressed-tensors", through_file(tensors), activations="int8", config=config, prefix=PREFIX
    )
    whole = dequantised(values, scales.expand(96, 1), zeros.expand(96, 1) if asymmetric else None)
    assert packed.group_size is None
    assert torch.equal(packed.dequantize(), whole)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_w4afp8_experts(through_file, stacked, activations) -> None:
    values = [random((64, 256), -8, 7, seed) for seed in range(3)]
    scales = [scales_of((64, 2), torch.float32, seed) for seed in range(3)]
    if stacked:
        tensors = {
            "weight": torch.stack([checkpoints.pairs(v).view(torch.int8) for v in values]),
            "weight_scale_inv": torch.stack(scales),
        }
        experts, prefix = through_file(tensors), PREFIX
    else:
        files = [
            through_file({"weight": checkpoints.pairs(v).view(torch.int8), "weight_scale_inv": s})
            for v, s in zip(values, scales, strict=True)
        ]
        experts, prefix = {name: [file[PREFIX + name] for file in files] for name in ("weight", "weight_scale_inv")}, ""
    packed = weights_from_checkpoint("w4afp8", experts, activations=activations, prefix=prefix)
    assert packed.shape == (3, 64, 256)
    assert packed.group_size == 128
    assert torch.equal(packed.dequantize(), torch.stack(list(map(dequantised, values, scales))))


@pytest.mark.parametrize("shape", [(64, 256), (160, 2880)], ids=str)
def test_qoq_with_integer_scales_of_groups(through_file, shape) -> None:
    """Scaled zeros that are no multiples of the scales, as large as s8 has room for."""
    groups = (shape[0], shape[1] // 64)
    codes, scales = random(shape, 0, 15, 0), random(groups, 1, 16, 2).to(torch.int8)
    spread = codes.view(*groups, 64)
    least, most = (
        spread.amin(-1) * scales - 127,
        spread.amax(-1) * scales - 127,
    )  # of scaled zeros, for 127 and for -128
    scaled_zeros = most + random(groups, 0, 255, 3) % (least + 256 - most).clamp(min=1)
    second = scales_of((shape[0],), torch.float16)
    tensors = through_file(checkpoints.qoq(codes, scales, scaled_zeros, second))
    packed = weights_from_checkpoint(
        "qoq", tensors, activations="int8", config={"w_bit": 4, "group_size": 64}, prefix=PREFIX
    )
    integers = codes * scales.repeat_interleave(64, 1) - scaled_zeros.repeat_interleave(64, 1)
    assert (integers.min(), integers.max()) == (-128, 127)
    assert (packed.element, packed.group_size, packed.two_levels) == ("uint4", 64, True)
    assert torch.equal(packed.dequantize(), integers * second.float().unsqueeze(1))
    with pytest.raises(NotImplementedError, match="second_scales are not served for weights of uint4 and 'fp8'"):
        weights_from_checkpoint("qoq", tensors, activations="fp8", prefix=PREFIX)


@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_qoq_of_channels(through_file, activations) -> None:
    codes, zeros, scales = random((64, 256), 0, 15, 0), random((64,), 0, 15, 2), scales_of((64,), torch.float16)
    tensors = through_file(checkpoints.qoq(codes, scales, (zeros * scales.float()).half()))
    packed = weights_from_checkpoint("qoq", tensors, activations=activations, config={"group_size": -1}, prefix=PREFIX)
    assert packed.group_size is None
    assert torch.equal(packed.dequantize(), dequantised(codes, scales.unsqueeze(1), zeros.unsqueeze(1)))
