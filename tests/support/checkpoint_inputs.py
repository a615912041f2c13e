"""What tests of checkpoints write into them, and what that stands for."""

from __future__ import annotations

import checkpoints
import pytest
import torch
from safetensors.torch import load_file, save_file

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


def shuffled_groups(k, group, seed=3):
    order = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    g_idx = torch.empty(k, dtype=torch.long)
    g_idx[order] = torch.arange(k) // group
    return g_idx


def by_g_idx(values, scales, zeros, g_idx) -> torch.Tensor:
    """As its own order of K has it: each column takes the scale of its group."""
    difference = values.int() if zeros is None else values.int() - zeros.int()[:, g_idx]
    return difference.float() * scales.float()[:, g_idx]


def gptq(**changed):
    scales, zeros = scales_of((8, 4), torch.float16), random((8, 4), 1, 15, 2)
    return {**checkpoints.gptq(random((8, 128), 0, 15, 0), scales, zeros), **changed}


@pytest.fixture
def through_file(tmp_path):
    """What is read again of tensors that were written to a file, beside those of another layer."""

    def write_and_read(tensors):
        stored = {f"{PREFIX}{name}": tensor for name, tensor in tensors.items()}
        save_file({**stored, "model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
        return load_file(tmp_path / "model.safetensors")

    return write_and_read


def exactly(values, scales, zeros=None, group=None) -> torch.Tensor:
    """scale * (q - zero) in FP64, rounded once to FP32. Scales and zeros [N, groups]; the last may be a part of one."""
    k = values.shape[1]
    group = -(-k // scales.shape[1]) if group is None else group
    difference = values.double()
    if zeros is not None:
        difference = difference - zeros.double().repeat_interleave(group, 1)[:, :k]
    return (difference * scales.double().repeat_interleave(group, 1)[:, :k]).float()
