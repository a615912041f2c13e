"""The K of groups, as a `grouped_layout` says it on the device and `ks_cpu` on the host."""

from __future__ import annotations

import torch

from .utils.math import ceil_div


def require_agreement(layout: list[int], sizes: list[int], scales: int, gran_k: int, psum_alignment: int) -> None:
    """`grouped_layout`, where it can be read, says the K of `ks_cpu` and takes the rows of `sf`."""
    if any(value < 0 for value in layout):
        raise ValueError(f"grouped_layout must not be negative, got {layout}")
    ks, end = [], 0
    for value in layout:
        begin = ceil_div(end, psum_alignment) * psum_alignment if psum_alignment else 0
        end = value
        if end < begin:
            raise ValueError(
                "grouped_layout must hold where each group ends, the next one starting at that rounded up to "
                f"{psum_alignment}, got {layout}"
            )
        ks.append(end - begin)
    for k, host in zip(ks, sizes, strict=False):
        longest = ceil_div(k, psum_alignment) * psum_alignment if psum_alignment else k
        if not k <= host <= longest:
            raise ValueError(f"grouped_layout contradicts ks_cpu: it says K of {ks} ({layout}), ks_cpu says {sizes}")
    taken = sum(ceil_div(k, gran_k) for k in ks)
    if taken != scales:
        raise ValueError(
            f"sf must have {taken} rows, one per {gran_k} of each group's K in {ks} as grouped_layout says, got "
            f"{scales}"
        )


def k_of_groups(layout: torch.Tensor, psum_alignment: int) -> torch.Tensor:
    """int32 [groups] of a `grouped_layout` on its device; 0: it holds that."""
    if psum_alignment == 0:
        return layout
    starts = torch.cat([layout.new_zeros(1), padded_sizes(layout[:-1], psum_alignment)])
    return layout - starts[: len(layout)]


def padded_sizes(sizes: torch.Tensor, alignment: int) -> torch.Tensor:
    return (sizes + (alignment - 1)) // alignment * alignment
