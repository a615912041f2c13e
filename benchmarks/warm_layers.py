"""Warm calls of index logits, and of experts as one layer, for bench_host.py.

Two ranks stand in for a group on one GPU: their parts are the same memory, in which the other rank has always said
that it is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

import deep_gemm
from deep_gemm import mega_moe_ranks

Calls = dict[str, Callable[[], object]]
EXPERTS, TOKENS, CHOICES, HIDDEN, INNER = 8, 64, 4, 512, 256
FLAGS = 64  # 2 phases x 32 ranks, at the beginning of a part (include/deep_gemm/ranks/config.cuh)
ALWAYS_THERE = 1 << 62


def calls_of_layers(device: torch.device) -> Calls:
    return {**_logits(device), **_one_rank(device), **_two_ranks(device)}


def _fp8(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.randn(*shape, device=device).to(torch.float8_e4m3fn)


def _logits(device: torch.device) -> Calls:
    rows, heads, d, keys, block = 4, 64, 128, 1024, 64

    def integers(*shape: int, value: int) -> torch.Tensor:
        return torch.full(shape, value, dtype=torch.int32, device=device)

    q, weights = _fp8(rows, heads, d, device=device), torch.ones(rows, heads, device=device)
    kv = _fp8(keys, d, device=device), torch.ones(keys, device=device)
    first, end, lengths = integers(rows, value=0), integers(rows, value=keys), integers(rows, 1, value=keys)
    cache = torch.zeros(keys // block, block, 1, d + 4, dtype=torch.uint8, device=device)
    table = torch.arange(keys // block, dtype=torch.int32, device=device).repeat(rows, 1)
    return {
        "fp8_mqa_logits": lambda: deep_gemm.fp8_mqa_logits(q, kv, weights, first, end),
        "fp8_paged_mqa_logits": lambda: deep_gemm.fp8_paged_mqa_logits(
            q[:, None], cache, weights, lengths, table, None, keys
        ),
    }


def _weights(experts: int, device: torch.device) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    return tuple(
        (_fp8(experts, n, k, device=device), torch.ones(experts, n // 128, k // 128, device=device))
        for n, k in ((2 * INNER, HIDDEN), (HIDDEN, INNER))
    )


def _choose(buffer: deep_gemm.SM90SymmBuffer) -> None:
    choices = itertools.cycle(range(EXPERTS))
    buffer.topk_idx[:TOKENS] = torch.tensor([next(choices) for _ in range(TOKENS * CHOICES)]).view(TOKENS, CHOICES)


def _one_rank(device: torch.device) -> Calls:
    sizes = EXPERTS, TOKENS, CHOICES, HIDDEN, INNER
    l1, l2 = _weights(EXPERTS, device)
    y = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)
    found: Calls = {}
    for persistent, launches in ((False, "separate launches"), (True, "one launch")):
        buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, *sizes, device=device, persistent=persistent)
        _choose(buffer)
        found[f"fp8_mega_moe, {launches}"] = lambda b=buffer: deep_gemm.fp8_mega_moe(y, l1, l2, b)
    x = torch.randn(TOKENS, HIDDEN, device=device).bfloat16()
    ids, factors = buffer.topk_idx[:TOKENS].clone(), torch.ones(TOKENS, CHOICES, device=device)
    views = buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights
    found["mega_moe_pre_dispatch_sm90"] = lambda: deep_gemm.mega_moe_pre_dispatch_sm90(
        x, ids, factors, *views, num_tokens=TOKENS
    )
    return found


class _First:
    """Of two ranks."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 2


def _same_part(_: object, part_bytes: int, device: torch.device) -> tuple[torch.Tensor, list[int], None]:
    part = torch.zeros(part_bytes, dtype=torch.int8, device=device)
    part[: FLAGS * 8].view(torch.int64).fill_(ALWAYS_THERE)
    return part, [part.data_ptr()] * 2, None


def _two_ranks(device: torch.device) -> Calls:
    if device.type != "cuda":
        return {}
    sizes = EXPERTS, TOKENS, CHOICES, HIDDEN, INNER
    l1, l2 = _weights(EXPERTS // 2, device)
    y = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)
    found: Calls = {}
    for persistent, launches in ((True, "one launch"), (False, "separate launches")):
        with mock.patch.multiple(mega_moe_ranks, _symmetric=_same_part, _require_same=lambda *_: None):
            buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(_First(), *sizes, device=device, persistent=persistent)
        _choose(buffer)
        found[f"fp8_mega_moe of two ranks, {launches}"] = lambda b=buffer: deep_gemm.fp8_mega_moe(y, l1, l2, b)
    all_tokens = range(buffer.num_max_tokens_per_rank)
    routing = mega_moe_ranks.find_rows(buffer, TOKENS, len(all_tokens), all_tokens)
    down = torch.zeros(routing.source.shape[0], HIDDEN, dtype=torch.bfloat16, device=device)

    def travel() -> dict[str, Any]:
        return mega_moe_ranks.travel_of(buffer, routing, all_tokens)

    fields = travel()
    return found | {
        "ranks: rows found": lambda: mega_moe_ranks.find_rows(buffer, TOKENS, len(all_tokens), all_tokens),
        "ranks: rows pulled": lambda: mega_moe_ranks.pull_rows(buffer, travel()),
        "ranks: results pushed": lambda: mega_moe_ranks.push_rows(fields, down),
        "ranks: results added up": lambda: mega_moe_ranks.combine(buffer, y),
    }
