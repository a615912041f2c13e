"""Weights to be packed, what they stand for, and where their codes lie."""

from __future__ import annotations

import itertools

import torch

from deep_gemm import PackedWeights

FORMATS = [(element, activations) for element in ("int4", "uint4") for activations in ("int8", "fp8", "bf16")]
GROUPS = [None, 32, 64, 128, 96, 192, 256]


def random(shape, low, high, seed=0) -> torch.Tensor:
    return torch.randint(low, high + 1, tuple(shape), generator=torch.Generator().manual_seed(seed))


def values_of(element, shape, seed=0, smallest=None) -> torch.Tensor:
    low, high = {"int4": (-8, 7), "uint4": (0, 15)}[element]
    return random(shape, low if smallest is None else smallest, high, seed).to(torch.int8)


def weights(element, activations, shape, group_size, seed=0, smallest=None) -> dict:
    """Arguments of pack_weights."""
    *_, k = shape
    groups = shape[:-1] if group_size is None else (*shape[:-1], k // group_size)
    generator = torch.Generator().manual_seed(seed)
    return {
        "values": values_of(element, shape, seed, smallest),
        "scales": torch.rand(groups, generator=generator) + 0.01,
        "zeros": random(groups, 0, 15, seed + 1).to(torch.int32) if element == "uint4" else None,
        "element": element,
        "activations": activations,
        "group_size": group_size,
    }


def two_levels(element, shape, group_size, seed=0) -> dict:
    """The same with integer scales of groups, whose products with codes reach both ends of s8."""
    arguments = weights(element, "int8", shape, group_size, seed)
    scales = random(arguments["scales"].shape, -8, 8, seed + 2).to(torch.int8)
    scales[..., ::2] = 16
    if element == "uint4":
        arguments["zeros"] = torch.full(scales.shape, 8, dtype=torch.int32)
    return {**arguments, "scales": scales, "second_scales": torch.rand(shape[:-1]) + 0.01}


def wanted(arguments) -> torch.Tensor:
    """scale * (q - zero), of FP32 scales, and times the second scale in FP32 where there is one."""
    values, scales, zeros = arguments["values"], arguments["scales"], arguments["zeros"]
    second = arguments.get("second_scales")
    if arguments["group_size"] is None:
        scales, zeros = scales.unsqueeze(-1), zeros if zeros is None else zeros.unsqueeze(-1)
    group = values.shape[-1] // scales.shape[-1]
    difference = values.int() if zeros is None else values.int() - zeros.int().repeat_interleave(group, -1)
    scaled = difference.float() * scales.repeat_interleave(group, -1)
    return scaled if second is None else scaled * second.unsqueeze(-1)


def floating_weights(element, activations, near=False, second=None) -> dict:
    """Arguments of pack_weights; `near`: exponents of scales are near enough to each other to be multiplied in."""
    shape, generator = (2, 150, 384), torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    values = codes & 15 if element == "e2m1" else codes.masked_fill(codes & 127 == 127, 0).view(torch.float8_e4m3fn)
    scales = torch.rand((*shape[:-1], shape[-1] // 32), generator=generator) + 0.5
    if near:
        scales = torch.exp2(scales.mul(8).round())
    if near and activations == "bf16":
        scales[..., 3] = 0  # codes there are packed as zeros
    kind = {"element": element, "activations": activations, "group_size": 32}
    return {"values": values, "scales": scales, "second_scales": second, **kind}


EVERY_ORDER = {
    **{"-".join(pair): weights(*pair, (2, 150, 384), 32) for pair in FORMATS},
    "int4-fp8-no-minus-eight": weights("int4", "fp8", (2, 150, 384), 32, smallest=-7),
    "uint4-bf16-without-zeros": {
        **weights("uint4", "bf16", (2, 150, 384), 32),
        "zeros": torch.full((2, 150, 12), 8).int(),
    },
    "e2m1-fp8": floating_weights("e2m1", "fp8"),
    "e2m1-fp8-folded": floating_weights("e2m1", "fp8", near=True),
    "e2m1-bf16": floating_weights("e2m1", "bf16"),
    "e2m1-bf16-scales-multiplied-in": floating_weights("e2m1", "bf16", near=True, second=0.25),
    "e4m3-bf16": floating_weights("e4m3", "bf16"),
}


def places():
    """Of a block: row, k, the byte, and whether the code is the first one there."""
    for warp, half, r in itertools.product(range(4), range(2), range(8)):
        for v, s, h, quad, byte in itertools.product(range(2), range(2), range(2), range(4), range(4)):
            row, k = 16 * warp + 8 * half + r, 64 * v + 32 * s + 16 * h + 4 * quad + byte
            yield row, k, v * 2048 + (32 * warp + 4 * r + quad) * 16 + s * 8 + h * 4 + byte, half == 0


PLACES = torch.tensor(list(places()))


def matrix_of(codes: torch.Tensor, take) -> torch.Tensor:
    """[rows, K] of [rows / 64, K / 128, 4096]: what `take(words of 4 bytes, whether first)` says of each code."""
    row, k, place, first = PLACES.T
    n_blocks, k_blocks, _ = codes.shape
    words = codes.view(n_blocks, k_blocks, -1, 4)
    halves = torch.stack([take(words, True), take(words, False)]).view(2, n_blocks, k_blocks, -1)
    blocks = torch.zeros((n_blocks, k_blocks, 64, 128), dtype=halves.dtype)
    blocks[:, :, row, k] = halves.permute(1, 2, 0, 3)[:, :, 1 - first, place]
    return blocks.transpose(1, 2).reshape(n_blocks * 64, k_blocks * 128)


def high_nibbles(words, first):
    """As kernels convert for INT8: 16 times the value."""
    return (words << 4 if first else words & 0xF0).view(torch.int8)


def same(a: PackedWeights, b: PackedWeights) -> bool:
    (tensors_a, data_a), (tensors_b, data_b) = a.tensors(), b.tensors()
    return data_a == data_b and all(map(torch.equal, tensors_a, tensors_b))
