"""Scale layouts: what the GEMM kernels need their scale tensors to look like.

A scale tensor is called *MN-major and aligned* when its rows (the M or N direction) are contiguous, each K column
starts at a multiple of 16 bytes, and columns follow each other without a gap beyond that. The kernels load such
tensors as they are. Memory is allocated here by torch; the work is done by a kernel on the tensor's device (for CPU
tensors: on the simulator), on torch's current stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ._extension import C

__all__ = [
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_mn_major_tma_aligned_tensor",
    "get_tma_aligned_size",
    "transform_sf_into_required_layout",
]

_TMA_ALIGNMENT_BYTES = 16
_SCALES_PER_WORD = 4
_BLOCK_ROWS = 128

# Numbers of `enum class ScaleEncoding` in deep_gemm/include/deep_gemm/kernels/scale_layout_params.cuh.
_WORDS, _EXPONENTS_EXACT, _EXPONENTS_ROUNDED = 0, 1, 2


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def get_tma_aligned_size(mn: int, element_size: int) -> int:
    """Round `mn` up so that `mn * element_size` is a multiple of 16 bytes, as the copy engine wants row pitches."""
    if element_size not in (1, 2, 4, 8, 16):
        raise ValueError(f"element_size must divide 16, but is {element_size}")
    per_line = _TMA_ALIGNMENT_BYTES // element_size
    return _ceil_div(mn, per_line) * per_line


def get_mn_major_tma_aligned_tensor(sf: torch.Tensor) -> torch.Tensor:
    """FP32 scales `[mn, k]` or `[groups, mn, k]` in any strides -> the same values, MN-major, MN padded to 16 bytes.

    Scales that already look so are returned as they are, and nothing is launched. The padding of a new tensor is zero.
    """
    _require_scales(sf, torch.float32)
    return _as_required(sf)


def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf: torch.Tensor) -> torch.Tensor:
    """FP32 scales `[mn, k]` or `[groups, mn, k]` -> int32 `[..., mn, ceil(k / 4)]`, MN-major and aligned.

    One word packs the UE8M0 exponents of four neighbours along K, the first in the low byte. The scales must be powers
    of two (or zero); a scale with a sign or a mantissa has no such exponent and becomes UE8M0's NaN (0xFF), so that
    the product shows it. Scales past the end of K are packed as zero bytes.
    """
    _require_scales(sf, torch.float32)
    return _packed(sf, rows=sf.shape[-2], row_granularity=1, encoding=_EXPONENTS_EXACT)


def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
    sf: torch.Tensor, ks_tensor: torch.Tensor, ks: Sequence[int]
) -> torch.Tensor:
    """FP32 scales `[sum of ceil(k_g / 128), mn]` of K-grouped operands -> int32 `[sum of ceil(k_g / 512), mn]`.

    Packs as `get_mn_major_tma_aligned_packed_ue8m0_tensor` does, each group by itself: no word holds scales of two
    groups. `ks` are the groups' K on the host (they size the result), `ks_tensor` the same numbers as int32 on the
    device.
    """
    _require_scales(sf, torch.float32, dimensions=(2,))
    ks = [int(k) for k in ks]
    if any(k < 0 for k in ks):
        raise ValueError(f"ks must not be negative, but are {ks}")
    if ks_tensor.dtype != torch.int32:
        raise TypeError(f"ks_tensor must be int32, but is {ks_tensor.dtype}")
    if tuple(ks_tensor.shape) != (len(ks),):
        raise ValueError(f"ks_tensor must have the shape ({len(ks)},) of ks, but has {tuple(ks_tensor.shape)}")
    if ks_tensor.device != sf.device:
        raise ValueError(f"ks_tensor must be on the device of sf ({sf.device}), but is on {ks_tensor.device}")
    wanted = sum(_ceil_div(k, 128) for k in ks)
    if sf.shape[0] != wanted:
        raise ValueError(f"sf must have {wanted} rows, one per 128 of each group's K in {ks}, but has {sf.shape[0]}")
    rows = sf.shape[1]
    padded_rows = get_tma_aligned_size(rows, 4)
    words = sum(_ceil_div(k, 128 * _SCALES_PER_WORD) for k in ks)
    out = torch.empty((words, padded_rows), dtype=torch.int32, device=sf.device)[:, :rows]
    if out.numel() > 0:
        C.scale_layout_transform_k_grouped(sf, ks_tensor.contiguous(), out, padded_rows, _EXPONENTS_EXACT)
    return out


def transform_sf_into_required_layout(
    sf: torch.Tensor,
    mn: int,
    k: int,
    recipe: Sequence[int],
    num_groups: int | None = None,
    is_sfa: bool | None = None,
    disable_ue8m0_cast: bool = False,
    psum_layout: torch.Tensor | bool | None = None,
) -> torch.Tensor:
    """Bring the scales of one operand into the layout that the kernels of its device load without further work.

    Args:
        sf: scales of an operand of `mn` rows and `k` columns: FP32, or (on Blackwell) int32 that packs four UE8M0
            exponents.
        mn, k: extents of the operand (of one group).
        recipe: `(rows of A, rows of B, columns)` that share one scale, and then `is_sfa` says which operand this is;
            or `(rows, columns)` of this operand.
        num_groups: number of groups; `sf` then has a leading dimension of that size.
        disable_ue8m0_cast: on Blackwell, keep FP32 scales as FP32 instead of rounding them up to powers of two.
        psum_layout: accepted for compatibility; how rows belong to experts does not change the layout of scales.

    Returns:
        On Hopper: scales per row as `get_mn_major_tma_aligned_tensor` gives them; scales per block as they came.
        On Blackwell: packed exponents, scales per block repeated for each row.
    """
    del psum_layout
    rows_per_scale, columns_per_scale = _granularity(recipe, is_sfa)
    grouped = num_groups is not None
    dimensions = (3,) if grouped else (2,)
    packed = sf.dtype == torch.int32
    blackwell = C.scale_layout_arch_major(sf) >= 10
    if packed and not blackwell:
        raise TypeError(
            "scales must be float32 on Hopper, but these are int32 (packed UE8M0 exponents, which only Blackwell takes)"
        )
    _require_scales(sf, torch.int32 if packed else torch.float32, dimensions)

    columns = columns_per_scale * (_SCALES_PER_WORD if packed else 1)
    shape = (_ceil_div(mn, rows_per_scale), _ceil_div(k, columns))
    wanted = (num_groups, *shape) if grouped else shape
    if tuple(sf.shape) != wanted:
        raise ValueError(
            f"scales of an operand with mn={mn}, k={k}"
            + (f", num_groups={num_groups}" if grouped else "")
            + f", one per {rows_per_scale}x{columns}, must have the shape {wanted}, but have {tuple(sf.shape)}"
        )

    if packed:
        if rows_per_scale != 1:
            raise ValueError(f"packed scales must be per row, but the recipe says one per {rows_per_scale} rows")
        return _as_required(sf)
    if blackwell and not disable_ue8m0_cast:
        return _packed(sf, rows=mn, row_granularity=rows_per_scale, encoding=_EXPONENTS_ROUNDED)
    if rows_per_scale == 1:
        return _as_required(sf)
    return sf


def _granularity(recipe: Sequence[int], is_sfa: bool | None) -> tuple[int, int]:
    """Rows and columns that share a scale, out of a recipe of two or three numbers."""
    recipe = tuple(int(size) for size in recipe)
    if len(recipe) == 3:
        if is_sfa is None:
            raise ValueError(f"is_sfa must say whether these are A's scales: the recipe {recipe} names both operands")
        rows, columns = recipe[0 if is_sfa else 1], recipe[2]
    elif len(recipe) == 2:
        rows, columns = recipe
    else:
        raise ValueError(f"recipe must be (rows of A, rows of B, columns) or (rows, columns), but is {recipe}")
    if rows not in (1, _BLOCK_ROWS) or columns != 128:
        raise ValueError(f"scales must be one per 1x128 or per 128x128, but the recipe {recipe} says {rows}x{columns}")
    return rows, columns


def _require_scales(sf: torch.Tensor, dtype: torch.dtype, dimensions: tuple[int, ...] = (2, 3)) -> None:
    if sf.dtype != dtype:
        raise TypeError(f"scales must be {dtype}, but are {sf.dtype}")
    if sf.dim() not in dimensions:
        layouts = " or ".join({2: "[mn, k]", 3: "[groups, mn, k]"}[count] for count in dimensions)
        raise ValueError(f"scales must be {layouts}, but have {sf.dim()} dimensions: {tuple(sf.shape)}")


def _has_required_layout(sf: torch.Tensor, padded_rows: int) -> bool:
    # A dimension of size one may carry any stride; but a gap-free tensor of that shape must really lie there, because
    # the kernels compute addresses from the padded size. So the strides have to agree even then.
    groups_fit = sf.dim() == 2 or sf.stride(0) == padded_rows * sf.shape[-1]
    return (
        groups_fit and sf.stride(-2) == 1 and sf.stride(-1) == padded_rows and sf.data_ptr() % _TMA_ALIGNMENT_BYTES == 0
    )


def _empty_required(shape: Sequence[int], rows: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor `[*groups, rows, columns]` that is MN-major and aligned; its storage includes the padding."""
    *groups, columns = shape
    padded = torch.empty((*groups, columns, get_tma_aligned_size(rows, 4)), dtype=dtype, device=device)
    return padded[..., :rows].transpose(-1, -2)


def _as_required(sf: torch.Tensor) -> torch.Tensor:
    rows = sf.shape[-2]
    padded_rows = get_tma_aligned_size(rows, 4)
    if _has_required_layout(sf, padded_rows):
        return sf
    out = _empty_required((*sf.shape[:-2], sf.shape[-1]), rows, sf.dtype, sf.device)
    if sf.numel() > 0:
        C.scale_layout_transform(_three_dimensional(sf), _three_dimensional(out), padded_rows, 1, _WORDS)
    return out


def _packed(sf: torch.Tensor, rows: int, row_granularity: int, encoding: int) -> torch.Tensor:
    words = _ceil_div(sf.shape[-1], _SCALES_PER_WORD)
    out = _empty_required((*sf.shape[:-2], words), rows, torch.int32, sf.device)
    if out.numel() > 0:
        padded_rows = get_tma_aligned_size(rows, 4)
        C.scale_layout_transform(
            _three_dimensional(sf), _three_dimensional(out), padded_rows, row_granularity, encoding
        )
    return out


def _three_dimensional(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dim() == 3 else tensor.unsqueeze(0)
