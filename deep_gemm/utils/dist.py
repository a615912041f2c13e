"""Small helpers for programs of several processes, one per GPU."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist


def init_dist(local_rank: int, num_local_ranks: int) -> tuple[int, int, Any]:
    """Join the process group that MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK describe (both counting nodes).

    Returns this process's rank, the number of ranks and a group of all of them. Without a GPU the backend is gloo.
    """
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    port = int(os.environ.get("MASTER_PORT", "8361"))
    nodes, node = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(local_rank)
    dist.init_process_group(
        backend="nccl" if has_gpu else "gloo",
        init_method=f"tcp://{address}:{port}",
        world_size=nodes * num_local_ranks,
        rank=node * num_local_ranks + local_rank,
    )
    return dist.get_rank(), dist.get_world_size(), dist.new_group(list(range(dist.get_world_size())))


def uneven_all_gather(tensor: torch.Tensor, dim: int = 0, group: Any = None) -> torch.Tensor:
    """Concatenate every rank's `tensor` along `dim`, in which (only) their sizes may differ."""
    size = torch.tensor([tensor.shape[dim]], dtype=torch.int64, device=tensor.device)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    counts = [int(count) for count in sizes]
    # Every rank sends as much as the largest one has: collectives want equal sizes.
    rows = tensor.movedim(dim, 0)
    sent = rows.new_zeros((max(counts), *rows.shape[1:]))
    sent[: rows.shape[0]] = rows
    received = [torch.empty_like(sent) for _ in counts]
    dist.all_gather(received, sent, group=group)
    return torch.cat([part[:count] for part, count in zip(received, counts, strict=True)]).movedim(0, dim).contiguous()


def dist_print(text: str = "", once_in_node: bool = False) -> None:
    """Print in every process, or with `once_in_node` in one of each node (LOCAL_RANK 0); then wait for all."""
    local_rank = int(os.environ.get("LOCAL_RANK", str(dist.get_rank())))
    if not once_in_node or local_rank == 0:
        print(text, flush=True)
    dist.barrier()
