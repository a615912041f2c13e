"""Operands of products: what a call takes, and the numbers that it stands for in FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import layout, weights
from .._precompile import Operands
from .._products import PACKED, PRODUCTS
from ..utils.math import (
    cast_back_from_fp4,
    ceil_div,
    ceil_to_ue8m0,
    per_channel_cast_to_int8,
    per_token_cast_to_fp4,
    per_token_cast_to_fp8,
    per_token_cast_to_int8,
)
from ..utils.quantize import pack_int4, quantize_to_int4, quantize_to_mxfp4
from .case import Wanted

_BLOCK = 128


@dataclass
class Operand:
    """`values(g)` is `[rows, K]` of group g, or of the only one."""

    argument: Any
    values: Callable[[int], torch.Tensor]


def fp8_blocks(x: torch.Tensor, blocks: tuple[int, ...], use_ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3, and a scale for each block of so many along each dimension."""
    counts = [ceil_div(extent, block) for extent, block in zip(x.shape, blocks, strict=True)]
    padding = [(0, n * block - extent) for extent, block, n in zip(x.shape, blocks, counts, strict=True)]
    padded = torch.nn.functional.pad(x.float(), [each for pair in reversed(padding) for each in pair])
    split = padded.view(*(part for pair in zip(counts, blocks, strict=True) for part in pair))
    scales = split.abs().amax([*range(1, 2 * x.dim(), 2)], keepdim=True).clamp(min=1e-4) / 448.0
    scales = ceil_to_ue8m0(scales) if use_ue8m0 else scales
    codes = (
        (split / scales)
        .clamp(-448.0, 448.0)
        .to(torch.float8_e4m3fn)
        .view(padded.shape)[tuple(slice(extent) for extent in x.shape)]
    )
    return codes.contiguous(), scales.view(counts)


def spread(scales: torch.Tensor, blocks: tuple[int, ...], shape: torch.Size) -> torch.Tensor:
    """FP64, one for each number of `shape`."""
    each = scales.double()
    for dim, block in enumerate(blocks):
        each = each.repeat_interleave(block, dim)
    return each[tuple(slice(extent) for extent in shape)]


def _of(values: torch.Tensor) -> Callable[[int], torch.Tensor]:
    """By group, of `[rows, K]` or `[G, rows, K]`."""
    return lambda group: (values if values.dim() == 2 else values[group]).double()


def tokens(kind: str, shape: tuple[int, ...], wanted: Wanted) -> Operand:
    """Activations `[rows, K]`, or `[G, rows, K]`."""
    x = wanted.normal(*shape)
    *lead, k = shape
    if kind in ("bf16", "fp16"):
        x = x.to(torch.bfloat16 if kind == "bf16" else torch.float16)
        return Operand(x, _of(x))
    rows = x.view(-1, k)
    if kind == "fp8":
        q, s = (part.view(*lead, -1) for part in per_token_cast_to_fp8(rows, wanted.blackwell))
        argument = q, aligned(s, wanted)
        return Operand(argument, lambda g: _of(q.float() * s.repeat_interleave(_BLOCK, -1)[..., :k])(g))
    if kind == "int8":
        q, s = per_token_cast_to_int8(x)
        return Operand((q, s), lambda g: _of(q.float() * s[..., None])(g))
    if kind == "int4":
        codes, s = wanted.integers(-8, 8, *shape, dtype=torch.int8), wanted.normal(*lead).abs() + 0.5
        return Operand((pack_int4(codes), s), lambda g: _of(codes.float() * s[..., None])(g))
    return _fp4(rows, lead, wanted)


def _fp4(rows: torch.Tensor, lead: list[int], wanted: Wanted) -> Operand:
    codes, s = per_token_cast_to_fp4(rows, True, 32)
    values = cast_back_from_fp4(codes, s, 32).view(*lead, -1)
    return Operand((codes.view(*lead, -1), aligned(s.view(*lead, -1), wanted)), _of(values))


def aligned(scales: torch.Tensor, wanted: Wanted) -> torch.Tensor:
    """As a serving stack holds them, so that a call launches one kernel."""
    if wanted.blackwell:
        return layout.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales)
    return layout.get_mn_major_tma_aligned_tensor(scales)


def of_weights(product: str, shape: tuple[int, ...], wanted: Wanted) -> Operand:
    """`[N, K]`, or `[G, N, K]`: an expert at a time, since the numbers of all of them in FP32 might not fit."""
    *lead, n, k = shape
    count = lead[0] if lead else 1
    if product not in PACKED:
        made = [_plain_weights(product, wanted.normal(n, k), wanted) for _ in range(count)]
        if not lead:
            return made[0]
        if isinstance(made[0].argument, torch.Tensor):
            return Operand(torch.stack([each.argument for each in made]), lambda g: made[g].values(0))
        parts = (torch.stack(part) for part in zip(*(each.argument for each in made), strict=True))
        argument = tuple(_as_products_read(part, made[0].argument[i]) for i, part in enumerate(parts))
        return Operand(argument, lambda g: made[g].values(0))
    return _packed_weights(product, n, k, lead, count, wanted)


def _as_products_read(stacked: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    """A stack whose matrices lie as one does: scales are MN-major."""
    if one.stride(-1) == 1 or one.dim() < 2:
        return stacked
    padded = one.stride(-1)
    memory = stacked.new_empty((*stacked.shape[:-2], stacked.shape[-1], padded))
    out = memory.transpose(-1, -2)[..., : stacked.shape[-2], :]
    return out.copy_(stacked)


def _plain_weights(kind: str, w: torch.Tensor, wanted: Wanted) -> Operand:
    if kind in ("bf16", "fp16"):
        w = w.to(torch.bfloat16 if kind == "bf16" else torch.float16)
        return Operand(w, _of(w))
    if kind == "fp8":
        blocks = (_BLOCK, _BLOCK)
        q, s = fp8_blocks(w, blocks, wanted.blackwell)
        given = s
        if wanted.blackwell:
            given = layout.transform_sf_into_required_layout(s, w.shape[0], w.shape[1], blocks)
        return Operand((q, given), lambda _: q.double() * spread(s, blocks, q.shape))
    if kind == "int8":
        q, s = per_channel_cast_to_int8(w)
        return Operand((q, s), lambda _: q.double() * s.double()[:, None])
    return _fp4(w, [w.shape[0]], wanted)


def _packed_weights(product: str, n: int, k: int, lead: list[int], count: int, wanted: Wanted) -> Operand:
    kind, group = PRODUCTS[product], Operands(product, wanted.group_size).scale_group()
    element = str(kind.weights)
    made = [_codes(element, wanted.normal(n, k), group, wanted.zero_points) for _ in range(count)]
    values, scales = [each[0] for each in made], [each[1] for each in made]
    zeros = [zero for _, _, zero in made if zero is not None]
    packed = weights.pack_weights(
        values if lead else values[0],
        scales if lead else scales[0],
        None if not zeros else zeros if lead else zeros[0],
        element=f"u{element}" if wanted.zero_points else element,
        activations=kind.activations,
        group_size=group,
    )
    return Operand(packed, lambda g: _of(packed.dequantize())(g))


def _codes(
    element: str, w: torch.Tensor, group: int | None, zero_points: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Values, scales and zero points, as `pack_weights` takes them."""
    if element == "int4":
        values, scales, *zeros = quantize_to_int4(w, group, symmetric=not zero_points)
        return values, scales, zeros[0] if zeros else None
    if zero_points:
        raise ValueError(f"zero_points must be False with weights of {element} here")
    if element == "e2m1":
        return *quantize_to_mxfp4(w), None
    size = group or w.shape[1]
    if element == "e4m3":
        return *per_token_cast_to_fp8(w, False, size), None
    groups = w.view(w.shape[0], -1, size)
    scales = groups.abs().amax(2) / 127.0
    values = torch.round(groups / scales[..., None]).to(torch.int8).view_as(w)
    return values, scales if group else scales[:, 0], None
