"""Groups of K in checkpoints: a last one that K does not fill, sizes that nobody tells, and K out of order."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from checkpoint_inputs import exactly, random, scales_of, shuffled_groups

import deep_gemm
from deep_gemm import weights_from_checkpoint


def integers(form: str, k: int, group: int, n: int = 32):
    """Tensors and what they stand for: codes with zero points, scales of groups of which K may fill a part."""
    groups = -(-k // group)
    codes, zeros = random((n, k), 0, 15, 0), random((n, groups), 1, 15, 2)
    scales = scales_of((n, groups), torch.float16)
    if form == "gptq":
        return checkpoints.gptq(codes, scales, zeros, group=group), exactly(codes, scales, zeros, group)
    if form == "awq":
        return checkpoints.awq(codes, scales, zeros), exactly(codes, scales, zeros, group)
    if form == "compressed-tensors":
        return checkpoints.pack_quantized(codes - 8, scales, zeros - 8), exactly(codes, scales, zeros, group)
    scales = scales.float()
    pairs = checkpoints.pairs(codes - 8)
    return {"weight": pairs, "weight_scale_inv": scales}, exactly(codes - 8, scales, None, group)


FORMS = pytest.mark.parametrize("form", ["gptq", "awq", "compressed-tensors", "w4afp8"])


@FORMS
@pytest.mark.parametrize("k", [704, 192, 288])
@pytest.mark.parametrize("activations", ["int8", "fp8", "bf16"])
def test_a_last_group_that_k_does_not_fill(form, k, activations) -> None:
    tensors, wanted = integers(form, k, 128)
    w = weights_from_checkpoint(form, tensors, activations=activations, config={"group_size": 128})
    assert w.group_size == 128
    assert torch.equal(w.dequantize(), wanted)
    assert torch.equal(w.slice_k(128, k).dequantize(), wanted[:, 128:])


@pytest.mark.parametrize(("activations", "function"), [("fp8", "fp8_int4_gemm_nt"), ("int8", "int8_int4_gemm_nt")])
def test_a_last_group_that_k_does_not_fill_is_multiplied(activations, function) -> None:
    tensors, wanted = integers("gptq", 288, 128)
    w = weights_from_checkpoint("gptq", tensors, activations=activations, config={"group_size": 128})
    x = random((5, 288), -8, 7, 5)
    x = x.to(torch.int8) if activations == "int8" else x.float().to(torch.float8_e4m3fn)
    d = torch.empty((5, 32))
    getattr(deep_gemm, function)((x, 0.5), w, d)
    exact = x.double() @ wanted.double().T * 0.5
    assert ((d.double() - exact).abs() <= 1e-5 * exact.abs().max()).all()


@pytest.mark.parametrize("form", ["awq", "compressed-tensors"])
@pytest.mark.parametrize("k", [704, 192, 288])
def test_where_nothing_tells_the_size_of_groups_it_is_not_guessed(form, k) -> None:
    tensors, _ = integers(form, k, 128)
    with pytest.raises(ValueError, match=rf"K={k} and the .* groups of .* do not tell .*config's group_size"):
        weights_from_checkpoint(form, tensors, activations="int8")


def test_the_group_of_each_k_tells_the_size_of_groups() -> None:
    tensors, wanted = integers("gptq", 192, 128)
    w = weights_from_checkpoint("gptq", tensors, activations="int8")
    assert w.group_size == 128
    assert torch.equal(w.dequantize(), wanted)


@FORMS
@pytest.mark.parametrize("group_size", [64, 256, -1])
def test_another_group_size_than_the_scales_have_is_refused(form, group_size) -> None:
    tensors, _ = integers(form, 256, 128)
    with pytest.raises(ValueError, match=r"(group_size|groups of)"):
        weights_from_checkpoint(form, tensors, activations="int8", config={"group_size": group_size})


@pytest.mark.parametrize("index", [torch.full((128,), -1), torch.empty(0)], ids=["-1", "empty"])
@pytest.mark.parametrize("form", ["gptq", "compressed-tensors"])
def test_an_index_that_names_no_group_is_none(form, index) -> None:
    tensors, wanted = integers(form, 128, 32)
    tensors["g_idx" if form == "gptq" else "weight_g_idx"] = index.to(torch.int32)
    w = weights_from_checkpoint(form, tensors, activations="int8")
    assert w.input_permutation is None
    assert torch.equal(w.dequantize(), wanted)


@pytest.mark.parametrize("index", [None, torch.full((128,), -1).int()], ids=["none", "-1"])
def test_act_order_without_the_group_of_each_k_is_refused(index) -> None:
    gptq, _ = integers("gptq", 128, 32)
    packed, _ = integers("compressed-tensors", 128, 32)
    gptq.pop("g_idx")
    if index is not None:
        gptq["g_idx"] = packed["weight_g_idx"] = index
    with pytest.raises(ValueError, match=r"in act order \(config's desc_act\) has g_idx"):
        weights_from_checkpoint("gptq", gptq, activations="int8", config={"desc_act": True})
    with pytest.raises(ValueError, match=r"in act order \(config's actorder\) has weight_g_idx"):
        weights_from_checkpoint("compressed-tensors", packed, activations="int8", config={"actorder": "group"})


def test_an_index_out_of_order_that_the_config_denies_is_refused() -> None:
    tensors, _ = integers("gptq", 128, 32)
    tensors["g_idx"] = shuffled_groups(128, 32).int()
    with pytest.raises(ValueError, match="g_idx must be in order, as config's desc_act says"):
        weights_from_checkpoint("gptq", tensors, activations="int8", config={"desc_act": False})


@pytest.mark.parametrize("config", [{}, {"group_size": 32, "desc_act": True}], ids=str)
def test_a_row_shard_in_act_order_is_refused_in_words_that_say_so(config) -> None:
    tensors, _ = integers("gptq", 128, 32)
    shard = {**tensors, "qweight": tensors["qweight"][:8], "g_idx": shuffled_groups(128, 32)[:64].int()}
    with pytest.raises(ValueError, match="a row shard of weights in act order cannot be packed"):
        weights_from_checkpoint("gptq", shard, activations="int8", config=config)


def test_act_order_with_a_last_group_that_k_does_not_fill() -> None:
    codes, zeros, scales = random((16, 192), 0, 15, 0), random((16, 2), 1, 15, 2), scales_of((16, 2), torch.float16)
    g_idx = shuffled_groups(192, 128)
    tensors = checkpoints.gptq(codes, scales, zeros, g_idx=g_idx)
    w = weights_from_checkpoint("gptq", tensors, activations="fp8", config={"desc_act": True, "group_size": 128})
    wanted = ((codes - zeros[:, g_idx]).double() * scales.double()[:, g_idx]).float()
    assert torch.equal(w.dequantize(), wanted[:, w.input_permutation])
