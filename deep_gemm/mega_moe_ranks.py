"""How the tokens of a MoE layer travel between the ranks of a group, by memory that all of them reach (mega_moe.py).

A call is, on each rank and in the order of its stream: tell all ranks that the tokens are there and wait for theirs;
give each choice of an expert here a row; bring the rows; multiply; send results to the ranks whose tokens they are of;
tell all and wait; add up. Nothing is read by the host, and the number of the call is counted on the device: a CUDA
graph may hold all of it, where all ranks replay theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import routing
from ._extension import C
from ._simulated_ranks import SimulatedRank
from .layout import get_tma_aligned_size

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from .mega_moe_buffer import SM90SymmBuffer

__all__: list[str] = []

MAX_RANKS = 32
HEAD_BYTES = 1024  # flags and what is said before a trap (include/deep_gemm/ranks/config.cuh)
Group = Any  # a ProcessGroup, or a SimulatedRank


class SharedMemory:
    """A rank's part, zeroed, and where the others' lie."""

    def __init__(
        self, group: ProcessGroup | SimulatedRank, part_bytes: int, device: torch.device, sizes: tuple[int, ...]
    ) -> None:
        self.rank, self.count = group.rank(), group.size()
        if self.count > MAX_RANKS:
            raise ValueError(f"group must have at most {MAX_RANKS} ranks, got {self.count}")
        if isinstance(group, SimulatedRank):
            if device.type != "cpu":
                raise ValueError(f"device must be the CPU with ranks of the simulator, got {device}")
            self.part, self.addresses = group.share(part_bytes, sizes)
            self.mapped: Any = None
        else:
            if device.type != "cuda":
                raise ValueError(
                    f"device must be a GPU with a group of {self.count} ranks, got {device}: deep_gemm.simulator.ranks "
                    "has groups for the CPU"
                )
            _require_same(group, sizes)
            self.part, self.addresses, self.mapped = _symmetric(group, part_bytes, device)
        self.bytes = part_bytes
        self.calls = torch.zeros(1, dtype=torch.int32, device=device)

    def numbers(self, timeout_s: float, places: dict[str, int]) -> list[int]:
        """As the runtime reads them (csrc/ranks/call.hpp)."""
        names = "topk_idx", "topk_weights", "x", "x_sf", "results"
        return [self.rank, int(timeout_s * 1e9), self.bytes, *(places[name] for name in names), *self.addresses]


def _require_same(group: ProcessGroup, sizes: tuple[int, ...]) -> None:
    """On all ranks alike, so that all of them raise."""
    import torch.distributed as dist

    given: list[Any] = [None] * group.size()
    dist.all_gather_object(given, sizes, group=group)
    if different := [each for each in given if each != given[0]]:
        raise ValueError(f"a buffer must have the same sizes on all ranks, got {given[0]} and {different[0]}")


def _symmetric(group: ProcessGroup, part_bytes: int, device: torch.device) -> tuple[torch.Tensor, list[int], Any]:
    """And what keeps the others' mapped."""
    from torch.distributed import _symmetric_memory as symmetric

    part = symmetric.empty(part_bytes, dtype=torch.int8, device=device)
    part.zero_()
    torch.cuda.synchronize(device)  # before any rank can be told of it
    handle = symmetric.rendezvous(part, group)
    offset = part.data_ptr() - handle.buffer_ptrs[handle.rank]
    return part, [address + offset for address in handle.buffer_ptrs], handle


def bring_tokens(buffer: SM90SymmBuffer, tokens: int, room: int) -> tuple[routing.Routing, routing.Rows]:
    """Which rows experts here have of all ranks' choices, and the rows with their scales. `room` tokens of a rank."""
    shared, device = buffer.shared, buffer.x.device
    assert shared is not None
    choices, experts = buffer.num_topk, buffer.local_experts
    ids = torch.empty((shared.count, room, choices), dtype=torch.int32, device=device)
    weights = torch.empty((shared.count, room, choices), dtype=torch.float32, device=device)
    C.exchange_choices(buffer.numbers, shared.calls, ids, weights, tokens, experts)
    found = routing.route(ids.view(-1, choices), experts, kind="psum", weights=weights.view(-1, choices))
    rows = found.source.shape[0]
    out = torch.empty((rows, buffer.hidden), dtype=torch.float8_e4m3fn, device=device)
    memory = torch.empty((buffer.hidden // 128, get_tma_aligned_size(rows, 4)), dtype=torch.float32, device=device)
    scales = memory.T[:rows]
    C.pull_rows(buffer.numbers, shared.calls, found.source, out, scales, room, choices)
    return found, (out, scales)


def return_results(buffer: SM90SymmBuffer, found: routing.Routing, down: torch.Tensor, y: torch.Tensor) -> None:
    shared, choices = buffer.shared, buffer.num_topk
    assert shared is not None
    room = found.row_of.shape[0] // shared.count
    C.push_rows(buffer.numbers, shared.calls, found.source, down, room, choices)
    row_of = found.row_of.view(shared.count, room, choices)
    C.combine_results(buffer.numbers, shared.calls, down, row_of, y, buffer.local_experts, buffer.num_experts)
