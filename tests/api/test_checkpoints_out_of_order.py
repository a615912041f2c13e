"""Checkpoints whose columns lie out of order (`desc_act`): they are permuted once, and so are a product's inputs."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import ACTIVATIONS, PREFIX, by_g_idx, gptq, random, scales_of, shuffled_groups
from torch._subclasses.fake_tensor import FakeTensorMode

import deep_gemm
from deep_gemm import weights_from_checkpoint


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
        ((2, 3, 128), None, r"x must be \[..., K=256\], got shape \[2, 3, 128\]"),
        ((3, 256), None, r"x must be \[2, ..., K=256\], a part for each expert, got shape \[3, 256\]"),
        ((3, 256), 2, r"grouped_layout must be \[M\].*got \[2\] for x of \[3, 256\] and weights of \[2, 24, 256\]"),
    ],
)
def test_inputs_of_another_shape_are_not_permuted(shape, layout, message) -> None:
    w, _ = out_of_order_experts(2)
    with pytest.raises(ValueError, match=message):
        w.permute_inputs(torch.zeros(shape), None if layout is None else torch.zeros(layout, dtype=torch.int32))
