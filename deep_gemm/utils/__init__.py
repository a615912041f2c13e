"""Helpers of the public API: casts to scaled FP8, FP4, INT8 and INT4, integer helpers, and the scale layouts."""

from . import layout
from .layout import *  # noqa: F403
from .math import (
    align,
    cast_back_from_fp4,
    cast_back_from_fp8,
    ceil_div,
    ceil_to_ue8m0,
    pack_ue8m0_to_int,
    per_block_cast_to_fp8,
    per_channel_cast_to_fp8,
    per_channel_cast_to_int8,
    per_custom_dims_cast_to_fp8,
    per_token_cast_to_fp4,
    per_token_cast_to_fp8,
    per_token_cast_to_int8,
    per_token_cast_to_nvfp4,
    transpose_packed_fp4,
    unpack_ue8m0_from_int,
)
from .quantize import pack_int4, quantize_to_int4, quantize_to_mxfp4, unpack_int4

__all__ = [
    "align",
    "cast_back_from_fp4",
    "cast_back_from_fp8",
    "ceil_div",
    "ceil_to_ue8m0",
    "pack_int4",
    "pack_ue8m0_to_int",
    "per_block_cast_to_fp8",
    "per_channel_cast_to_fp8",
    "per_channel_cast_to_int8",
    "per_custom_dims_cast_to_fp8",
    "per_token_cast_to_fp4",
    "per_token_cast_to_fp8",
    "per_token_cast_to_int8",
    "per_token_cast_to_nvfp4",
    "quantize_to_int4",
    "quantize_to_mxfp4",
    "transpose_packed_fp4",
    "unpack_int4",
    "unpack_ue8m0_from_int",
]
__all__ += layout.__all__
