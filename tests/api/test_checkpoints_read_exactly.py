"""weights_from_checkpoint of floats and of integers of 8 bits: codes and scales are read to the bit."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import PREFIX, dequantised, random, scales_of

from deep_gemm import weights_from_checkpoint
from deep_gemm.utils import cast_back_from_fp4, per_token_cast_to_fp4
from deep_gemm.weights.checkpoint import read_checkpoint

FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def read_whole(read) -> torch.Tensor:
    """The codes, in two parts."""
    matrix = read.matrix
    return torch.cat((matrix.read(0, 8), matrix.read(8, matrix.n)))


@pytest.mark.parametrize("name", ["blocks", "weight"])
def test_mxfp4_is_read_exactly(through_file, name) -> None:
    w = torch.randn((2, 24, 96), generator=torch.Generator().manual_seed(0))
    packed, scales = per_token_cast_to_fp4(w.view(48, 96), use_ue8m0=True, gran_k=32)
    exponents = (scales.view(torch.int32) >> 23).to(torch.uint8).view(2, 24, 3)
    pairs = packed.view(torch.uint8).view(2, 24, 48)
    if name == "blocks":
        tensors = through_file({"blocks": pairs.view(2, 24, 3, 16), "scales": exponents})
    else:
        tensors = through_file({"weight": pairs, "weight_scale": exponents})
    reads = read_checkpoint("mxfp4", tensors, prefix=PREFIX)
    for expert, read in enumerate(reads):
        codes = read_whole(read)
        assert (read.element, read.group_size) == ("e2m1", 32)
        assert torch.equal(checkpoints.pairs(codes), pairs[expert])
        whole = cast_back_from_fp4(
            checkpoints.pairs(codes).view(torch.int8), 2.0 ** (read.matrix.scales.float() - 127), 32
        )
        assert torch.equal(whole, cast_back_from_fp4(packed, scales, 32).view(2, 24, 96)[expert])
    weights = weights_from_checkpoint("mxfp4", tensors, activations="fp8", prefix=PREFIX)
    assert torch.equal(weights.dequantize(), cast_back_from_fp4(packed, scales, 32).view(2, 24, 96))
    weights = weights_from_checkpoint("mxfp4", tensors, activations="bf16", prefix=PREFIX)
    assert weights.second_scales is not None
    assert torch.equal(weights.dequantize(), cast_back_from_fp4(packed, scales, 32).view(2, 24, 96))
    with pytest.raises(NotImplementedError, match="e2m1 for int8 activations are not served yet"):
        weights_from_checkpoint("mxfp4", tensors, activations="int8", prefix=PREFIX)


@pytest.mark.parametrize("inverse", [False, True])
def test_nvfp4_is_read_exactly(through_file, inverse) -> None:
    codes, scales = random((24, 64), 0, 15, 0), scales_of((24, 4), torch.float8_e4m3fn)
    factor = torch.tensor([8.0 if inverse else 0.125])
    names = ("weight_packed", "weight_global_scale") if inverse else ("weight", "weight_scale_2")
    tensors = through_file({names[0]: checkpoints.pairs(codes), "weight_scale": scales, names[1]: factor})
    (read,) = read_checkpoint("nvfp4", tensors, prefix=PREFIX)
    assert torch.equal(read_whole(read).int(), codes)
    assert torch.equal(read.matrix.scales.float(), scales.float())
    assert (read.element, read.group_size, read.matrix.second_scales.item()) == ("e2m1", 16, 0.125)
    weights = weights_from_checkpoint("nvfp4", tensors, activations="bf16", prefix=PREFIX)
    values = torch.tensor(FP4 + [-value for value in FP4])[codes]
    assert torch.equal(weights.dequantize(), values * scales.float().repeat_interleave(16, 1) * 0.125)
    with pytest.raises(NotImplementedError, match="e2m1 for int8 activations are not served yet"):
        weights_from_checkpoint("nvfp4", tensors, activations="int8", prefix=PREFIX)


def test_block_fp8_is_read_exactly(through_file) -> None:
    values = torch.randn((130, 256), generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    blocks = scales_of((2, 2), torch.float32)
    tensors = through_file({"weight": values, "weight_scale_inv": blocks})
    (read,) = read_checkpoint("fp8-block", tensors, config={"weight_block_size": [128, 128]}, prefix=PREFIX)
    assert torch.equal(read_whole(read).float(), values.float())
    assert (read.element, read.group_size) == ("e4m3", 128)
    assert torch.equal(read.matrix.scales, blocks[torch.arange(130) // 128])
    weights = weights_from_checkpoint("fp8-block", tensors, activations="bf16", prefix=PREFIX)
    assert torch.equal(weights.dequantize(), values.float() * read.matrix.scales.repeat_interleave(128, 1))
    with pytest.raises(NotImplementedError, match="e4m3 for fp8 activations are not served yet"):
        weights_from_checkpoint("fp8-block", tensors, activations="fp8", prefix=PREFIX)


def test_eight_bits_of_compressed_tensors_are_read_exactly(through_file) -> None:
    values, scales = random((24, 96), -128, 127, 0).to(torch.int8), scales_of((24, 1), torch.bfloat16)
    packed = through_file(checkpoints.pack_quantized(values, scales, bits=8))
    plain = through_file({"weight": values, "weight_scale": scales})
    for tensors, config in ((packed, {"num_bits": 8}), (plain, None)):
        (read,) = read_checkpoint("compressed-tensors", tensors, config=config, prefix=PREFIX)
        assert torch.equal(read_whole(read), values)
        with pytest.raises(NotImplementedError, match="int8 for int8 activations are not served yet"):
            weights_from_checkpoint("compressed-tensors", tensors, activations="int8", config=config, prefix=PREFIX)
        w = weights_from_checkpoint("compressed-tensors", tensors, activations="bf16", config=config, prefix=PREFIX)
        assert torch.equal(w.dequantize(), dequantised(values, scales))
