"""Packed weights beside BF16 and FP16 activations, and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import deep_gemm

TOLERANCE = {"cuda": 1e-5, "cpu": 4e-7}  # relative to sum |a||w|
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}


@dataclass(frozen=True)
class Kind:
    weights: str  # as functions are named
    element: str
    group: int | None
    config: str  # what `explain` calls it
    scales: str = "fp32"
    zeros: tuple[int, int] | None = None  # the least and the largest

    def function(self, name: str):
        return getattr(deep_gemm, name.format(f"bf16_{self.weights}"))

    def fields(self) -> dict[str, int]:
        size = {"channel_scales": 1} if self.group is None else {"gran_k_b": self.group}
        return {self.config: 1, **size, **({} if self.scales == "fp32" else {"conversion_scales": 1})}


KINDS = {
    "int4": Kind("int4", "int4", 128, "s4b"),
    "int4-groups-of-64": Kind("int4", "int4", 64, "s4b"),
    "int4-groups-of-32": Kind("int4", "int4", 32, "s4b"),
    "int4-channels": Kind("int4", "int4", None, "s4b"),
    "int4-zeros": Kind("int4", "uint4", 128, "u4", zeros=(-1, 16)),
    "int4-zeros-groups-of-64": Kind("int4", "uint4", 64, "u4", zeros=(0, 15)),
    "int4-signed-zeros-groups-of-32": Kind("int4", "int4", 32, "u4", zeros=(-128, 127)),
    "int4-zeros-channels": Kind("int4", "uint4", None, "u4", zeros=(-1, 16)),
    "mxfp4": Kind("fp4", "e2m1", 32, "e2m1", scales="powers of two"),
    "nvfp4": Kind("fp4", "e2m1", 16, "e2m1", scales="e4m3"),
    "fp4-groups-of-32": Kind("fp4", "e2m1", 32, "e2m1"),
    "fp4-channels": Kind("fp4", "e2m1", None, "e2m1"),
    "int8": Kind("int8", "int8", 128, "s8b"),
    "int8-groups-of-32": Kind("int8", "int8", 32, "s8b"),
    "int8-channels": Kind("int8", "int8", None, "s8b"),
    "int8-zeros": Kind("int8", "uint8", 128, "u8", zeros=(0, 255)),
    "int8-zeros-groups-of-64": Kind("int8", "uint8", 64, "u8", zeros=(0, 255)),
    "int8-signed-zeros-groups-of-32": Kind("int8", "int8", 32, "u8", zeros=(-128, 127)),
    "int8-zeros-channels": Kind("int8", "uint8", None, "u8", zeros=(0, 255)),
    "fp8": Kind("fp8", "e4m3", 128, "e4m3p"),
    "fp8-channels": Kind("fp8", "e4m3", None, "e4m3p"),
}
RANGES = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}
E2M1 = torch.tensor([sign * value for sign in (1, -1) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)])


def activations(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def weights(
    kind: Kind,
    shape: tuple[int, ...],
    generator: torch.Generator,
    gate_up: str | None = None,
    scales: torch.Tensor | None = None,
):
    """PackedWeights; and what they stand for by what `pack_weights` was told, not by what it packed.

    scales: FP32 of groups, in the place of drawn ones.
    """
    *groups, n, k = shape
    size = kind.group
    count = (*groups, n, -(-k // size) if size else 1)  # the last group may be a part of one
    second = None
    if scales is not None:
        assert (scales.shape, kind.scales) == (count, "fp32")
    elif kind.scales == "powers of two":
        scales = torch.exp2(torch.randint(-12, -3, count, generator=generator).float())
    elif kind.scales == "e4m3":
        second = torch.rand((*groups, n) if groups else (), generator=generator) / 64 + 1e-4
        scales = torch.exp2(torch.randint(-9, 9, count, generator=generator).float()).to(torch.float8_e4m3fn)
        scales.view(torch.uint8)[..., 1::2] |= 5  # other mantissas, and subnormal numbers of them
    else:
        scales = (torch.rand(count, generator=generator) + 0.5) / 16
    zeros = None
    if kind.element in RANGES:
        dtype = torch.uint8 if kind.element == "uint8" else torch.int8
        values = torch.randint(*RANGES[kind.element], shape, generator=generator, dtype=dtype)
        decoded = values.double()
        if kind.zeros is not None:
            zeros = torch.randint(kind.zeros[0], kind.zeros[1] + 1, count, generator=generator, dtype=torch.int32)
            decoded -= zeros.double().repeat_interleave(size or k, -1)[..., :k]
            zeros = zeros if size else zeros[..., 0]
    elif kind.element == "e2m1":
        values = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        decoded = E2M1[values.long()].double()
    else:
        codes = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        values = codes.masked_fill(codes & 127 == 127, 0).view(torch.float8_e4m3fn)
        decoded = values.double()
    packed = deep_gemm.pack_weights(
        values,
        scales if size else scales[..., 0],
        zeros,
        element=kind.element,
        activations="bf16",
        group_size=size,
        second_scales=second,
        gate_up=gate_up,
    )
    assert packed.needs_zeros == (kind.zeros is not None)
    assert (packed.second_scales is not None) == (kind.scales != "fp32" and size is not None)
    factor = 1 if second is None else second.double().reshape(*groups, -1, 1)
    return packed, decoded * scales.double().repeat_interleave(size or k, -1)[..., :k] * factor


def check(d: torch.Tensor, a: torch.Tensor, w: torch.Tensor, added: torch.Tensor | float = 0) -> None:
    a = a.double()
    expected, magnitude = a @ w.mT + added, a.abs() @ w.abs().mT
    allowed = TOLERANCE[d.device.type] * magnitude + ROUNDING[d.dtype] * expected.abs() + 1e-6
    found = d.double().cpu()
    wrong = ((found - expected).abs() > allowed) | ~found.isfinite()
    assert not wrong.any(), f"{wrong.sum().item()} of {wrong.numel()} elements are wrong"
