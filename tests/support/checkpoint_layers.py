"""A right layer of each format: its tensors, its config, and what it stands for in FP64, rounded once to FP32.

Scales have few bits of mantissa, or are powers of two, so that every type that may hold them does so exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import checkpoints
import torch
from checkpoint_inputs import exactly, random, shuffled_groups

N, K, GROUP = 64, 192, 32
GROUPS = K // GROUP
E2M1 = torch.tensor([sign * value for sign in (1, -1) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)])


@dataclass
class RightLayer:
    format: str
    activations: str
    tensors: dict[str, Any]
    config: dict[str, Any]
    values: torch.Tensor
    untold: dict[str, int] = field(default_factory=dict)  # of a tensor, the dimension that no other tells


def few_bits(shape, dtype=torch.float16, seed=1) -> torch.Tensor:
    return (random(shape, 8, 15, seed).float() / 16).to(dtype)


def gptq(in_order: bool = True, k: int = K, group: int = GROUP) -> RightLayer:
    groups = -(-k // group)
    codes, zeros, scales = random((N, k), 0, 15, 0), random((N, groups), 0, 15, 2), few_bits((N, groups))
    g_idx = torch.arange(k) // group if in_order else shuffled_groups(k, group)
    config = {"bits": 4, "group_size": group, "sym": False, "desc_act": not in_order, "checkpoint_format": "gptq"}
    values = ((codes - zeros[:, g_idx]).double() * scales.double()[:, g_idx]).float()
    tensors = checkpoints.gptq(codes, scales, zeros, "gptqmodel", g_idx)
    return RightLayer("gptq", "fp8", tensors, {**config, "meta": {"quantizer": ["gptqmodel:2.2.0"]}}, values)


def awq() -> RightLayer:
    codes, zeros, scales = random((N, K), 0, 15, 0), random((N, GROUPS), 0, 15, 2), few_bits((N, GROUPS))
    config = {"bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm", "quant_method": "awq"}
    return RightLayer("awq", "int8", checkpoints.awq(codes, scales, zeros), config, exactly(codes, scales, zeros))


def w4afp8() -> RightLayer:
    codes, scales = random((2, N, 384), -8, 7, 0), few_bits((2, N, 3), torch.float32)
    values = torch.stack([exactly(*parts) for parts in zip(codes, scales, strict=True)])
    return RightLayer(
        "w4afp8",
        "fp8",
        {"weight": checkpoints.pairs(codes).view(torch.int8), "weight_scale_inv": scales},
        {"quant_method": "w4afp8", "group_size": 128},
        values,
    )


def qoq(of_groups: bool) -> RightLayer:
    codes, second = random((N, K), 0, 15, 0), few_bits((N,))
    config = {"w_bit": 4, "group_size": GROUP if of_groups else -1, "quant_method": "qoq"}
    if not of_groups:
        zeros = random((N,), 0, 15, 2)
        tensors = checkpoints.qoq(codes, second, (zeros * second.float()).half())
        exact = exactly(codes, second.view(N, 1), zeros.view(N, 1))
        return RightLayer("qoq", "int8", tensors, config, exact, {"qweight": 1})
    scales, zeros = random((N, GROUPS), 1, 8, 2).to(torch.int8), random((N, GROUPS), 0, 15, 3)
    tensors = checkpoints.qoq(codes, scales, zeros * scales, second)
    return RightLayer("qoq", "int8", tensors, config, exactly(codes, scales.double() * second.double()[:, None], zeros))


def mxfp4(blocks: bool) -> RightLayer:
    codes, exponents = random((N, K), 0, 15, 0), random((N, GROUPS), 120, 126, 2).to(torch.uint8)
    pairs = checkpoints.pairs(codes)
    tensors = (
        {"blocks": pairs.view(N, GROUPS, 16), "scales": exponents}
        if blocks
        else {"weight_packed": pairs, "weight_scale": exponents}
    )
    values = exactly(E2M1[codes.long()], torch.exp2(exponents.double() - 127))
    return RightLayer("mxfp4", "fp8", tensors, {"quant_method": "mxfp4"}, values)


def nvfp4(stacked: bool) -> RightLayer:
    codes, scales = random((3, N, K), 0, 15, 0), few_bits((3, N, K // 16), torch.float8_e4m3fn)
    second = torch.tensor([0.5, 0.25, 2.0])
    values = torch.stack(
        [exactly(E2M1[c.long()], s.double() * x) for c, s, x in zip(codes, scales, second, strict=True)]
    )
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    tensors = {"weight": checkpoints.pairs(codes), "weight_scale": scales, "weight_scale_2": second}
    if not stacked:
        tensors, values = {name: tensor[0] for name, tensor in tensors.items()}, values[0]
    return RightLayer("nvfp4", "bf16", tensors, config, values)


def fp8_blocks() -> RightLayer:
    values = torch.randn((40, 384), generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    blocks = torch.exp2(-random((1, 3), 1, 7, 3).float())
    exact = exactly(values.float(), blocks.expand(40, 3))
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}
    tensors = {"weight": values, "weight_scale_inv": blocks}
    return RightLayer("fp8-block", "bf16", tensors, config, exact, {"weight": 0})


def compressed(packed: bool, in_order: bool = True) -> RightLayer:
    shape = (N, GROUPS if packed else 1)
    values, zeros = random((N, K), -8, 7, 0), random(shape, -8, 7, 2)
    scales = few_bits(shape, torch.bfloat16)
    g_idx = torch.arange(K) // GROUP if in_order else shuffled_groups(K, GROUP)
    keys = {"num_bits": 4, "type": "int", "strategy": "group" if packed else "channel", "symmetric": False}
    if packed:
        tensors = checkpoints.pack_quantized(values, scales, zeros, g_idx=None if in_order else g_idx)
        keys |= {"group_size": GROUP} if in_order else {"group_size": GROUP, "actorder": "group"}
        exact = ((values - zeros[:, g_idx]).double() * scales.double()[:, g_idx]).float()
    else:
        tensors = {"weight": values.to(torch.int8), "weight_scale": scales, "weight_zero_point": zeros.to(torch.int8)}
        exact = exactly(values, scales, zeros)
    return RightLayer("compressed-tensors", "int8", tensors, keys, exact, {} if packed else {"weight": 1})


LAYERS: dict[str, Callable[[], RightLayer]] = {
    "gptq": gptq,
    "gptq-act-order": lambda: gptq(in_order=False),
    "gptq-last-group": lambda: gptq(k=192, group=128),
    "awq": awq,
    "w4afp8-experts": w4afp8,
    "qoq-groups": lambda: qoq(of_groups=True),
    "qoq-channels": lambda: qoq(of_groups=False),
    "mxfp4-blocks": lambda: mxfp4(blocks=True),
    "mxfp4": lambda: mxfp4(blocks=False),
    "nvfp4": lambda: nvfp4(stacked=False),
    "nvfp4-experts": lambda: nvfp4(stacked=True),
    "fp8-block": fp8_blocks,
    "pack-quantized": lambda: compressed(packed=True),
    "pack-quantized-act-order": lambda: compressed(packed=True, in_order=False),
    "int-quantized": lambda: compressed(packed=False),
}
