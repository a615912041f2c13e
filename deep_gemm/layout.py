"""Scale layouts: what the GEMM kernels need their scale tensors to look like.

A scale tensor is called *MN-major and aligned* when its rows (the M or N direction) are contiguous, each K column
starts at a multiple of 16 bytes, and columns follow each other without a gap beyond that. The kernels load such
tensors as they are. Memory is allocated here by torch; the work is done by a kernel on the tensor's device (for CPU
tensors: on the simulator), on torch's current stream. ValueError or TypeError is raised where an argument cannot be
right; nothing was launched then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._extension import C
from ._k_group_sizes import k_of_groups, padded_sizes, require_agreement
from ._numbers import integer
from ._product import layout as _layout
from .operators import stands_in
from .settings import get_fp32_scales, get_mk_alignment_for_contiguous_layout

__all__ = [
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_mn_major_tma_aligned_tensor",
    "get_tma_aligned_size",
    "transform_sf_into_required_layout",
]

_TMA_ALIGNMENT_BYTES = 16
_SCALES_PER_WORD = 4
_K_GROUPED_GRANULARITIES = (32, 128)
_FACTS = frozenset(C.layout_facts().splitlines())  # "sm100 multiplies_exponents" (csrc/config/host_facts.hpp)
_SIGN_AND_MANTISSA = -0x7F800001  # the bits 0x807FFFFF of an FP32 number, as int32

# Numbers of `enum class ScaleEncoding` in deep_gemm/include/deep_gemm/kernels/scale_layout_params.cuh.
_WORDS, _EXPONENTS_EXACT = 0, 1


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def get_tma_aligned_size(mn: int, element_size: int) -> int:
    """Round `mn` up so that `mn * element_size` is a multiple of 16 bytes, as the copy engine wants row pitches."""
    mn, element_size = integer("mn", mn, smallest=0), integer("element_size", element_size)
    if element_size not in (1, 2, 4, 8, 16):
        raise ValueError(f"element_size must divide 16, got {element_size}")
    per_line = _TMA_ALIGNMENT_BYTES // element_size
    return _ceil_div(mn, per_line) * per_line


@_layout
def get_mn_major_tma_aligned_tensor(sf: torch.Tensor) -> torch.Tensor:
    """FP32 scales sf `[mn, k]` or `[groups, mn, k]` in any strides -> the same values, MN-major, MN padded to 16 bytes.

    Scales that already look so are returned as they are, and nothing is launched. The padding of a new tensor is zero.
    """
    _require_scales(sf, torch.float32)
    return _as_required(sf)


@_layout
def get_mn_major_tma_aligned_packed_ue8m0_tensor(
    sf: torch.Tensor, psum_layout: torch.Tensor | None = None
) -> torch.Tensor:
    """FP32 scales sf `[mn, k]` or `[groups, mn, k]` -> int32 `[..., mn, ceil(k / 4)]`, MN-major and aligned.

    One word packs the UE8M0 exponents of four neighbours along K, the first in the low byte. The scales must be powers
    of two (or zero); a scale with a sign or a mantissa has no such exponent and becomes UE8M0's NaN (0xFF), so that
    the product shows it. Scales past the end of K are packed as zero bytes. With `psum_layout`, int32 `[experts]` as
    `grouped_layout` of a psum call, so are those of rows between experts, whatever they hold.
    """
    _require_scales(sf, torch.float32)
    _require_psum_layout(psum_layout, sf)
    return _packed(_rows_of_experts(sf, psum_layout), rows=sf.shape[-2], row_granularity=1)


@_layout
def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
    sf: torch.Tensor,
    grouped_layout: torch.Tensor | None = None,
    ks_cpu: Sequence[int] | None = None,
    gran_k: int = 128,
    k_alignment: int | None = None,
    use_psum_layout: bool = False,
    use_padded_sf_layout: bool = False,
    *,
    ks_tensor: torch.Tensor | None = None,
    ks: Sequence[int] | None = None,
) -> torch.Tensor:
    """FP32 scales of K-grouped operands -> int32 words, four UE8M0 exponents each, group by group.

    Packs as `get_mn_major_tma_aligned_packed_ue8m0_tensor` does, each group by itself: no word holds scales of two
    groups.

    Args:
        sf: `[sum of ceil(k_g / gran_k), mn]`, the groups' scales one after the other, in any strides.
        grouped_layout: int32 `[groups]` on `sf`'s device: each group's K. The kernel reads this; whatever it holds,
            nothing outside `sf` is read.
        ks_cpu: the same on the host, which says how large the result is.
        gran_k: elements of K that share a scale, 32 or 128.
        k_alignment: in the psum layout, each group's K starts at a multiple of this: by default of
            `get_mk_alignment_for_contiguous_layout()`.
        use_psum_layout: `grouped_layout` holds where each group's K ends. `ks_cpu` may then be larger by what rounds a
            group up to `k_alignment`, or be missing.
        use_padded_sf_layout: each group has scales for its K rounded up to `k_alignment`, and so has the result, for
            products that are told so too.
        ks_tensor, ks: older names of `grouped_layout` and `ks_cpu`.

    Returns:
        `[sum of ceil(k_g / (4 gran_k)), mn]`, of `ks_cpu` as it is given. Without it, as many rows as `sf` can need at
        most. Rows past those of all groups are zero.

    Raises:
        ValueError, TypeError: an argument cannot be right. On CPU tensors that includes a `grouped_layout` that
            contradicts `ks_cpu` or `sf`.
    """
    layout = _renamed("grouped_layout", grouped_layout, "ks_tensor", ks_tensor)
    sizes = _renamed("ks_cpu", ks_cpu, "ks", ks)
    if k_alignment is None:
        k_alignment = get_mk_alignment_for_contiguous_layout()
    gran_k, k_alignment = integer("gran_k", gran_k), integer("k_alignment", k_alignment, smallest=1)
    if gran_k not in _K_GROUPED_GRANULARITIES:
        raise ValueError(f"gran_k must be 32 or 128, got {gran_k}")
    _require_scales(sf, torch.float32, dimensions=(2,))
    sizes = [integer(f"ks_cpu[{group}]", k, smallest=0) for group, k in enumerate(sizes or ())]
    _require_groups(layout, "grouped_layout", sf)
    scales, rows = sf.shape
    groups = layout.shape[0]
    if not sizes and groups > 0 and not use_psum_layout:
        raise ValueError("ks_cpu may be missing with use_psum_layout only")
    if use_padded_sf_layout:
        layout = padded_sizes(k_of_groups(layout, k_alignment if use_psum_layout else 0), k_alignment)
        sizes, use_psum_layout = [_ceil_div(k, k_alignment) * k_alignment for k in sizes], False
    if sizes:
        if groups != len(sizes):
            raise ValueError(f"grouped_layout has {groups} groups, but ks_cpu has {len(sizes)}: {sizes}")
        wanted = sum(_ceil_div(k, gran_k) for k in sizes)
        if scales > wanted or (scales < wanted and not use_psum_layout):
            raise ValueError(
                f"sf must have {'at most ' if use_psum_layout else ''}{wanted} rows, one per {gran_k} of each group's "
                f"K in {sizes}, got {scales}"
            )
        words = sum(_ceil_div(k, gran_k * _SCALES_PER_WORD) for k in sizes)
    else:
        words = (scales + groups * (_SCALES_PER_WORD - 1)) // _SCALES_PER_WORD
    alignment = k_alignment if use_psum_layout else 0
    if sf.device.type == "cpu" and not stands_in(layout):
        require_agreement(layout.tolist(), sizes, scales, gran_k, alignment)
    padded_rows = get_tma_aligned_size(rows, 4)
    out = torch.empty((words, padded_rows), dtype=torch.int32, device=sf.device)[:, :rows]
    if out.numel() > 0 and not stands_in(sf):
        C.scale_layout_transform_k_grouped(sf, layout.contiguous(), out, padded_rows, gran_k, alignment)
    return out


@_layout
def transform_sf_into_required_layout(
    sf: torch.Tensor,
    mn: int,
    k: int,
    recipe: Sequence[int],
    num_groups: int | None = None,
    is_sfa: bool | None = None,
    disable_ue8m0_cast: bool = False,
    psum_layout: torch.Tensor | None = None,
) -> torch.Tensor:
    """Bring the scales of one operand into the layout that the kernels of its device load without further work.

    Args:
        sf: scales of an operand of `mn` rows and `k` columns: FP32, or int32 that packs four UE8M0 exponents, which are
            per row.
        mn, k: extents of the operand (of one group).
        recipe: `(rows of A, rows of B, columns)` that share one scale, and then `is_sfa` says which operand this is;
            or `(rows, columns)` of this operand. One scale is for 1 x 128, 128 x 128, 1 x 32, 32 x 32 or 128 x 32; on
            B200 and B300 for 32 columns only where scales are (to be) packed, and packed ones are for one row.
        num_groups: number of groups; `sf` then has a leading dimension of that size.
        disable_ue8m0_cast: leave FP32 scales what they are, for calls that say so too. `set_fp32_scales` says it for
            all calls.
        psum_layout: int32 `[experts]`, the `grouped_layout` of the psum call that these rows belong to. Where scales
            are packed, those of rows between experts may hold anything and become zero.

    Returns:
        On B200 and B300, and on RTX 50, RTX PRO Blackwell and DGX Spark: packed exponents, scales per block repeated
        for each row. On all other GPUs, and where FP32 scales stay what they are: scales per row as
        `get_mn_major_tma_aligned_tensor` gives them; scales per block as they came. Packed exponents stay packed
        everywhere, rows contiguous and columns 16-byte aligned: the former multiply them, and calls on other GPUs
        unpack them into a workspace.

    Raises:
        ValueError, TypeError: an argument cannot be right. That includes FP32 scales that are to be packed and are no
            powers of two: rounding them would change what the data mean. (While a CUDA graph is captured they cannot be
            looked at, and become NaN.)
    """
    arch = _arch(sf)
    packed = sf.dtype == torch.int32
    packs = f"{arch} multiplies_exponents" in _FACTS and not packed
    packs = packs and not (disable_ue8m0_cast or _fp32_scales_are_set(sf))
    of_32 = f"{arch} fp32_scales_of_32" in _FACTS
    rows_per_scale, columns_per_scale = _granularity(recipe, is_sfa, _shared_by(of_32, packed, packs))
    mn, k = integer("mn", mn, smallest=0), integer("k", k, smallest=0)
    grouped = num_groups is not None
    dimensions = (3,) if grouped else (2,)
    _require_scales(sf, torch.int32 if packed else torch.float32, dimensions)

    columns = columns_per_scale * (_SCALES_PER_WORD if packed else 1)
    shape = (_ceil_div(mn, rows_per_scale), _ceil_div(k, columns))
    wanted = (integer("num_groups", num_groups), *shape) if grouped else shape
    if tuple(sf.shape) != wanted:
        raise ValueError(
            f"scales of an operand with mn={mn}, k={k}"
            + (f", num_groups={num_groups}" if grouped else "")
            + f", one per {rows_per_scale}x{columns} must have the shape {wanted}, got {tuple(sf.shape)}"
        )
    if psum_layout is not None and rows_per_scale != 1:
        raise ValueError(
            f"psum_layout is of scales per row, but the recipe {tuple(recipe)} says one per {rows_per_scale} rows"
        )
    _require_psum_layout(psum_layout, sf)

    if packs:
        scales = _rows_of_experts(sf, psum_layout)
        _require_powers_of_two(scales, rows_per_scale, columns_per_scale)
        return _packed(scales, rows=mn, row_granularity=rows_per_scale)
    if rows_per_scale == 1:
        return _as_required(sf)
    return sf


def _arch(sf: torch.Tensor) -> str:
    """Whose kernels run where the scales lie, or would: those on the meta device, on a GPU where there is one."""
    if not stands_in(sf):
        return C.scale_layout_arch(sf)
    if sf.is_cuda or (sf.is_meta and torch.cuda.is_available()):
        index = sf.device.index if sf.is_cuda else None
        return str(C.device_facts(False, torch.cuda.current_device() if index is None else index)["arch"])
    return str(C.device_facts(True, 0)["arch"])


def _fp32_scales_are_set(sf: torch.Tensor) -> bool:
    return get_fp32_scales(None if sf.is_meta else sf.device)


def _shared_by(fp32_of_32: bool, packed: bool, packs: bool) -> tuple[tuple[int, int], ...]:
    """Rows and columns that may share a scale of an operand."""
    if packed:
        return (1, 32), (1, 128)
    if packs:
        return (1, 32), (32, 32), (128, 32), (1, 128), (128, 128)
    as_they_are = (1, 128), (128, 128)
    return ((1, 32), (32, 32), (128, 32), *as_they_are) if fp32_of_32 else as_they_are


def _granularity(recipe: Sequence[int], is_sfa: bool | None, possible: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Rows and columns that share a scale, out of a recipe of two or three numbers."""
    recipe = tuple(integer(f"recipe[{place}]", size) for place, size in enumerate(recipe))
    if len(recipe) == 3:
        if is_sfa is None:
            raise ValueError(f"is_sfa must say whether these are A's scales: the recipe {recipe} names both operands")
        rows, columns = recipe[0 if is_sfa else 1], recipe[2]
    elif len(recipe) == 2:
        rows, columns = recipe
    else:
        raise ValueError(f"recipe must be (rows of A, rows of B, columns) or (rows, columns), got {recipe}")
    if (rows, columns) not in possible:
        text = " or ".join(f"{rows}x{columns}" for rows, columns in possible)
        raise ValueError(f"scales must be one per {text}, but the recipe {recipe} says {rows}x{columns}")
    return rows, columns


def _renamed(name: str, value: Any, older_name: str, older_value: Any) -> Any:
    """An argument that may come under its older name."""
    if value is not None and older_value is not None:
        raise TypeError(f"{older_name} is the older name of {name}: give one of them, not both")
    return older_value if value is None else value


def _require_groups(layout: torch.Tensor | None, name: str, sf: torch.Tensor) -> None:
    """One int32 for each group, beside the scales."""
    if not isinstance(layout, torch.Tensor):
        raise TypeError(f"{name} must be an int32 tensor [groups] on the device of sf, got {layout!r}")
    if layout.dtype != torch.int32:
        raise TypeError(f"{name} must be int32, got {layout.dtype}")
    if layout.dim() != 1:
        raise ValueError(f"{name} must be [groups], got shape {tuple(layout.shape)}")
    if layout.device != sf.device:
        raise ValueError(f"{name} must be on the device of sf ({sf.device}), got {layout.device}")


def _require_psum_layout(psum_layout: torch.Tensor | None, sf: torch.Tensor) -> None:
    if psum_layout is None:
        return
    _require_groups(psum_layout, "psum_layout", sf)
    if sf.dim() != 2:
        raise ValueError(f"psum_layout is of scales [mn, k], but these have the shape {tuple(sf.shape)}")


def _rows_of_experts(sf: torch.Tensor, psum_layout: torch.Tensor | None) -> torch.Tensor:
    """Scales per row `[mn, k]` with zeros in all rows that belong to no expert of a psum layout."""
    if psum_layout is None:
        return sf
    if psum_layout.shape[0] == 0:
        return torch.zeros_like(sf)
    alignment = get_mk_alignment_for_contiguous_layout()
    ends = psum_layout.long()
    starts = torch.cat([ends.new_zeros(1), (ends[:-1] + (alignment - 1)) // alignment * alignment])
    row = torch.arange(sf.shape[0], device=sf.device)
    expert = torch.searchsorted(ends, row, right=True).clamp_(max=ends.shape[0] - 1)
    of_an_expert = (row >= starts[expert]) & (row < ends[expert])
    return sf.where(of_an_expert[:, None], sf.new_zeros(()))


def _require_powers_of_two(sf: torch.Tensor, rows_per_scale: int, columns_per_scale: int) -> None:
    # Where nothing may wait for the device, or nothing is there yet, the packing kernel writes NaN for what is none.
    if stands_in(sf) or (sf.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    if bool((sf.contiguous().view(torch.int32) & _SIGN_AND_MANTISSA).any()):
        cast = "per_token_cast_to_fp8" if rows_per_scale == 1 else "per_block_cast_to_fp8"
        with_cast = f" with deep_gemm.utils.{cast}(x, use_ue8m0=True, gran_k={columns_per_scale})"
        if rows_per_scale not in (1, columns_per_scale):
            with_cast = ", with scales that deep_gemm.utils.ceil_to_ue8m0 has rounded up"
        raise ValueError(
            f"scales must be powers of two on Blackwell, but some are not: quantise the data anew{with_cast}, or have "
            "FP32 scales multiplied as they are: disable_ue8m0_cast=True here and in calls, or set_fp32_scales(True)"
        )


def _require_scales(sf: torch.Tensor, dtype: torch.dtype, dimensions: tuple[int, ...] = (2, 3)) -> None:
    if sf.dtype != dtype:
        raise TypeError(f"scales must be {dtype}, got {sf.dtype}")
    if sf.dim() not in dimensions:
        layouts = " or ".join({2: "[mn, k]", 3: "[groups, mn, k]"}[count] for count in dimensions)
        raise ValueError(f"scales must be {layouts}, got {sf.dim()} dimensions: {tuple(sf.shape)}")


def _has_required_layout(sf: torch.Tensor, padded_rows: int) -> bool:
    # A dimension of size one may carry any stride; but a gap-free tensor of that shape must really lie there, because
    # the kernels compute addresses from the padded size. So the strides have to agree even then.
    groups_fit = sf.dim() == 2 or sf.stride(0) == padded_rows * sf.shape[-1]
    return (
        groups_fit
        and sf.stride(-2) == 1
        and sf.stride(-1) == padded_rows
        and (stands_in(sf) or sf.data_ptr() % _TMA_ALIGNMENT_BYTES == 0)
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
    if sf.numel() > 0 and not stands_in(sf):
        C.scale_layout_transform(_three_dimensional(sf), _three_dimensional(out), padded_rows, 1, _WORDS)
    return out


def _packed(sf: torch.Tensor, rows: int, row_granularity: int) -> torch.Tensor:
    words = _ceil_div(sf.shape[-1], _SCALES_PER_WORD)
    out = _empty_required((*sf.shape[:-2], words), rows, torch.int32, sf.device)
    if out.numel() > 0 and not stands_in(sf):
        padded_rows = get_tma_aligned_size(rows, 4)
        C.scale_layout_transform(
            _three_dimensional(sf), _three_dimensional(out), padded_rows, row_granularity, _EXPONENTS_EXACT
        )
    return out


def _three_dimensional(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dim() == 3 else tensor.unsqueeze(0)
