"""Activations and packed weights of each kind that is multiplied, and what they stand for in FP64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from inputs import ceil_div

import deep_gemm
from deep_gemm import simulator
from deep_gemm.utils import pack_int4

COUNTS = [5, 0, 130, 1]  # experts' rows
HEIGHT = 136
SIZES = [(1, 136, 272), (7, 24, 640), (129, 280, 144), (9, 40, 2880)]
# Relative to sum |a||w|: of Hopper's FP8, whose tensor cores keep about 13 bits; of exact sums, scaled in FP32.
TOLERANCES = {("cuda", "fp8"): 6e-4, ("cuda", "int8"): 2e-6, ("cpu", "fp8"): 1e-6, ("cpu", "int8"): 2e-6}
TOLERANCES |= {(device, "int4"): 2e-6 for device in ("cuda", "cpu")}
HUGE = {"fp8": float("nan"), "int8": 127, "int4": 7}
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


@dataclass(frozen=True)
class Kind:
    activations: str
    scales: str  # of tokens
    element: str = "int4"
    smallest: int = -7
    group: int | None = 128
    zeros: tuple[int, int] | None = None  # the least and the largest
    two_levels: bool = False  # of scales, those of groups integers
    powers: int = 0  # scales are of so many powers of two; 0: they are any numbers

    def function(self, name: str):
        weights = "fp4" if self.element == "e2m1" else "int4"
        return getattr(
            deep_gemm, name.format("int4" if self.activations == "int4" else f"{self.activations}_{weights}")
        )


KINDS = {
    "fp8": Kind("fp8", "k_groups"),
    "fp8-token-scales": Kind("fp8", "rows"),
    "fp8-with-minus-eight": Kind("fp8", "number", smallest=-8),
    "fp8-groups-of-64": Kind("fp8", "rows", group=64),
    "fp8-groups-of-32": Kind("fp8", "k_groups", group=32),
    "fp8-channels": Kind("fp8", "rows", group=None),
    "mxfp4": Kind("fp8", "rows", "e2m1", group=32),
    "mxfp4-k-groups": Kind("fp8", "k_groups", "e2m1", group=32),
    "mxfp4-near-exponents": Kind("fp8", "rows", "e2m1", group=32, powers=12),
    "mxfp4-near-exponents-k-groups": Kind("fp8", "k_groups", "e2m1", group=32, powers=3),
    "mxfp4-groups-of-64": Kind("fp8", "rows", "e2m1", group=64),
    "mxfp4-groups-of-128": Kind("fp8", "k_groups", "e2m1", group=128),
    "mxfp4-groups-of-192-near-exponents": Kind("fp8", "rows", "e2m1", group=192, powers=3),
    "mxfp4-groups-of-256-near-exponents": Kind("fp8", "k_groups", "e2m1", group=256, powers=12),
    "int8": Kind("int8", "rows", smallest=-8, group=None),
    "int8-one-scale": Kind("int8", "number", smallest=-8, group=None),
    "fp8-zeros": Kind("fp8", "k_groups", "uint4", zeros=(-1, 16)),
    "fp8-zeros-token-scales": Kind("fp8", "rows", "uint4", zeros=(0, 15)),
    "fp8-signed-zeros": Kind("fp8", "number", smallest=-8, zeros=(-9, 8)),
    "fp8-zeros-groups-of-64": Kind("fp8", "rows", "uint4", group=64, zeros=(-1, 16)),
    "fp8-zeros-groups-of-32": Kind("fp8", "k_groups", "uint4", group=32, zeros=(-1, 16)),
    "fp8-zeros-channels": Kind("fp8", "rows", "uint4", group=None, zeros=(-1, 16)),
    "int8-zeros": Kind("int8", "rows", "uint4", group=None, zeros=(-112, 128)),
    "int8-signed-zeros": Kind("int8", "number", smallest=-8, group=None, zeros=(-9, 8)),
    "int8-zeros-groups-of-128": Kind("int8", "rows", "uint4", zeros=(0, 15)),
    "int8-zeros-groups-of-32": Kind("int8", "k_groups", "uint4", group=32, zeros=(-1, 16)),
    "int4-zeros": Kind("int4", "rows", "uint4", group=None, zeros=(0, 15)),
    "int8-two-levels": Kind("int8", "rows", "uint4", zeros=(0, 15), two_levels=True),
    "int8-two-levels-groups-of-64": Kind("int8", "number", "uint4", group=64, zeros=(0, 15), two_levels=True),
    "int8-two-levels-groups-of-32": Kind("int8", "rows", smallest=-8, group=32, two_levels=True),
    "int8-k-groups": Kind("int8", "k_groups", smallest=-8, group=None),
    "int8-groups-of-128": Kind("int8", "rows", smallest=-8),
    "int8-groups-of-64": Kind("int8", "k_groups", smallest=-8, group=64),
    "int8-groups-of-32": Kind("int8", "rows", smallest=-8, group=32),
    "int4": Kind("int4", "rows", smallest=-8, group=None),
    "int4-groups-of-128": Kind("int4", "k_groups", smallest=-8),
}


class Tokens:
    """Activations [..., rows, K] with scales of a kind, and both in FP64."""

    def __init__(self, kind: Kind, shape: tuple[int, ...], generator: torch.Generator) -> None:
        *rows, k = shape
        activations, scales = kind.activations, kind.scales
        if activations == "fp8":
            self.data = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
        else:
            least = -8 if activations == "int4" else -128
            self.data = torch.randint(least, -least, shape, generator=generator, dtype=torch.int8)
        self.activations = activations
        self.shape = shape
        if scales == "number":
            self.scales = 0.0625
            self.exact = self.data.double() * self.scales
            return
        groups = ceil_div(k, 128) if scales == "k_groups" else 1
        self.scales = (torch.rand((*rows, groups), generator=generator) + 0.5) / 64
        every = self.scales.double().repeat_interleave(128 if scales == "k_groups" else k, -1)[..., :k]
        self.exact = self.data.double() * every
        if scales == "rows":
            self.scales = self.scales[..., 0]

    def to(self, device: torch.device):
        data = apart(pack_int4(self.data)) if self.activations == "int4" else self.data
        return data.to(device), self.scales if isinstance(self.scales, float) else self.scales.to(device)


def apart(packed: torch.Tensor) -> torch.Tensor:
    """The same in rows that begin anywhere."""
    wide = torch.full((*packed.shape[:-1], packed.shape[-1] + 5), -1, dtype=torch.int8)
    return wide[..., 3 : 3 + packed.shape[-1]].copy_(packed)


def weights(kind: Kind, shape: tuple[int, ...], generator: torch.Generator, gate_up: str | None = None):
    """PackedWeights; and what they stand for by what `pack_weights` was told, not by what it packed."""
    *groups, n, k = shape
    size = kind.group
    shape_of_scales = (*groups, n, ceil_div(k, size) if size else 1)  # the last group may be a part of one
    scales = (torch.rand(shape_of_scales, generator=generator) + 0.5) / 16
    if kind.powers:
        scales = torch.exp2(torch.randint(-9, kind.powers - 9, shape_of_scales, generator=generator))
    second = zeros = None
    if kind.two_levels:
        second = scales[..., 0]
        scales = torch.randint(-8, 9, shape_of_scales, generator=generator, dtype=torch.int8)
        scales[..., 0, 0] = 16  # with a zero point of 8 it fills s8
    if kind.element == "e2m1":
        values = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        decoded = torch.tensor(E2M1 + [-value for value in E2M1])[values.long()].double()
    else:
        low, high = (0, 16) if kind.element == "uint4" else (kind.smallest, 8)
        values = torch.randint(low, high, shape, generator=generator, dtype=torch.int8)
        decoded = values.double()
    if kind.zeros is not None:
        low, high = kind.zeros
        zeros = torch.randint(low, high + 1, shape_of_scales, generator=generator, dtype=torch.int32)
        zeros[..., 0] = torch.arange(n) % (high - low + 1) + low
        if kind.two_levels:
            zeros[..., 0, 0] = 8
        decoded -= zeros.double().repeat_interleave(size or k, -1)[..., :k]
        zeros = zeros if size else zeros[..., 0]
    with simulator.options(target="sm_90a"):  # in blocks, as all that convert them take them
        packed = deep_gemm.pack_weights(
            values,
            scales if size else scales[..., 0],
            zeros,
            element=kind.element,
            activations=kind.activations,
            group_size=size,
            second_scales=second,
            gate_up=gate_up,
        )
    assert packed.needs_zeros == (kind.zeros is not None or kind.two_levels)
    decoded *= scales.double().repeat_interleave(size or k, -1)[..., :k]
    return packed, decoded if second is None else decoded * second.double().unsqueeze(-1)


def check(d: torch.Tensor, a: torch.Tensor, w: torch.Tensor, activations: str, added: torch.Tensor | float = 0) -> None:
    expected, magnitude = a @ w.mT + added, a.abs() @ w.abs().mT
    allowed = TOLERANCES[d.device.type, activations] * magnitude + ROUNDING[d.dtype] * expected.abs() + 1e-6
    found = d.double().cpu()
    wrong = ((found - expected).abs() > allowed) | ~found.isfinite()
    assert not wrong.any(), f"{wrong.sum().item()} of {wrong.numel()} elements are wrong"


def expert_bias(kind: Kind, biased: bool, n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """As an argument."""
    return {"bias": torch.randn((len(COUNTS), n), generator=generator)} if biased else {}


def on(device: torch.device, arguments: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to(device) for name, value in arguments.items()}
