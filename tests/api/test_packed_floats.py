"""E2M1 and E4M3 weights for 16-bit activations: scales that are multiplied into them, and every value."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from packed_inputs import random

from deep_gemm import PackedWeights, pack_weights
from deep_gemm.weights import codes as code


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
    with pytest.raises(ValueError, match=r"second_scales must be one, or \[N\] = \[5\], got \[4\]"):
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
