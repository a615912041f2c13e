"""weights_from_checkpoint: safetensors files in each checkpoint's own form give back its values."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch._subclasses.fake_tensor import FakeTensorMode

import deep_gemm
from deep_gemm import PackedWeights, weights_from_checkpoint
from deep_gemm.utils import cast_back_from_fp4, per_token_cast_to_fp4
from deep_gemm.weights.checkpoint import read_checkpoint

FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
PREFIX = "model.layers.3.mlp.down_proj."
SHAPES = [(128, 256), (24, 2880)]
ACTIVATIONS = ["int8", "fp8"]


def random(shape, low, high, seed) -> torch.Tensor:
    return torch.randint(low, high + 1, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


def scales_of(shape, dtype, seed=1) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.01).to(dtype)


def dequantised(values, scales, zeros=None) -> torch.Tensor:
    """[N, K]; scales and zeros [N, groups]."""
    group = values.shape[1] // scales.shape[1]
    difference = values.int() if zeros is None else values.int() - zeros.int().repeat_interleave(group, 1)
    return difference.float() * scales.float().repeat_interleave(group, 1)


@pytest.fixture
def through_file(tmp_path):
    """What is read again of tensors that were written to a file, beside those of another layer."""

    def write_and_read(tensors):
        stored = {f"{PREFIX}{name}": tensor for name, tensor in tensors.items()}
        save_file({**stored, "model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
        return load_file(tmp_path / "model.safetensors")

    return write_and_read


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activations", ACTIVATIONS)
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
def test_gptq(through_file, shape, activations, version) -> None:
    groups = (shape[0], shape[1] // 32)
    codes, zeros, scales = random(shape, 0, 15, 0), random(groups, 0, 15, 2), scales_of(groups, torch.float16)
    tensors = through_file(checkpoints.gptq(codes, scales, zeros, version))
    config = {"bits": 4, "group_size": 32, "desc_act": False, "checkpoint_format": version}
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


def shuffled_groups(k, group, seed=3):
    order = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    g_idx = torch.empty(k, dtype=torch.long)
    g_idx[order] = torch.arange(k) // group
    return g_idx


def by_g_idx(values, scales, zeros, g_idx) -> torch.Tensor:
    """As its own order of K has it: each column takes the scale of its group."""
    difference = values.int() if zeros is None else values.int() - zeros.int()[:, g_idx]
    return difference.float() * scales.float()[:, g_idx]


@pytest.mark.parametrize("form", ["gptq", "compressed-tensors"])
@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_columns_out_of_order_are_permuted_once(through_file, form, activations) -> None:
    scales, g_idx = scales_of((40, 8), torch.float16), shuffled_groups(256, 32)
    if form == "gptq":
        values, zeros = random((40, 256), 0, 15, 0), random((40, 8), 1, 15, 2)
        tensors = through_file(checkpoints.gptq(values, scales, zeros, g_idx=g_idx))
    else:
        values, zeros = random((40, 256), -8, 7, 0), None
        tensors = through_file(checkpoints.pack_quantized(values, scales, g_idx=g_idx))
    packed = weights_from_checkpoint(form, tensors, activations=activations, prefix=PREFIX)
    whole = by_g_idx(values, scales, zeros, g_idx)
    permutation = packed.input_permutation
    assert permutation.sort().values.tolist() == [*range(256)]
    assert torch.equal(packed.dequantize(), whole[:, permutation])
    with pytest.raises(ValueError, match="input_permutation cannot be cut along K"):
        packed.slice_k(0, 128)
    assert torch.equal(packed.slice_n(0, 40).input_permutation, permutation)
    assert "permuted inputs" in repr(packed)


def test_experts_keep_their_own_permutations() -> None:
    scales, zeros = scales_of((8, 4), torch.float16), random((8, 4), 1, 15, 2)
    codes = [random((8, 128), 0, 15, seed) for seed in range(2)]
    orders = [shuffled_groups(128, 32), None]
    one, other = (checkpoints.gptq(code, scales, zeros, g_idx=order) for code, order in zip(codes, orders, strict=True))
    stack = {name: [one[name], other[name]] for name in one}
    packed = weights_from_checkpoint("gptq", stack, activations="int8")
    assert packed.input_permutation.shape == (2, 128)
    assert packed[1].input_permutation.tolist() == [*range(128)]
    assert torch.equal(
        packed[0].dequantize(), by_g_idx(codes[0], scales, zeros, orders[0])[:, packed[0].input_permutation]
    )
    packed[0] = weights_from_checkpoint("gptq", other, activations="int8")
    assert packed[0].input_permutation.tolist() == [*range(128)]
    assert torch.equal(packed[0].dequantize(), packed[1].dequantize())


def out_of_order_experts(count: int):
    """Symmetric GPTQ experts with `desc_act`: PackedWeights, and what they stand for in the checkpoint's order of K."""
    scales, zeros = scales_of((24, 4), torch.float16), torch.full((24, 4), 8)
    codes = [random((24, 256), 0, 15, seed) for seed in range(count)]
    orders = [shuffled_groups(256, 64, seed) for seed in range(count)]
    experts = [checkpoints.gptq(code, scales, zeros, g_idx=order) for code, order in zip(codes, orders, strict=True)]
    packed = weights_from_checkpoint(
        "gptq", {name: [e[name] for e in experts] for name in experts[0]}, activations="fp8"
    )
    exact = [by_g_idx(code, scales, zeros, order) for code, order in zip(codes, orders, strict=True)]
    return packed, torch.stack(exact).double()


def close(d: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool(((d.double() - expected).abs() <= 1e-5 * expected.abs().max()).all())


def test_a_checkpoint_with_desc_act_is_multiplied_end_to_end(through_file) -> None:
    scales, zeros, g_idx = scales_of((40, 4), torch.float16), torch.full((40, 4), 8), shuffled_groups(256, 64)
    codes = random((40, 256), 0, 15, 0)
    tensors = through_file(checkpoints.gptq(codes, scales, zeros, g_idx=g_idx))
    config = {"bits": 4, "group_size": 64, "desc_act": True}
    w = weights_from_checkpoint("gptq", tensors, activations="fp8", config=config, prefix=PREFIX)
    x = torch.randn((7, 256), generator=torch.Generator().manual_seed(5)).to(torch.float8_e4m3fn)
    d = torch.empty((7, 40), dtype=torch.float32)
    deep_gemm.fp8_int4_gemm_nt((w.permute_inputs(x), 0.5), w.for_permuted_inputs(), d)
    assert close(d, x.double() @ by_g_idx(codes, scales, zeros, g_idx).double().T * 0.5)


def test_experts_out_of_order_are_multiplied_masked_and_contiguous() -> None:
    w, exact = out_of_order_experts(2)
    x = torch.randn((2, 3, 256), generator=torch.Generator().manual_seed(5)).to(torch.float8_e4m3fn)
    d = torch.empty((2, 3, 24), dtype=torch.float32)
    counts = torch.tensor([3, 3], dtype=torch.int32)
    deep_gemm.m_grouped_fp8_int4_gemm_nt_masked((w.permute_inputs(x), 0.5), w.for_permuted_inputs(), d, counts, 3)
    assert close(d, x.double() @ exact.mT * 0.5)
    rows = torch.zeros((256, 256), dtype=torch.float8_e4m3fn)
    rows[:3], rows[128:131] = x
    layout = torch.full((256,), -1, dtype=torch.int32)
    layout[:3], layout[128:131] = 0, 1
    together = torch.empty((256, 24), dtype=torch.float32)
    permuted = w.permute_inputs(rows, layout)
    deep_gemm.m_grouped_fp8_int4_gemm_nt_contiguous((permuted, 0.5), w.for_permuted_inputs(), together, layout)
    assert torch.equal(together[[*range(3), *range(128, 131)]], d.view(6, 24))


def test_a_product_refuses_weights_whose_inputs_nobody_permuted() -> None:
    w, _ = out_of_order_experts(2)
    message = r"has an input_permutation.*w.permute_inputs\(x\) instead of x.*w.for_permuted_inputs\(\) instead of w"
    x, d = torch.zeros((2, 3, 256), dtype=torch.float8_e4m3fn), torch.full((2, 3, 24), torch.nan)
    counts = torch.tensor([3, 3], dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        deep_gemm.m_grouped_fp8_int4_gemm_nt_masked((x, 0.5), w, d, counts, 3)
    with FakeTensorMode():
        data, written = torch.empty((2, 3, 256), dtype=torch.float8_e4m3fn), torch.empty((2, 3, 24))
        with pytest.raises(ValueError, match=message):
            deep_gemm.m_grouped_fp8_int4_gemm_nt_masked((data, 0.5), w, written, torch.ones(2), 3)
    assert d.isnan().all()


def test_permuting_inputs_takes_no_copy_where_nothing_is_out_of_order() -> None:
    w = weights_from_checkpoint("gptq", gptq(), activations="fp8")
    x = torch.ones(3, 128)
    assert w.permute_inputs(x) is x
    assert w.for_permuted_inputs().codes is w.codes


@pytest.mark.parametrize(
    ("shape", "layout", "message"),
    [
        ((2, 3, 128), None, r"x must be \[..., K=256\], but the shape is \[2, 3, 128\]"),
        ((3, 256), None, r"x must be \[2, ..., K=256\], a part for each expert, but the shape is \[3, 256\]"),
        ((3, 256), 2, r"grouped_layout must be \[M\].*but is \[2\] for x of \[3, 256\] and weights of \[2, 24, 256\]"),
    ],
)
def test_inputs_of_another_shape_are_not_permuted(shape, layout, message) -> None:
    w, _ = out_of_order_experts(2)
    with pytest.raises(ValueError, match=message):
        w.permute_inputs(torch.zeros(shape), None if layout is None else torch.zeros(layout, dtype=torch.int32))


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


def gptq(**changed):
    scales, zeros = scales_of((8, 4), torch.float16), random((8, 4), 0, 15, 2)
    return {**checkpoints.gptq(random((8, 128), 0, 15, 0), scales, zeros), **changed}


INT32 = torch.zeros((4, 8), dtype=torch.int32)
PAIR = {"weight": torch.zeros((8, 64), dtype=torch.int8)}
UNEQUAL = {"weight": [PAIR["weight"]] * 2, "weight_scale_inv": torch.ones(3, 8, 1)}
INT8 = torch.zeros((32, 32), dtype=torch.int8)
QOQ = {
    "qweight": INT8,
    "s1_scales": torch.ones(32).half(),
    "s2_scales": torch.full((2, 32), 20, dtype=torch.int8),
    "s2_zeros": torch.zeros((2, 32), dtype=torch.int8),
}
FAR_APART = torch.tensor([0, -1], dtype=torch.int8).repeat(32, 16)  # codes 0 and 15
CHANNELS = {"qweight": INT8, "s1_scales": torch.ones(32).half(), "s1_szeros": torch.full((32,), 0.5).half()}
BLOCKS = {"weight": torch.zeros(8, 64).to(torch.float8_e4m3fn), "weight_scale_inv": torch.ones(2, 1)}
TWO_GROUPS = {"config_groups": {"a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}}}


@pytest.mark.parametrize(
    ("form", "tensors", "config", "error", "message"),
    [
        ("ggml", {}, None, ValueError, "format must be one of compressed-tensors, gptq, .*, qoq, but is 'ggml'"),
        ("qoq", {}, None, ValueError, "a 'qoq' checkpoint has qweight, but no tensor has that name"),
        ("qoq", {"qweight": INT8[:24]}, None, ValueError, r"in blocks of 32 x 32, but are \[24, 64\]"),
        ("qoq", QOQ, {"group_size": 64}, ValueError, "those of groups of 32, but the group size is said to be 64"),
        ("qoq", {**QOQ, "s2_zeros": INT8[:2, :1]}, None, ValueError, r"\[groups, N=32\], but are \[2, 1\]"),
        (
            "qoq",
            {**QOQ, "qweight": FAR_APART},
            None,
            ValueError,
            "within -128..127 for 'int8' activations, but one is 300",
        ),
        ("qoq", CHANNELS, None, ValueError, "s1_szeros must be integers times s1_scales"),
        ("gptq", {}, None, ValueError, "a 'gptq' checkpoint has qweight, but no tensor has that name"),
        ("mxfp4", {}, None, ValueError, "has blocks or weight_packed or weight, but no tensor"),
        ("gptq", gptq(qweight=INT32.long()), None, TypeError, "qweight must be torch.int32, but is torch.int64"),
        ("gptq", gptq(qzeros=INT32[0]), None, ValueError, r"qzeros must have 2 dimensions of a matrix, but is \[8\]"),
        ("gptq", gptq(), {"bits": 8}, NotImplementedError, "weights of 8 bits"),
        ("gptq", gptq(), {"group_size": 64}, ValueError, "those of groups of 32, but the group size is said to be 64"),
        ("gptq", gptq(), {"checkpoint_format": "v3"}, ValueError, "'gptq' or 'gptq_v2', but is 'v3'"),
        ("gptq", gptq(scales=torch.ones(3, 8)), None, ValueError, "a multiple of the 3 groups that have scales"),
        ("gptq", gptq(scales=torch.ones(4, 7)), None, ValueError, r"scales must have the shape \[8, 4\].*\[7, 4\]"),
        ("gptq", gptq(g_idx=torch.zeros(128).int()), None, ValueError, "give each of 4 groups 32 of K=128"),
        ("gptq", gptq(g_idx=torch.zeros(64).int()), None, ValueError, "give each of 4 groups 32 of K=128"),
        ("awq", {}, {"version": "gemv"}, NotImplementedError, "version 'gemv' are not served"),
        ("compressed-tensors", PAIR, {"num_bits": 3}, NotImplementedError, "weights of 3 bits"),
        ("compressed-tensors", PAIR, TWO_GROUPS, ValueError, "2 config groups with different weights"),
        ("w4afp8", UNEQUAL, None, ValueError, r"of as many experts each.*of {'weight': 2, 'weight_scale_inv': 3}"),
        ("fp8-block", BLOCKS, None, ValueError, r"\[8, 64\] in blocks of \[128, 128\].* \[1, 1\], but have \[2, 1\]"),
    ],
)
def test_checkpoints_that_are_not_what_they_are_called_are_refused(form, tensors, config, error, message) -> None:
    with pytest.raises(error, match=message):
        weights_from_checkpoint(form, tensors, activations="int8", config=config)


def test_packed_weights_are_stored_in_safetensors(tmp_path) -> None:
    scales, zeros = scales_of((2, 40, 4), torch.float16), random((2, 40, 4), 0, 15, 2)
    stack = [
        checkpoints.gptq(random((40, 128), 0, 15, i), scales[i], zeros[i], g_idx=shuffled_groups(128, 32))
        for i in (0, 1)
    ]
    packed = weights_from_checkpoint(
        "gptq", {name: [one[name] for one in stack] for name in stack[0]}, activations="fp8"
    )
    save_file(packed.state_dict("layer."), tmp_path / "packed.safetensors")
    again = PackedWeights.from_state_dict(load_file(tmp_path / "packed.safetensors"), "layer.")
    assert repr(again) == repr(packed)
    assert all(map(torch.equal, again.tensors()[0], packed.tensors()[0]))
