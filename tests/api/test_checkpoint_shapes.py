"""A layer's tensors are held against each other: none is cut, repeated or taken for another kind."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import exactly, random, scales_of

from deep_gemm import weights_from_checkpoint

N, K = 40, 256
VALUES, ZEROS = random((N, K), -8, 7, 0), random((N, 2), -8, 7, 2)
SCALES = scales_of((N, 2), torch.bfloat16)
KEYS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
WHOLE = checkpoints.pack_quantized(VALUES, SCALES, ZEROS)
PLAIN = checkpoints.pack_quantized(VALUES, SCALES)
E4M3 = torch.zeros((128, 256)).to(torch.float8_e4m3fn)


def compressed(tensors, config=KEYS, **changed) -> torch.Tensor:
    w = weights_from_checkpoint("compressed-tensors", {**tensors, **changed}, activations="int8", config=config)
    return w.dequantize()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weight_shape": torch.tensor([N, 2 * K])}, r"weight_shape must be that of weight_packed, .*got \[40, 512\]"),
        ({"weight_shape": torch.tensor([N, K - 8])}, r"weight_shape must be that of weight_packed, .*got \[40, 248\]"),
        ({"weight_shape": torch.tensor([2 * N, K])}, r"weight_shape must be that of weight_packed, .*got \[80, 256\]"),
        ({"weight_shape": torch.tensor([N - 8, K])}, r"weight_shape must be that of weight_packed, .*got \[32, 256\]"),
        ({"weight_shape": torch.tensor([N])}, r"weight_shape must have the shape \[2\] \(N and K\), got \[1\]"),
        ({"weight_packed": WHOLE["weight_packed"][:24]}, r"weight_shape must be that of weight_packed"),
        ({"weight_scale": SCALES[:24]}, r"weight_scale must have the shape \[40, 2\].*got \[24, 2\]"),
        ({"weight_scale": SCALES[:, :1]}, "weight_scale must have 2 groups, one for 128 of K=256 .*got 1"),
        ({"weight_scale": SCALES.repeat(1, 2)}, "weight_scale must have 2 groups, one for 128 of K=256 .*got 4"),
        (
            {"weight_zero_point": WHOLE["weight_zero_point"].repeat(2, 1)},
            r"zero_point must have .*got \[10, 2\]",
        ),
        ({"weight_zero_point": WHOLE["weight_zero_point"][:4]}, r"weight_zero_point must have .*got \[4, 2\]"),
        ({"weight_zero_point": ZEROS[:24].to(torch.int8)}, r"weight_zero_point must have .*\[40, 2\].*got \[24, 2\]"),
        ({"weight_zero_point": ZEROS.float() + 0.5}, "weight_zero_point must hold whole numbers"),
        ({"weight_zero_point": ZEROS + 8}, r"weight_zero_point must lie within -8..7, got 0..15"),
    ],
    ids=str,
)
def test_compressed_tensors_of_different_layers_are_refused(changed, message) -> None:
    with pytest.raises(ValueError, match=message):
        compressed(WHOLE, **changed)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.bfloat16, torch.float32], ids=str)
def test_zero_points_that_are_not_packed_are_taken_in_every_type(dtype) -> None:
    zeros = ZEROS.to(dtype)
    assert torch.equal(compressed(WHOLE, weight_zero_point=zeros), exactly(VALUES, SCALES, ZEROS))


def test_weight_shape_tells_the_bits_of_a_code_and_the_size_of_groups() -> None:
    assert torch.equal(compressed(WHOLE, None), exactly(VALUES, SCALES, ZEROS))


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        (PLAIN, None, "weight_shape or config's num_bits must be there"),
        (PLAIN, {"num_bits": 4}, "weight_scale has 2 groups: config's group_size must be there"),
        (PLAIN, {"num_bits": 4, "strategy": "group"}, "config's group_size must be there, as its strategy is 'group'"),
        ({**PLAIN, "weight_scale": SCALES[:, :1].repeat(1, 1)[:1]}, {"num_bits": 4}, r"weight_scale must have .*N=40"),
        (PLAIN, {**KEYS, "symmetric": False}, r"asymmetric weights .config's symmetric. have weight_zero_point"),
        (WHOLE, {**KEYS, "symmetric": True}, "weight_zero_point must be 0 throughout, as config's symmetric says"),
        (WHOLE, {**KEYS, "strategy": "channel"}, r"weight_scale must have the shape \[40, 1\]"),
        (WHOLE, {**KEYS, "strategy": "tensor"}, r"weight_scale must have the shape \[1\] .*'tensor'"),
        (WHOLE, {**KEYS, "strategy": "row"}, "config's strategy must be .*got 'row'"),
        (
            WHOLE,
            {"config_groups": {"group_0": {"weights": None}}},
            "config's config_groups must have one",
        ),
        (WHOLE, {"weights": None}, "config's weights must be a mapping, got None: these weights are not quantised"),
        (WHOLE, {**KEYS, "format": "marlin-24"}, "config's format must be 'pack-quantized' or .*got 'marlin-24'"),
    ],
)
def test_configs_that_contradict_the_tensors_are_refused(tensors, config, message) -> None:
    tensors = {name: tensor for name, tensor in tensors.items() if name != "weight_shape"}
    with pytest.raises(ValueError, match=message):
        compressed(tensors, config)


@pytest.mark.parametrize(
    ("tensors", "reader"),
    [
        ({"weight_packed": torch.zeros((8, 32), dtype=torch.uint8), "weight_scale": E4M3[:8, :4]}, "nvfp4"),
        (
            {
                "weight_packed": torch.zeros((8, 32), dtype=torch.uint8),
                "weight_scale": torch.zeros((8, 2), dtype=torch.uint8),
            },
            "mxfp4",
        ),
        ({"weight": E4M3, "weight_scale": torch.ones(1, 2)}, "fp8-block"),
    ],
)
def test_compressed_tensors_of_floats_name_the_format_that_reads_them(tensors, reader) -> None:
    config = {"config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 4}}}, "format": "x"}
    for said in (None, config):
        with pytest.raises(ValueError, match=f"the format '{reader}' reads such weights"):
            compressed(tensors, said)


def test_int_quantized_weights_of_groups_are_not_guessed_at() -> None:
    tensors = {"weight": VALUES.to(torch.int8), "weight_scale": SCALES}
    with pytest.raises(ValueError, match="weight_scale has 2 groups: config's group_size must be there"):
        compressed(tensors, {"num_bits": 4})
    assert torch.equal(compressed(tensors), exactly(VALUES, SCALES))


@pytest.mark.parametrize(
    ("config", "codes"), [({"version": None}, 4), ({"bits": "4"}, 4), ({"bits": None, "w_bit": 4}, 4)], ids=str
)
def test_awq_keys_that_are_null_or_text(config, codes) -> None:
    unsigned = VALUES + 8
    w = weights_from_checkpoint(
        "awq", checkpoints.awq(unsigned, SCALES, ZEROS + 8), activations="int8", config={"group_size": 128, **config}
    )
    assert torch.equal(w.dequantize(), exactly(unsigned, SCALES, ZEROS + 8))


EXPONENTS = torch.full((N, 8), 120, dtype=torch.uint8)
AWQ = checkpoints.awq(VALUES + 8, SCALES, ZEROS + 8)
GPTQ = checkpoints.gptq(VALUES + 8, SCALES, ZEROS.clamp(min=-7) + 8)
RIGHT = {
    "awq": AWQ,
    "gptq": GPTQ,
    "w4afp8": {"weight": checkpoints.pairs(VALUES), "weight_scale_inv": SCALES},
    "mxfp4": {"weight": checkpoints.pairs(VALUES), "weight_scale": EXPONENTS},
    "fp8-block": {"weight": E4M3, "weight_scale_inv": torch.ones(1, 2)},
}


@pytest.mark.parametrize(
    ("form", "changed", "config", "message"),
    [
        ("awq", {"qzeros": AWQ["qzeros"][:1]}, {}, r"qzeros must have the shape \[2, 5\].*got \[1, 5\]"),
        ("awq", {"scales": AWQ["scales"][:, :32]}, {}, r"scales must have the shape \[2, 40\].*got \[2, 32\]"),
        ("awq", {}, {"zero_point": False}, "qzeros must hold the zero point 8 .*config's zero_point"),
        ("awq", {}, {"bits": 4, "w_bit": 3}, "config's bits and w_bit must agree"),
        ("gptq", {"qzeros": GPTQ["qzeros"].T}, {}, r"qzeros must have the shape \[2, 5\].*got \[5, 2\]"),
        ("gptq", {"scales": GPTQ["scales"].double()}, {}, "scales must be torch.float32 or .*got torch.float64"),
        ("w4afp8", {"weight_scale_inv": SCALES[:, :1]}, {}, r"weight_scale_inv must .*\[40, 2\].*got \[40, 1\]"),
        ("w4afp8", {"weight_scale": SCALES}, {}, "weight_scale_inv and weight_scale must not both be there"),
        ("w4afp8", {"weight_scale_inv": SCALES * torch.nan}, {}, "weight_scale_inv must be finite, but 80 of its"),
        ("mxfp4", {"weight_scale": torch.ones(N, 8)}, {}, "weight_scale must be torch.uint8 or .*got torch.float32"),
        ("mxfp4", {"weight_scale": EXPONENTS + 135}, {}, "weight_scale must be finite, but 320 of its"),
        ("mxfp4", {}, {"group_size": 16}, "config's group_size must be 32 of this format, got 16"),
        ("mxfp4", {"weight_scale": EXPONENTS[:, :4]}, {}, r"weight_scale must .*\[40, 8\].*got \[40, 4\]"),
        ("fp8-block", {}, {"weight_block_size": None}, "config's weight_block_size must be .*got None"),
        ("fp8-block", {}, {"weight_block_size": [128]}, r"config's weight_block_size must be .*got \[128\]"),
        ("fp8-block", {}, {"fmt": "e5m2"}, "config's fmt must be 'e4m3', got 'e5m2'"),
        ("fp8-block", {"weight": E4M3.float()}, {}, "weight must be torch.float8_e4m3fn, got torch.float32"),
        ("fp8-block", {"weight_scale_inv": torch.ones(2, 2)}, {}, r"weight_scale_inv must .*\[1, 2\].*got \[2, 2\]"),
    ],
    ids=str,
)
def test_tensors_and_keys_of_every_format_are_checked_by_name(form, changed, config, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        weights_from_checkpoint(form, {**RIGHT[form], **changed}, activations="bf16", config=config)


def test_block_structure_and_exponents_of_fp8_in_blocks() -> None:
    values = torch.randn((64, 64), generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    exponents = random((2, 2), 120, 130, 3).to(torch.uint8)
    tensors = {"weight": values, "weight_scale": exponents}
    config = {"config_groups": {"g": {"weights": {"type": "float", "num_bits": 8, "block_structure": "32x32"}}}}
    with pytest.raises(TypeError, match=r"weight_scale must be .*got torch.uint8"):
        weights_from_checkpoint("fp8-block", tensors, activations="bf16", config=config)
    w = weights_from_checkpoint("fp8-block", tensors, activations="bf16", config={**config, "scale_fmt": "ue8m0"})
    scales = torch.exp2(exponents.double() - 127).repeat_interleave(32, 0)
    assert torch.equal(w.dequantize(), exactly(values.float(), scales))


def test_experts_in_groups_of_different_sizes_are_refused() -> None:
    layers = [checkpoints.awq(VALUES + 8, scales, torch.full(scales.shape, 8)) for scales in (SCALES, SCALES[:, :1])]
    stack = {name: [layer[name] for layer in layers] for name in layers[0]}
    with pytest.raises(
        ValueError, match="scales of a stack must be those of groups of one size, got groups of 128, None"
    ):
        weights_from_checkpoint("awq", stack, activations="int8")
