"""Tokens of simulated ranks to their experts' rows and back, without products: what arrives is checked on both ways."""

from __future__ import annotations

from typing import Any

import torch

import deep_gemm
from deep_gemm import mega_moe_ranks, quantize, simulator

HIDDEN, EXPERTS, CHOICES = 128, 4, 2


class Rank:
    """What a rank gives in each call, and what it gets."""

    def __init__(self, rank: simulator.SimulatedRank, tokens: list[int], room: int, timeout_s: float = 100.0) -> None:
        self.rank, self.room = rank, room
        self.buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(
            rank, EXPERTS, room, CHOICES, HIDDEN, 128, device="cpu", timeout_s=timeout_s
        )
        generator = torch.Generator().manual_seed(rank.rank())
        self.x = [torch.randn(count, HIDDEN, generator=generator).bfloat16() for count in tokens]
        self.ids = [torch.randint(-1, EXPERTS + 1, (count, CHOICES), generator=generator) for count in tokens]
        self.y = [torch.full((count, HIDDEN), 7.0).bfloat16() for count in tokens]
        self.found: list[Any] = []

    def note(self) -> None:
        b = self.buffer
        with self.rank:
            for x, ids, y in zip(self.x, self.ids, self.y, strict=True):
                weights = (torch.arange(ids.numel()) + 100.0 * self.rank.rank()).view(ids.shape)
                deep_gemm.mega_moe_pre_dispatch_sm90(
                    x, ids, weights, b.x, b.x_sf, b.topk_idx, b.topk_weights, num_tokens=len(x)
                )
                found = mega_moe_ranks.find_rows(b, len(x), self.room, range(self.room))
                travel = mega_moe_ranks.travel_of(b, found, range(self.room))
                rows = mega_moe_ranks.pull_rows(b, travel)
                count = found.source.shape[0]
                down = torch.arange(count * HIDDEN).view(count, HIDDEN) % 97 + 100.0 * self.rank.rank()
                down = (down + len(self.found)).bfloat16()
                mega_moe_ranks.push_rows(travel, down)
                mega_moe_ranks.combine(b, y)
                self.found.append((found, rows, down))


def wrong(ranks: list[Rank]) -> list[str]:
    """What did not arrive as it was sent."""
    found, local = [], EXPERTS // len(ranks)
    for call in range(len(ranks[0].x)):
        quantised = [quantize.fp8(rank.x[call]) if len(rank.x[call]) else None for rank in ranks]
        sums = [torch.zeros(rank.y[call].shape) for rank in ranks]
        for at, rank in enumerate(ranks):
            routing, (rows, scales), down = rank.found[call]
            row_of = routing.row_of.view(len(ranks), rank.room, CHOICES)
            for of, other in enumerate(ranks):
                for token, slots in enumerate(other.ids[call].tolist()):
                    for slot, expert in enumerate(slots):
                        row = int(row_of[of, token, slot])
                        if (row >= 0) != (at * local <= expert < (at + 1) * local):
                            found.append(f"call {call}: choice {of} {token} {slot} has row {row} of rank {at}")
                            continue
                        if row < 0:
                            continue
                        sums[of][token] += down[row].float()
                        q, s = quantised[of]
                        if not torch.equal(rows[row].view(torch.uint8), q[token].view(torch.uint8)):
                            found.append(f"call {call}: row {row} of rank {at}")
                        weight = token * CHOICES + slot + 100.0 * of
                        if not torch.equal(scales[row], s[token]) or float(routing.row_weights[row]) != weight:
                            found.append(f"call {call}: scales or weight of row {row} of rank {at}")
        for at, (rank, total) in enumerate(zip(ranks, sums, strict=True)):
            if not torch.equal(rank.y[call], total.bfloat16()):
                found.append(f"call {call}: results of rank {at}")
    return found


def run(tokens: list[list[int]], room: int = 5, **options: Any) -> list[str]:
    """`tokens`: of each rank, in each call."""
    with simulator.options(num_sms=1):
        group = simulator.ranks(len(tokens))
        ranks = [Rank(rank, counts, room) for rank, counts in zip(group, tokens, strict=True)]
        for rank in ranks:
            rank.note()
        group.run(**options)
        return wrong(ranks)
