"""GEMM calls whose groups share M and N and split K, as gradients of experts' weights do.

`d[g] = c[g] + A[K range of g] @ B[K range of g]`, one product for each group, all in one launch. See `deep_gemm.fp8`
for what the functions have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ._call import NT, run, step_fields
from ._k_group_sizes import k_of_groups, padded_sizes
from ._numbers import integer
from ._output import write_empty
from ._product import product
from .epilogue import NO_STEPS, Epilogue, step_arguments
from .fp8 import Scaled
from .settings import get_mk_alignment_for_contiguous_layout

__all__ = ["k_grouped_fp8_gemm_nt_contiguous", "k_grouped_fp8_gemm_tn_contiguous"]


@dataclass(frozen=True)
class Groups:
    """How K is grouped."""

    sizes: list[int]  # each group's K on the host, as far as it is known
    layout: torch.Tensor  # on the device
    psum: bool

    def fields(self) -> dict[str, Any]:
        return {"ks": self.sizes, "grouped_layout": self.layout, "psum": self.psum}


def groups_of(
    ks_cpu: Sequence[int] | None,
    grouped_layout: torch.Tensor | None,
    ks: Sequence[int] | None,
    ks_tensor: torch.Tensor | None,
    psum: bool,
) -> Groups:
    """`ks` and `ks_tensor` are older names."""
    if ks is not None:
        if ks_cpu is not None:
            raise TypeError("ks is the older name of ks_cpu: give one of them, not both")
        ks_cpu = ks
    if ks_tensor is not None:
        if grouped_layout is not None:
            raise TypeError("ks_tensor is the older name of grouped_layout: give one of them, not both")
        grouped_layout = ks_tensor
    if grouped_layout is None:
        raise TypeError("grouped_layout is missing: int32 [groups] on d's device, the K of each group")
    return Groups([] if ks_cpu is None else [integer("ks_cpu", k) for k in ks_cpu], grouped_layout, psum)


def _gran_k(recipe: tuple[int, int, int]) -> int:
    """How much of K shares a scale, which is per row always."""
    if tuple(recipe) not in ((1, 1, 128), (1, 1, 32)):
        raise ValueError(
            "K-grouped products take scales per row of A and of B, recipe (1, 1, 128), or (1, 1, 32) on SM100, but the "
            f"recipe is {recipe}"
        )
    return recipe[2]


def without_padding(sf: torch.Tensor, rows: int, groups: Groups, gran_k: int, padded: bool) -> torch.Tensor:
    """Scales `[blocks, rows]` or `[rows, blocks]` of groups whose K is rounded up, as of groups that are not.

    Unless `padded` says that they are such, their number does: on the device, where the host does not know the sizes.
    """
    sizes, layout, psum = groups.sizes, groups.layout, groups.psum
    alignment = get_mk_alignment_for_contiguous_layout()
    entry_k = 4 * gran_k if sf.dtype == torch.int32 else gran_k
    if sf.dim() != 2 or len(layout) == 0:
        return sf  # refused, or of nothing
    if entry_k % alignment == 0 or (not psum and all(k % alignment == 0 for k in sizes)):
        return sf
    blocks = 0 if sf.shape[1] == rows and not (sf.shape[0] == rows and sf.stride(0) == 1 != sf.stride(1)) else 1
    sizes_there = k_of_groups(layout.long(), alignment if psum else 0)
    ends, padded_ends = (
        ((each + (entry_k - 1)) // entry_k).cumsum(0) for each in (sizes_there, padded_sizes(sizes_there, alignment))
    )
    there = sf.shape[blocks]
    if sizes and not padded:
        if there != sum(-(-(-(-k // alignment) * alignment) // entry_k) for k in sizes):
            return sf
        padded = True
    count = sum(-(-k // entry_k) for k in sizes) if sizes else there
    entry = torch.arange(count, device=sf.device)
    group = torch.searchsorted(ends, entry, right=True).clamp_(max=len(ends) - 1)
    padding_before = torch.cat([ends.new_zeros(1), padded_ends - ends])
    if not padded:
        padding_before *= padded_ends[-1] <= there
    place = (entry + padding_before[group]).clamp_(max=there - 1)
    raw = sf.view(torch.uint8) if sf.dtype.itemsize == 1 else sf
    return raw.index_select(blocks, place).view(sf.dtype)


def run_k_groups(
    operands: dict[str, Any],
    d: torch.Tensor,
    groups: Groups,
    c: torch.Tensor | None,
    compiled_dims: str,
    epilogue: Epilogue | None,
) -> None:
    """With `group_by_group` among the operands, each group is a matrix of its own."""
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    if not run(**operands, **groups.fields(), **step_fields(steps), d=d, c=c, layout=NT[compiled_dims]):
        write_empty(d, c)


def _run_scaled(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    groups: Groups,
    c: torch.Tensor | None,
    recipe: tuple[int, int, int],
    compiled_dims: str,
    epilogue: Epilogue | None,
    group_by_group: bool,
    padded: bool,
) -> None:
    (a_data, a_scales), (b_data, b_scales) = a, b
    gran_k = _gran_k(recipe)
    if padded or groups.psum:
        a_scales, b_scales = (
            without_padding(sf, rows, groups, gran_k, padded)
            for sf, rows in ((a_scales, d.shape[-2]), (b_scales, d.shape[-1]))
        )
    operands = {
        "a": a_data,
        "a_scales": a_scales,
        "b": b_data,
        "b_scales": b_scales,
        "a_group_k": gran_k,
        "group_by_group": group_by_group,
    }
    run_k_groups(operands, d, groups, c, compiled_dims, epilogue)


@product()
def k_grouped_fp8_gemm_tn_contiguous(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    recipe: tuple[int, int, int] = (1, 1, 128),
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    epilogue: Epilogue | None = None,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: torch.Tensor | None = None,
    use_padded_sf_layout: bool = False,
) -> None:
    """`d[g, m, n] = c[g, m, n] + sum over g's K range of a[k, m] b[k, n]`, scaled.

    Args:
        a: float8_e4m3fn `[sum_k, M]`, M contiguous; with scales `[blocks, M]`, one row for each 128 of a group's K (the
            last one of a group may stand for fewer): `blocks` is the sum of `ceil(k_g / 128)`. Of packed ones it is the
            sum of `ceil(k_g / 512)`: no word is of two groups
            (`get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor`). M contiguous and padded to 16 bytes: used as
            they are. `[M, blocks]` is taken as well; where both are equal, M is the dimension whose stride is 1, and
            the second one if none or both are.
        b: float8_e4m3fn `[sum_k, N]`, N contiguous; with scales `[blocks, N]` or `[N, blocks]`.
        d: bfloat16, float32 or float16 `[G, M, N]`, N contiguous. Written.
        ks_cpu: each group's K, on the host: multiples of 16, or 0. Such a group gets c, or zero.
        grouped_layout: the same as int32 `[G]` on the device. This is what the kernels read, so that a captured graph
            may be replayed with other sizes that take as many rows and scales in all (on SM100 in the psum layout only:
            elsewhere ks_cpu says where each group lies). Refused where it contradicts ks_cpu, if it is on the CPU.
        c: added in FP32; `d`'s shape and dtype, and may be `d` itself.
        recipe: (1, 1, 128), or (1, 1, 32) on SM100 but after `set_fp32_scales(True)`.
        compiled_dims: which of M and N are constants of the compiled kernel.
        use_psum_layout: `grouped_layout` holds where each group ends; the next one starts at that value rounded up to
            `get_mk_alignment_for_contiguous_layout()`. Rows between groups are never read. `ks_cpu` may then be
            None, or rounded up to the alignment.
        epilogue: as for `fp8_gemm_nt`.
        ks, ks_tensor: older names of `ks_cpu` and `grouped_layout`.
        use_padded_sf_layout: each group has scales for its K rounded up to
            `get_mk_alignment_for_contiguous_layout()`, as DeepGEMM 2.8 lays them out. Where that is more than for K
            itself, they are moved together first. In the psum layout that is done without this argument too, where
            there are as many scales as that takes.

    On SM80 and SM90 tensor cores read FP8 along K only: both operands are transposed first. On SM100 they are
    read in place, except in the psum layout: there only the device knows where groups end, and the workspace has zeros
    where what lies between them may be anything.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    groups = groups_of(ks_cpu, grouped_layout, ks, ks_tensor, use_psum_layout)
    _run_scaled(a, b, d, groups, c, recipe, compiled_dims, epilogue, False, use_padded_sf_layout)


@product()
def k_grouped_fp8_gemm_nt_contiguous(
    a: Scaled,
    b: Scaled,
    d: torch.Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    recipe: tuple[int, int, int] = (1, 1, 128),
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    epilogue: Epilogue | None = None,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: torch.Tensor | None = None,
    use_padded_sf_layout: bool = False,
) -> None:
    """`k_grouped_fp8_gemm_tn_contiguous` for operands that are K-major, which are read in place.

    Args:
        a: float8_e4m3fn, one dimension: the groups' matrices `[M, k_g]` flattened one after the other; scales as
            there. Copied first where it does not start at a multiple of 16 bytes.
        b: the same of `[N, k_g]`.
        ks_cpu: each group's K, on the host; needed here, because it says where each matrix lies.

        The others: as for `k_grouped_fp8_gemm_tn_contiguous`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    groups = groups_of(ks_cpu, grouped_layout, ks, ks_tensor, use_psum_layout)
    _run_scaled(a, b, d, groups, c, recipe, compiled_dims, epilogue, True, use_padded_sf_layout)
