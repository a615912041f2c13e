"""MXFP4 whose exponents go into the converted weights: which weights that is for, and that nothing is lost."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from deep_gemm import pack_weights, simulator
from deep_gemm.weights import codes as code

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
MAX_APART = 11  # exponents of 128 of K


def drawn(shape, exponents, seed=0):
    """Codes, and UE8M0 for each 32 of K between two exponents."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, shape, generator=generator).to(torch.uint8)
    low, high = exponents
    scales = torch.randint(low, high + 1, (*shape[:-1], shape[-1] // 32), generator=generator).to(torch.uint8)
    return codes, scales


def packed(codes, scales):
    return pack_weights(codes, scales, element="e2m1", activations="fp8", group_size=32)


def values(codes, scales) -> torch.Tensor:
    return torch.cat([E2M1, -E2M1])[codes.long()] * torch.exp2(scales.double() - 127).float().repeat_interleave(32, -1)


@pytest.mark.parametrize("shape", [(64, 128), (200, 2880), (2, 130, 256)], ids=str)
@pytest.mark.parametrize("base", [1, 120, 230])
def test_exponents_that_are_near_are_folded_and_nothing_is_lost(shape, base) -> None:
    codes, scales = drawn(shape, (base, base + MAX_APART))
    scales[..., 0], scales[..., 1] = base, base + MAX_APART
    codes[..., 0] = codes[..., 32] = 1
    w = packed(codes, scales)
    assert w.folds_exponents
    assert torch.equal(w.dequantize(), values(codes, scales))


def test_exponents_that_are_too_far_apart_are_not_folded() -> None:
    codes, scales = drawn((64, 256), (120, 120))
    codes[3, 128:] = 5
    scales[3, 4:6] = torch.tensor([120 - MAX_APART, 121])
    w = packed(codes, scales)
    assert not w.folds_exponents
    assert torch.equal(w.dequantize(), values(codes, scales))


def test_scales_that_are_no_powers_of_two_are_not_folded() -> None:
    codes, scales = drawn((64, 128), (127, 127))
    assert not packed(codes, scales.float() * 1.5).folds_exponents


def test_scales_of_nothing_but_zeros_may_be_any() -> None:
    codes, scales = drawn((64, 256), (120, 130))
    codes[5, 32:64], codes[7, :128] = 8, 0
    scales[5, 1], scales[7, :4] = 0, torch.tensor([0, 250, 3, 9], dtype=torch.uint8)
    w = packed(codes, scales)
    assert w.folds_exponents
    assert torch.equal(w.dequantize(), values(codes, scales))


def test_codes_lie_where_the_kernel_looks_for_them() -> None:
    codes, scales = drawn((64, 128), (127, 127))
    words = packed(codes, scales).codes.view(torch.int32)[0, 0, 0].long() & 0xFFFFFFFF
    natural = code.to_blocks(codes.to(torch.int8)).view(torch.int32)[0, 0].long() & 0xFFFFFFFF
    for byte in range(4):
        first, second = natural >> 8 * byte & 15, natural >> 8 * byte + 4 & 15
        assert torch.equal(words >> 4 * byte & 7, first & 7)
        assert torch.equal(words >> 16 + 4 * byte & 7, second & 7)
        assert torch.equal(words >> 8 * byte + 7 & 1, first >> 3)
        assert torch.equal(words >> 8 * byte + 3 & 1, second >> 3)


def test_a_part_a_copy_and_a_pickle_are_the_same_weights() -> None:
    codes, scales = drawn((256, 512), (120, 130))
    w, whole = packed(codes, scales), values(codes, scales)
    assert torch.equal(w.slice_n(64, 192).dequantize(), whole[64:192])
    assert torch.equal(w.slice_k(128, 384).dequantize(), whole[:, 128:384])
    assert torch.equal(pickle.loads(pickle.dumps(w)).dequantize(), whole)


def test_an_expert_whose_exponents_are_near_goes_into_any_stack() -> None:
    near, far = drawn((64, 128), (120, 125), seed=3), drawn((2, 64, 128), (100, 140))
    stack, one = packed(*far), packed(*near)
    assert (stack.folds_exponents, one.folds_exponents) == (False, True)
    stack.write(1, one)
    assert torch.equal(stack[1].dequantize(), values(*near))
    folded = packed(*drawn((2, 64, 128), (120, 125)))
    folded.write(0, one)
    assert torch.equal(folded[0].dequantize(), values(*near))


def test_an_expert_whose_exponents_are_far_apart_does_not_go_into_a_folded_stack() -> None:
    stack = packed(*drawn((2, 64, 128), (120, 125)))
    before = copy.deepcopy(stack.dequantize())
    with pytest.raises(ValueError, match="exponents of the new weights are too far apart"):
        stack.write(0, packed(*drawn((64, 128), (100, 140))))
    assert torch.equal(stack.dequantize(), before)


@pytest.mark.parametrize("group", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("apart", [3, 30])
def test_groups_of_any_multiple_of_32_are_packed_as_those_of_32(group, apart) -> None:
    codes, scales = drawn((72, 640), (110, 110 + apart))
    of_groups = scales[:, :: group // 32].contiguous()
    w = pack_weights(codes, of_groups, element="e2m1", activations="fp8", group_size=group)
    in_32 = of_groups.repeat_interleave(group // 32, 1)[:, :20].contiguous()
    same = packed(codes, in_32)
    assert torch.equal(w.codes, same.codes)
    assert torch.equal(w.scales, same.scales)
    assert torch.equal(w.dequantize(), values(codes, in_32))
    assert torch.equal(w.slice_n(64, 72).dequantize(), values(codes, in_32)[64:])


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
@pytest.mark.parametrize("activations", ["fp8", "bf16"])
@pytest.mark.parametrize("wrong", [255, torch.nan, torch.inf])
def test_a_scale_that_is_not_finite_is_refused_on_every_target_even_beside_zeros(target, activations, wrong) -> None:
    codes, scales = drawn((64, 128), (120, 121))
    scales = scales if wrong == 255 else torch.exp2(scales.float() - 127)
    codes[:, 32:64], scales[5, 1] = 0, wrong
    with simulator.options(target=target), pytest.raises(ValueError, match="scales must be finite, got"):
        pack_weights(codes, scales, element="e2m1", activations=activations, group_size=32)
