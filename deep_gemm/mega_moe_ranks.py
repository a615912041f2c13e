"""How the tokens of a MoE layer travel between the ranks of a group, by memory that all of them reach (mega_moe.py).

A call is, on each rank and in the order of its stream: tell all ranks that the tokens are there and wait for theirs;
give each choice of an expert here a row; bring the rows; multiply; send results to the slots of the tokens that they
are of; tell all and wait; add up. With `tokens_at_once` all but the last two come again for so many tokens of each rank
at a time, which bounds the rows that there is memory for. Nothing is read by the host, and the number of the call is
counted on the device: a CUDA graph may hold all of it, where all ranks replay theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import routing
from ._compiled import alignment_now
from ._extension import C
from ._simulated_ranks import SimulatedRank
from .layout import get_tma_aligned_size

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ._C import RankGroup, Travel
    from .mega_moe_buffer import SM90SymmBuffer

__all__: list[str] = []

MAX_RANKS = 32
HEAD_BYTES = 1024  # flags and what is said before a trap (include/deep_gemm/ranks/config.cuh)
Group = Any  # a ProcessGroup, or a SimulatedRank


class SharedMemory:
    """A rank's part, zeroed, and where the others' lie. `places`: where what it holds begins in a part."""

    def __init__(
        self,
        group: ProcessGroup | SimulatedRank,
        part_bytes: int,
        device: torch.device,
        sizes: tuple[int, ...],
        places: dict[str, int],
        timeout_s: float,
    ) -> None:
        self.rank, self.count = group.rank(), group.size()
        if self.count > MAX_RANKS:
            raise ValueError(f"group must have at most {MAX_RANKS} ranks, got {self.count}")
        if isinstance(group, SimulatedRank):
            if device.type != "cpu":
                raise ValueError(f"device must be the CPU with ranks of the simulator, got {device}")
            self.part, addresses = group.share(part_bytes, sizes)
            self.mapped: Any = None
        else:
            if device.type != "cuda":
                raise ValueError(
                    f"device must be a GPU with a group of {self.count} ranks, got {device}: deep_gemm.simulator.ranks "
                    "has groups for the CPU"
                )
            _require_same(group, sizes)
            self.part, addresses, self.mapped = _symmetric(group, part_bytes, device)
        self.record: RankGroup = {  # as the runtime reads it (csrc/ranks/group.hpp)
            "rank": self.rank,
            "timeout_ns": int(timeout_s * 1e9),
            "parts": (*addresses,),
            "part_bytes": part_bytes,
            "ids_at": places["topk_idx"],
            "weights_at": places["topk_weights"],
            "x_at": places["x"],
            "x_scales_at": places["x_sf"],
            "results_at": places["results"],
            "calls": torch.zeros(1, dtype=torch.int32, device=device),
        }


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


def parts_of(buffer: SM90SymmBuffer, bound: int) -> list[range]:
    """Tokens of each rank whose rows are here at the same time, of `bound` or fewer."""
    at_once = min(buffer.tokens_at_once or bound, bound)
    return [range(first, min(first + at_once, bound)) for first in range(0, bound, at_once)]


def rows_at_once(buffer: SM90SymmBuffer, found: routing.Routing, bound: int) -> int:
    """For how many rows there is memory in the one launch: others take their turn."""
    assert buffer.shared is not None
    choices = min(buffer.tokens_at_once or bound, bound) * buffer.shared.count * buffer.num_topk
    return min(routing.most_rows(choices, 1, alignment_now()), found.source.shape[0])


def find_rows(buffer: SM90SymmBuffer, tokens: int, bound: int, part: range) -> routing.Routing:
    """Which rows experts here have of all ranks' choices. `tokens` of this rank, at most `bound` of any."""
    shared, device = buffer.shared, buffer.x.device
    assert shared is not None
    shape = shared.count * len(part), buffer.num_topk
    ids = torch.empty(shape, dtype=torch.int32, device=device)
    weights = torch.empty(shape, dtype=torch.float32, device=device)
    C.exchange_choices(
        **shared.record,
        ids=ids,
        row_weights=weights,
        first_token=part.start,
        tokens=tokens,
        bound=bound,
        experts=buffer.local_experts,
    )
    return routing.route(ids, buffer.local_experts, kind="psum", weights=weights)


def room_for_rows(buffer: SM90SymmBuffer, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """And for their scales, as products read them."""
    device, shape = buffer.x.device, (rows, buffer.hidden // 128)
    out = torch.empty((rows, buffer.hidden), dtype=torch.float8_e4m3fn, device=device)
    strides = 1, get_tma_aligned_size(rows, 4)
    return out, torch.empty_strided(shape, strides, dtype=torch.float32, device=device)


def travel_of(buffer: SM90SymmBuffer, found: routing.Routing, part: range) -> Travel:
    """The group, and which tokens go to which rows, as the runtime reads it (csrc/ranks/group.hpp)."""
    assert buffer.shared is not None
    return {
        **buffer.shared.record,
        "source": found.source,
        "first_token": part.start,
        "room": len(part),
        "choices": buffer.num_topk,
    }


def pull_rows(buffer: SM90SymmBuffer, travel: Travel) -> routing.Rows:
    """By what `travel_of` says."""
    out, scales = room_for_rows(buffer, travel["source"].shape[0])
    C.pull_rows(**travel, out=out, out_scales=scales)
    return out, scales


def push_rows(travel: Travel, down: torch.Tensor) -> None:
    C.push_rows(**travel, down=down)


def combine(buffer: SM90SymmBuffer, y: torch.Tensor) -> None:
    assert buffer.shared is not None
    C.combine_results(**buffer.shared.record, out=y, choices=buffer.num_topk, num_experts=buffer.num_experts)
