"""Integer helpers and casts to scaled FP8, FP4 and INT8.

A cast takes a BF16, FP16 or FP32 tensor x and returns `(t, sf)`: `t` in `torch.float8_e4m3fn`, `sf` in FP32, so that
`t * sf` is close to the input. The scale of a group of values is its largest magnitude over 448 (the largest E4M3
value), where magnitudes below 1e-4 count as 1e-4 (so zeros give zeros, never 0/0). With `use_ue8m0` scales are rounded
up to powers of two, as UE8M0, the scale format of Blackwell, can hold. All work on any device, and raise ValueError or
TypeError where an argument cannot be right.

On a GPU the kernels of `deep_gemm.quantize` make the same bits in one pass, where they have the group; elsewhere torch
does, and that is what tests compare with.

FP4 is E2M1: a sign and one of eight magnitudes up to 6. Two codes share a byte (torch.int8), the first in the low
nibble.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from .._numbers import integer
from ._on_gpu import by_kernel, int8_by_kernel, nvfp4_by_kernel

_E4M3_MAX = 448.0
_E2M1_MAX = 6.0
_INT8_MIN, _INT8_MAX = -128, 127
_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by code; codes from 8 on are their negatives
_SMALLEST_AMAX = 1e-4
_FP32_MANTISSA_BITS = 23
_SCALES_PER_WORD = 4
_NVFP4_GROUP = 16
_UE8M0_NAN = 255


def ceil_div(x: int, y: int) -> int:
    """`x / y`, rounded up."""
    return -(-x // y)


def align(x: int, y: int) -> int:
    """The smallest multiple of `y` that is not below `x`."""
    return ceil_div(x, y) * y


def ceil_to_ue8m0(x: torch.Tensor) -> torch.Tensor:
    """Magnitudes of x rounded up to powers of two that UE8M0 can hold, exactly (on the bits, not through a logarithm).

    The result lies in [2^-126, 2^127]: zero and FP32's denormal numbers become 2^-126.
    """
    bits = x.abs().float().view(torch.int32)
    has_fraction = (bits & ((1 << _FP32_MANTISSA_BITS) - 1)) != 0
    exponents = (bits >> _FP32_MANTISSA_BITS) + has_fraction.int()
    return (exponents.clamp(1, 254) << _FP32_MANTISSA_BITS).view(torch.float32)


def pack_ue8m0_to_int(x: torch.Tensor) -> torch.Tensor:
    """x, FP32 powers of two `[..., 4 * n]` -> int32 `[..., n]`: four exponents a word, the first in the low byte."""
    if x.dtype != torch.float32:
        raise TypeError(f"x must be torch.float32, got {x.dtype}")
    if x.dim() == 0 or x.shape[-1] % _SCALES_PER_WORD != 0:
        raise ValueError(f"the last dimension of x must be a multiple of {_SCALES_PER_WORD}, got shape {[*x.shape]}")
    bits = x.contiguous().view(torch.int32)
    if bool((bits & ~(0xFF << _FP32_MANTISSA_BITS)).any()):
        raise ValueError("x must hold powers of two only (no sign, no fraction): round it with ceil_to_ue8m0")
    return (bits >> _FP32_MANTISSA_BITS).to(torch.uint8).view(torch.int32)


def unpack_ue8m0_from_int(packed_sf: torch.Tensor) -> torch.Tensor:
    """packed_sf, int32 `[..., n]` -> FP32 `[..., 4 * n]`: the scales whose exponents `pack_ue8m0_to_int` packed.

    An exponent of 0 gives 0, and one of 255, which is UE8M0's NaN, gives NaN.
    """
    if packed_sf.dtype != torch.int32:
        raise TypeError(f"packed_sf must be torch.int32, got {packed_sf.dtype}")
    if packed_sf.dim() == 0:
        raise ValueError("packed_sf must have a dimension along which scales are packed, got a scalar")
    # A copy, because contiguous() leaves any stride to a dimension of size one, which views as bytes do not take.
    words = packed_sf.clone(memory_format=torch.contiguous_format)
    exponents = words.view(torch.uint8).to(torch.int32)
    scales = (exponents << _FP32_MANTISSA_BITS).view(torch.float32)
    return scales.masked_fill(exponents == _UE8M0_NAN, torch.nan)


def _require_float(x: torch.Tensor, dimensions: int | None = None) -> None:
    if not x.is_floating_point():
        raise TypeError(f"x must be a floating-point tensor (BF16, FP16 or FP32), got {x.dtype}")
    if dimensions is not None and x.dim() != dimensions:
        raise ValueError(f"x must have {dimensions} dimensions, got shape {[*x.shape]}")


def _scales(values: torch.Tensor, dims: tuple[int, ...], largest: float, use_ue8m0: bool) -> torch.Tensor:
    """One scale for all values along `dims`, which it keeps with size one: values over it are at most `largest`."""
    amax = values.abs().amax(dim=dims, keepdim=True) if values.numel() else values.sum(dim=dims, keepdim=True)
    # A tensor divisor, because on a GPU torch multiplies by the reciprocal of a Python number, which is inexact.
    sf = amax.clamp(min=_SMALLEST_AMAX) / torch.full((), largest, device=amax.device)
    return ceil_to_ue8m0(sf) if use_ue8m0 else sf


def _cast_groups(x: torch.Tensor, dims: tuple[int, ...], use_ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast with one scale for all values along `dims`. The scales keep `dims` with size one."""
    values = x.float()
    sf = _scales(values, dims, _E4M3_MAX, use_ue8m0)
    # The quotient may pass 448 by one rounding of FP32; some versions of torch cast what is out of range to NaN.
    return (values / sf).clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn), sf


def _padded(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """`x` with zeros appended up to `rows` by `columns`; `x` itself where it has that size."""
    if (rows, columns) == tuple(x.shape):
        return x
    return torch.nn.functional.pad(x, (0, columns - x.shape[1], 0, rows - x.shape[0]))


def per_token_cast_to_fp8(
    x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[m, n]` -> FP8 `[m, n]` and one scale per row and `gran_k` columns, `[m, ceil(n / gran_k)]`.

    With `use_packed_ue8m0` the scales are packed four to an int32 (`pack_ue8m0_to_int`).
    """
    _require_float(x, 2)
    if use_packed_ue8m0 and not use_ue8m0:
        raise ValueError("use_packed_ue8m0 needs use_ue8m0: only powers of two can be packed")
    m, n, gran_k = *x.shape, integer("gran_k", gran_k, smallest=1)
    made = by_kernel("FP8", x, gran_k, use_ue8m0, use_packed_ue8m0)
    if made is not None:
        return made
    columns = align(n, gran_k * (_SCALES_PER_WORD if use_packed_ue8m0 else 1))
    groups = _padded(x, m, columns).reshape(m, columns // gran_k, gran_k)
    t, sf = _cast_groups(groups, (2,), use_ue8m0)
    t, sf = t.view(m, columns)[:, :n].contiguous(), sf.squeeze(2)
    return t, pack_ue8m0_to_int(sf) if use_packed_ue8m0 else sf


def per_channel_cast_to_fp8(x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """`[m, n]` -> FP8 `[m, n]` and one scale per column and `gran_k` rows, `[ceil(m / gran_k), n]`."""
    _require_float(x, 2)
    m, n, gran_k = *x.shape, integer("gran_k", gran_k, smallest=1)
    rows = align(m, gran_k)
    groups = _padded(x, rows, n).reshape(rows // gran_k, gran_k, n)
    t, sf = _cast_groups(groups, (1,), use_ue8m0)
    return t.view(rows, n)[:m], sf.squeeze(1)


def per_block_cast_to_fp8(x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """`[m, n]` -> FP8 `[m, n]` and one scale per `gran_k` x `gran_k` block, `[ceil(m / gran_k), ceil(n / gran_k)]`."""
    _require_float(x, 2)
    m, n, gran_k = *x.shape, integer("gran_k", gran_k, smallest=1)
    made = by_kernel("FP8_BLOCKS", x, gran_k, use_ue8m0)
    if made is not None:
        return made
    rows, columns = align(m, gran_k), align(n, gran_k)
    blocks = _padded(x, rows, columns).reshape(rows // gran_k, gran_k, columns // gran_k, gran_k)
    t, sf = _cast_groups(blocks, (1, 3), use_ue8m0)
    return t.view(rows, columns)[:m, :n].contiguous(), sf.squeeze(3).squeeze(1)


def per_custom_dims_cast_to_fp8(
    x: torch.Tensor, dims: Sequence[int], use_ue8m0: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 of x's shape, and one scale for each index of the dimensions `dims` (they keep theirs; all others share).

    The scales have the shape of `x`'s dimensions `dims`, without those of size one.
    """
    _require_float(x)
    for dim in dims:
        if not -x.dim() <= dim < x.dim():
            raise IndexError(f"dims must name dimensions of x, which has {x.dim()}, got {[*dims]}")
    kept = {dim % x.dim() for dim in dims}
    shared = tuple(dim for dim in range(x.dim()) if dim not in kept)
    if not shared:
        raise ValueError(f"dims {[*dims]} names every dimension of x: no values would share a scale")
    t, sf = _cast_groups(x, shared, use_ue8m0)
    return t, sf.squeeze()


def per_token_cast_to_fp4(
    x: torch.Tensor, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[m, n]`, n even -> packed FP4, int8 `[m, n / 2]`, and one scale per row and `gran_k` columns.

    The scale of a group is its largest magnitude over 6; quotients halfway between two FP4 values go to the one whose
    code is even. The scales are `[m, ceil(n / gran_k)]`, or with `use_packed_ue8m0` packed four to an int32.
    """
    _require_float(x, 2)
    if x.shape[1] % 2 != 0:
        raise ValueError(f"x must have an even number of columns, two to a byte, got shape {[*x.shape]}")
    if use_packed_ue8m0 and not use_ue8m0:
        raise ValueError("use_packed_ue8m0 needs use_ue8m0: only powers of two can be packed")
    m, n, gran_k = *x.shape, integer("gran_k", gran_k, smallest=1)
    made = by_kernel("FP4", x, gran_k, use_ue8m0, use_packed_ue8m0)
    if made is not None:
        return made
    columns = align(n, gran_k * (_SCALES_PER_WORD if use_packed_ue8m0 else 1))
    groups = _padded(x, m, columns).reshape(m, columns // gran_k, gran_k).float()
    sf = _scales(groups, (2,), _E2M1_MAX, use_ue8m0)
    codes = _e2m1_codes(groups / sf).view(m, columns)[:, :n]
    sf = sf.squeeze(2)
    return _pack_codes(codes), pack_ue8m0_to_int(sf) if use_packed_ue8m0 else sf


def per_token_cast_to_nvfp4(
    x: torch.Tensor, global_scale: torch.Tensor | float | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`[m, n]`, n even -> packed FP4, int8 `[m, n / 2]`, E4M3 scales `[m, ceil(n / 16)]` and an FP32 scale of all.

    The global scale is `max(|x|) / 2688`, of which 2688 is 6 * 448, or `global_scale`, and magnitudes below 1e-4 count
    as 1e-4 in the former. The scale of 16 columns is `(max(|x|) / 6) / global`, at most 448, rounded to the nearest
    E4M3 number, halves to the even one. The code is that of the E2M1 value nearest to `x / (scale * global)`, of two
    equally near ones the even code; where the scale is 0, that of 0. All steps are in FP32, each rounded once.

    For `fp4_gemm_nt`, whose `alpha` is the product of both operands' global scales.
    """
    _require_float(x, 2)
    if x.shape[1] % 2 != 0:
        raise ValueError(f"x must have an even number of columns, two to a byte, got shape {[*x.shape]}")
    m, n = x.shape
    columns = align(n, _NVFP4_GROUP)
    groups = _padded(x, m, columns).reshape(m, columns // _NVFP4_GROUP, _NVFP4_GROUP).float()
    if global_scale is None:
        whole = _scales(groups, (0, 1, 2), _E2M1_MAX * _E4M3_MAX, use_ue8m0=False).view(())
    else:
        whole = torch.as_tensor(global_scale, dtype=torch.float32, device=x.device)
    made = nvfp4_by_kernel(x, whole)
    if made is not None:
        return made
    # Tensor divisors: see _scales.
    wanted = groups.abs().amax(2) / torch.full((), _E2M1_MAX, device=x.device) / whole
    scales = wanted.clamp(max=_E4M3_MAX).to(torch.float8_e4m3fn)
    every = (scales.float() * whole)[..., None]
    codes = _e2m1_codes(torch.where(every == 0, torch.zeros_like(groups), groups / every)).view(m, columns)[:, :n]
    return _pack_codes(codes), scales, whole


def cast_back_from_fp4(
    packed: torch.Tensor, sf: torch.Tensor, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> torch.Tensor:
    """FP32 `[m, n]` of what `per_token_cast_to_fp4` returned, `packed` and `sf`, with its other arguments."""
    _require_packed_fp4(packed, "packed")
    scales = _scales_of_columns(sf, packed.shape[0], packed.shape[1] * 2, gran_k, use_packed_ue8m0)
    codes = _unpack_codes(packed)
    magnitudes = torch.tensor(_E2M1_VALUES, device=packed.device)[(codes & 7).long()]
    return torch.where(codes >= 8, -magnitudes, magnitudes) * scales


def cast_back_from_fp8(
    x: torch.Tensor, sf: torch.Tensor, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> torch.Tensor:
    """FP32 `[m, n]` of what `per_token_cast_to_fp8` returned, `x` and `sf`, with its other arguments."""
    if x.dtype != torch.float8_e4m3fn or x.dim() != 2:
        raise TypeError(f"x must be float8_e4m3fn [m, n], got {x.dtype} {[*x.shape]}")
    return x.float() * _scales_of_columns(sf, x.shape[0], x.shape[1], gran_k, use_packed_ue8m0)


TILE_ROWS, TILE_COLUMNS = 128, 4  # of scales as cuBLASLt reads them


def scales_of_tiles(tiles: torch.Tensor) -> torch.Tensor:
    """Scales of one byte in rows, out of cuBLASLt's order, which other libraries call swizzled.

    That is tiles of 128 rows and 4 columns, 512 bytes each; in a tile 32 rows, and of each those 32, 64 and 96 further
    on, with their columns. `tiles` and what is returned are `[rows, columns]`, multiples of a tile's.
    """
    rows, columns = tiles.shape
    parts = tiles.view(torch.uint8).view(rows // TILE_ROWS, columns // TILE_COLUMNS, 32, 4, TILE_COLUMNS)
    return parts.permute(0, 3, 2, 1, 4).reshape(rows, columns).view(tiles.dtype)


def _scales_of_columns(sf: torch.Tensor, m: int, n: int, gran_k: int, packed: bool) -> torch.Tensor:
    """FP32 `[m, n]`: scales of `gran_k` columns each, repeated for them."""
    gran_k = integer("gran_k", gran_k, smallest=1)
    scales = unpack_ue8m0_from_int(sf) if packed else sf
    wanted = align(ceil_div(n, gran_k), _SCALES_PER_WORD) if packed else ceil_div(n, gran_k)
    if tuple(scales.shape) != (m, wanted):
        words = " packed exponents" if packed else ""
        raise ValueError(
            f"sf must hold {m} rows of {wanted}{words}, one for {gran_k} of {n} columns, got shape {[*sf.shape]}"
        )
    return scales.repeat_interleave(gran_k, 1)[:, :n]


def per_token_cast_to_int8(x: torch.Tensor, symmetric: bool = True) -> tuple[torch.Tensor, ...]:
    """`[..., n]` -> INT8 `[..., n]` and one FP32 scale per row, `[...]`: for `int8_gemm_nt`.

    `scale = max(|x|) / 127` and `q = round(x / scale)` within -127..127, in FP32; `round` is to the nearest integer,
    halves to the even one, and magnitudes below 1e-4 count as 1e-4 in scales. With `symmetric=False` a third tensor
    comes with them, zero points in int32 `[...]`, and the row's range, which always has 0 in it, is spread over all
    256 values: `low = min(x, 0)`, `high = max(x, 0)`, `scale = (high - low) / 255`, `zero = -128 - round(low / scale)`
    and `q = round(x / scale) + zero` within -128..127, so that `scale * (q - zero)` is close to x.

    Rows must be finite: nobody looks, because a call may be captured, and a row that is not gives a meaningless row.
    """
    _require_float(x)
    if x.dim() == 0:
        raise ValueError("x must have rows, got a scalar")
    made = int8_by_kernel(x, symmetric)
    if made is not None:
        return made
    values = x.float()
    if symmetric:
        sf = _scales(values, (-1,), _INT8_MAX, use_ue8m0=False)
        return torch.round(values / sf).clamp(-_INT8_MAX, _INT8_MAX).to(torch.int8), sf.squeeze(-1)
    low, high = (values.new_zeros((*values.shape[:-1], 1)) for _ in range(2))
    if values.shape[-1] > 0:
        low, high = values.amin(-1, keepdim=True).clamp(max=0), values.amax(-1, keepdim=True).clamp(min=0)
    sf = (high - low).clamp(min=_SMALLEST_AMAX) / torch.full((), _INT8_MAX - _INT8_MIN, device=x.device)
    zeros = _INT8_MIN - torch.round(low / sf)
    q = (torch.round(values / sf) + zeros).clamp(_INT8_MIN, _INT8_MAX).to(torch.int8)
    return q, sf.squeeze(-1), zeros.squeeze(-1).to(torch.int32)


def per_channel_cast_to_int8(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """w `[..., n, k]` -> INT8 `[..., n, k]` and one FP32 scale per output channel, `[..., n]`: symmetric rows."""
    q, sf = per_token_cast_to_int8(w)
    return q, sf


def transpose_packed_fp4(a: torch.Tensor) -> torch.Tensor:
    """Packed FP4 `[m, n / 2]` of a matrix `[m, n]`, m even -> that of its transpose, `[n, m / 2]`."""
    _require_packed_fp4(a, "a")
    if a.shape[0] % 2 != 0:
        raise ValueError(f"a must have an even number of rows, two to a byte of the result, got {a.shape[0]}")
    return _pack_codes(_unpack_codes(a).T)


def _require_packed_fp4(packed: torch.Tensor, name: str) -> None:
    if packed.dtype != torch.int8:
        raise TypeError(f"{name} must be torch.int8, two FP4 codes a byte, got {packed.dtype}")
    if packed.dim() != 2:
        raise ValueError(f"{name} must have 2 dimensions, got shape {[*packed.shape]}")


def _e2m1_codes(x: torch.Tensor) -> torch.Tensor:
    """Codes of the nearest FP4 values, uint8; of two that are equally near, of the even one. Zero has no sign."""
    midpoints = [(low + high) / 2 for low, high in itertools.pairwise(_E2M1_VALUES)]
    boundaries = torch.tensor(midpoints, device=x.device)
    # A quotient on a boundary stays below it. Above an odd code it must not: that boundary moves down by one number.
    boundaries[1::2] = torch.nextafter(boundaries[1::2], boundaries.new_zeros(()))
    codes = torch.bucketize(x.abs(), boundaries).to(torch.uint8)
    return codes | ((x < 0) & (codes != 0)).to(torch.uint8) << 3


def _pack_codes(codes: torch.Tensor) -> torch.Tensor:
    return (codes[:, 0::2] | codes[:, 1::2] << 4).contiguous().view(torch.int8)


def _unpack_codes(packed: torch.Tensor) -> torch.Tensor:
    """Packed codes `[..., n / 2]` -> uint8 `[..., n]`, the one in the low nibble first."""
    pairs = packed.contiguous().view(torch.uint8)
    return torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(-2)
