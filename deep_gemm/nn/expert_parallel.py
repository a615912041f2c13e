"""Experts spread over the processes of a group: rows travel to the process that has their expert, and back.

Tokens are quantised first, so that FP8 rows and their scales travel (in training BF16 rows, of which gradients are
made), and results in the dtype of the tokens. How many rows go where is read on the host once a call, since
collectives want it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .. import routing

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from .experts import GroupedExperts


def forward_in_group(
    layer: GroupedExperts, group: ProcessGroup, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, trains: bool
) -> torch.Tensor:
    """`GroupedExperts.forward` of this process's tokens, by all processes' experts. All of the group call it."""
    # By expert, so by process too, without gaps; choices of no expert have no row.
    found = routing.route(ids, layer.num_experts, kind="psum", alignment=1)
    arriving = torch.empty_like(found.counts)  # [process, own expert]
    dist.all_to_all_single(arriving, found.counts, group=group)
    table = torch.stack([found.counts, arriving]).view(2, group.size(), -1)
    sent, received = table.sum(dim=2).tolist()  # waits for the device
    total = sum(received)
    experts = torch.arange(layer.local_experts, dtype=torch.int32, device=ids.device).repeat(group.size())
    own = experts.repeat_interleave(arriving, output_size=total).unsqueeze(1)
    if trains:
        rows = exchange_recorded(routing.gather(x, found)[: sum(sent)], sent, received, group)
        y = layer.trained(rows, own, rows.new_ones((total, 1), dtype=torch.float32))
        back = exchange_recorded(y, received, sent, group)
    else:
        gathered = routing.gather(layer.tokens(x), found)
        if isinstance(gathered, torch.Tensor):
            tokens: Any = exchange(gathered[: sum(sent)], sent, received, group)
        else:
            tokens = tuple(exchange(part[: sum(sent)], sent, received, group) for part in gathered)
        y = layer.served(tokens, x, own, None, total <= layer.masked_up_to)
        back = exchange(y, received, sent, group)
    missing = found.source.shape[0] - back.shape[0]  # rows of choices that were dropped
    return routing.combine(torch.nn.functional.pad(back, (0, 0, 0, missing)), found, weights)


def exchange(rows: torch.Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> torch.Tensor:
    """The first `sent[0]` rows go to process 0, the next `sent[1]` to process 1 ...; what came, in that order."""
    out = rows.new_empty((sum(received), rows.shape[1]))
    dist.all_to_all_single(_bytes_of(out), _bytes_of(rows.contiguous()), received, sent, group=group)
    return out


def _bytes_of(rows: torch.Tensor) -> torch.Tensor:
    """Collectives know neither FP8 nor, everywhere, BF16."""
    # Flat first: a column by itself may have any stride.
    return rows.view(-1).view(torch.uint8).view(rows.shape[0], rows.shape[1] * rows.element_size())


class Exchange(torch.autograd.Function):
    """`exchange`; gradients travel back."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], group: ProcessGroup
    ) -> torch.Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return exchange(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return exchange(gradients[0], ctx.received, ctx.sent, ctx.group), None, None, None


exchange_recorded: Any = Exchange.apply
