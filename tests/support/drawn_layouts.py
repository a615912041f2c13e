"""Where experts' rows lie, drawn: contiguous with indices or ends, and masked, as a legal caller may have them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from drawn_operands import Place
from inputs import ceil_div

import deep_gemm


@dataclass
class Layout:
    """Rows in their places, and what the call is told of them."""

    place: Place
    told: tuple[Any, ...]  # behind D
    more: dict[str, Any]
    zeros: torch.Tensor  # flat places that become zeros
    untouched: torch.Tensor  # flat places that nobody writes
    zeros_or_untouched: torch.Tensor


def rows_within(r: random.Random, count: int, height: int, first: int) -> list[int]:
    """So many of these rows, in order: the first of them, or any."""
    if r.random() < 0.4:
        return list(range(first, first + count))
    return sorted(r.sample(range(first, first + height), count))


def with_indices(r: random.Random, rows: list[torch.Tensor], alignment: int) -> Layout:
    """Rows that name no expert anywhere; experts in any order; blocks without rows; the last block cut."""
    order, at, layout = list(range(len(rows))), {}, []
    nobody = r.choice([[-1], [-1, -7, len(rows), 1 << 30]])
    if r.random() < 0.3:
        r.shuffle(order)
    for expert in order:
        count = len(rows[expert])
        height = ceil_div(count + r.choice([0, 0, count // 4, alignment]) * (count > 0), alignment) * alignment
        at[expert] = rows_within(r, count, height, len(layout))
        layout += [r.choice(nobody) for _ in range(height)]
        for place in at[expert]:
            layout[place] = expert
        layout += [-1] * (alignment * r.choice([0, 0, 0, 1]))
    if r.random() < 0.3:
        layout = layout[: max([*(place + 1 for places in at.values() for place in places), 1])]
    layout = layout or [-1] * alignment
    flat = torch.tensor([place for expert in range(len(rows)) for place in at[expert]], dtype=torch.long)
    indices = torch.tensor(layout, dtype=torch.int32)
    nothing = torch.ones(len(layout), dtype=torch.bool)
    nothing[flat] = False
    more = {} if r.random() < 0.7 else {"ensure_zero_padding": False}
    none = torch.zeros_like(nothing)
    return Layout(Place((len(layout),), torch.cat(rows), flat), (indices,), more, nothing, none, none)


def with_ends(r: random.Random, rows: list[torch.Tensor], alignment: int) -> Layout:
    ends, end, flat = [], 0, []
    for mine in rows:
        start = ceil_div(end, alignment) * alignment
        if len(mine) or r.random() < 0.5:  # of an empty expert, the end before it serves as well
            end = start + len(mine)
        flat += range(start, start + len(mine))
        ends.append(end)
    last = ceil_div(end, alignment) * alignment
    m = max(r.choice([last, last, end, last + 37, last + alignment]), 1)
    zero_padding, kinds = r.random() < 0.7, torch.zeros(m, dtype=torch.bool)
    within, behind = kinds.clone(), kinds.clone()
    within[:last], behind[last:] = True, True
    within[torch.tensor(flat, dtype=torch.long)] = False
    hint = r.choice([None, 1, 8, 64, 1000])
    more = {"use_psum_layout": True, "ensure_zero_padding": zero_padding, "expected_m_for_psum_layout": hint}
    place = Place((m,), torch.cat(rows), torch.tensor(flat, dtype=torch.long))
    told = (torch.tensor(ends, dtype=torch.int32),)
    return Layout(place, told, more, *((within, behind, kinds) if zero_padding else (kinds, behind, within)))


def masked(r: random.Random, rows: list[torch.Tensor]) -> Layout:
    """Counts above the hint, and past the height, which cuts them."""
    counts = [len(mine) for mine in rows]
    height = max(1, *counts) + r.choice([0, 0, 5, 64])
    flat = [expert * height + row for expert, count in enumerate(counts) for row in range(count)]
    told = [count + (r.choice([0, 100]) if count == height else 0) for count in counts]
    place = Place((len(rows), height), torch.cat(rows), torch.tensor(flat, dtype=torch.long))
    none = torch.zeros(len(rows) * height, dtype=torch.bool)
    hint = r.choice([1, 8, 40, 200, 4096])
    return Layout(place, (torch.tensor(told, dtype=torch.int32), hint), {}, none, none, none)


def drawn_layout(r: random.Random, grouping: str, rows: list[torch.Tensor]) -> Layout:
    """`rows` of each expert. Contiguous ones are for the alignment in force."""
    if grouping == "masked":
        return masked(r, rows)
    alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
    return (with_indices if grouping == "m_contiguous" else with_ends)(r, rows, alignment)
