"""A stand-in for `deep_ep.Buffer` whose processes are threads: what its documentation says of arguments and results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch


@dataclass
class Board:
    """Where the processes of a group leave things for each other."""

    size: int
    notes: dict[int, Any] = field(default_factory=dict)
    barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=120)

    def exchange(self, rank: int, note: Any) -> list[Any]:
        self.notes[rank] = note
        self.barrier.wait()
        notes = [self.notes[each] for each in range(self.size)]
        self.barrier.wait()
        return notes


def in_processes(size: int, of_rank: Callable[[Any, Buffer], Any]) -> list[Any]:
    """What each returns, called with a group and a buffer of it."""
    board, found, errors = Board(size), [None] * size, []

    def run(rank: int) -> None:
        try:
            found[rank] = of_rank(Group(size, rank), Buffer(board, rank))
        except Exception as error:
            errors.append(error)
            board.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return found


class Group:
    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = (lambda: size), (lambda: rank)


class Buffer:
    def __init__(self, board: Board, rank: int) -> None:
        self.board, self.rank, self.sent = board, rank, []

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int) -> tuple[Any, ...]:
        assert topk_idx.dtype == torch.int64
        assert bool(((topk_idx >= -1) & (topk_idx < num_experts)).all())
        local = num_experts // self.board.size
        of_rank = torch.where(topk_idx >= 0, topk_idx // local, -1)
        goes = torch.stack([(of_rank == rank).any(dim=1) for rank in range(self.board.size)], dim=1)
        of_expert = torch.bincount(topk_idx[topk_idx >= 0], minlength=num_experts).int()
        return goes.sum(dim=0).int(), None, of_expert, goes, None

    def dispatch(
        self,
        x: Any,
        handle: Any = None,
        num_tokens_per_rank: Any = None,
        num_tokens_per_rdma_rank: Any = None,
        is_token_in_rank: Any = None,
        num_tokens_per_expert: Any = None,
        topk_idx: Any = None,
        topk_weights: Any = None,
    ) -> tuple[Any, ...]:
        parts = x if isinstance(x, tuple) else (x,)
        assert all(part.is_contiguous() and part.dim() == 2 for part in parts)
        assert parts[0].dtype == (torch.bfloat16 if len(parts) == 1 else torch.float8_e4m3fn)
        if len(parts) == 2:
            assert (parts[1].dtype, parts[1].shape[1]) == (torch.float32, parts[0].shape[1] // 128)
        self.sent.append(parts[0].dtype)
        if handle is not None:
            assert topk_idx is None
            goes = handle.goes
        else:
            of_rank, of_node, of_expert, wanted, _ = self.get_dispatch_layout(topk_idx, len(num_tokens_per_expert))
            assert torch.equal(num_tokens_per_rank, of_rank)
            assert torch.equal(num_tokens_per_expert, of_expert)
            assert torch.equal(is_token_in_rank, wanted)
            assert num_tokens_per_rdma_rank is of_node
            assert topk_weights.dtype == torch.float32
            goes = is_token_in_rank
        notes = self.board.exchange(self.rank, (parts, topk_idx, topk_weights, goes, num_tokens_per_expert))
        picked = [note[3][:, self.rank].nonzero().flatten() for note in notes]
        sources = list(zip(notes, picked, strict=True))
        received = tuple(
            torch.cat([as_bytes(note[0][at])[rows] for note, rows in sources]).view(part.dtype)
            for at, part in enumerate(parts)
        )
        came = received if len(parts) == 2 else received[0]
        if handle is not None:
            return came, None, None, None, None, None
        local = len(num_tokens_per_expert) // self.board.size
        ids = torch.cat([note[1][rows] for note, rows in sources]) - self.rank * local
        own = (ids >= 0) & (ids < local)
        weights = torch.cat([note[2][rows] for note, rows in sources])
        handle = SimpleNamespace(goes=goes, picked=picked)
        return came, ids.where(own, -1), weights * own, num_tokens_per_expert.tolist(), handle, None

    def combine(self, x: torch.Tensor, handle: Any, topk_weights: torch.Tensor | None = None) -> tuple[Any, ...]:
        assert x.dtype == torch.bfloat16
        assert x.is_contiguous()
        assert x.shape[0] == sum(map(len, handle.picked))
        notes = self.board.exchange(self.rank, (x, topk_weights, handle.picked))
        tokens = handle.goes.shape[0]
        sums = [torch.zeros(tokens, part.shape[1]) for part in (x, topk_weights) if part is not None]
        for rows, weights, picked in notes:
            first = sum(map(len, picked[: self.rank]))
            mine = slice(first, first + len(picked[self.rank]))
            for total, part in zip(sums, (rows, weights), strict=False):
                total[picked[self.rank]] += part[mine].float()
        return sums[0].bfloat16(), None if topk_weights is None else sums[1], None


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    """FP8, which torch does not pick rows of everywhere."""
    return x.view(torch.uint8) if x.element_size() == 1 else x
