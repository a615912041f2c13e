"""Weights of 4 bits: packing two to a byte."""

from __future__ import annotations

import torch

INT4_MIN, INT4_MAX = -8, 7


def pack_int4(values: torch.Tensor) -> torch.Tensor:
    """int8 `[..., K]` of -8..7, K even -> int8 `[..., K / 2]`: two in a byte, the first one in the low nibble."""
    if values.dtype != torch.int8:
        raise TypeError(f"values must be torch.int8, but are {values.dtype}")
    if values.dim() == 0 or values.shape[-1] % 2 != 0:
        raise ValueError(
            f"values must have an even last dimension, two to a byte, but their shape is {[*values.shape]}"
        )
    if values.numel() and bool(((values < INT4_MIN) | (values > INT4_MAX)).any()):
        raise ValueError(f"values must lie within {INT4_MIN}..{INT4_MAX}")
    return (values[..., 0::2] & 15 | values[..., 1::2] << 4).contiguous()


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """The inverse of `pack_int4`: int8 (or uint8) `[..., K / 2]` -> int8 `[..., K]` of -8..7."""
    if packed.dtype not in (torch.int8, torch.uint8):
        raise TypeError(f"packed must be torch.int8 or torch.uint8, but is {packed.dtype}")
    if packed.dim() == 0:
        raise ValueError("packed must have a dimension along which values are packed, but is a scalar")
    pairs = packed.contiguous().view(torch.int8)
    return torch.stack((pairs << 4, pairs), dim=-1).flatten(-2) >> 4
