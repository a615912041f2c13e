"""A whole MoE layer in one call, on one GPU: the names of mega-MoE that SGLang calls on Hopper; on SM80 too.

    buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, experts, max_tokens, topk, hidden, intermediate)
    l1, l2 = deep_gemm.transform_weights_for_mega_moe_sm90((w13, w13_scales), (w2, w2_scales))  # once
    deep_gemm.mega_moe_pre_dispatch_sm90(
        x, ids, weights, buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights, num_tokens=len(x)
    )
    deep_gemm.fp8_mega_moe(y, l1, l2, buffer)

`y[t]` is the sum over slots of `down(quantised(weight * silu(gate) * up))` by the expert of each slot. It is made of
this library's parts, one after the other: routing, a grouped product whose epilogue is SwiGLU, the router's weight and
E4M3 with scales; the grouped product down; and the sum of each token's rows, in FP32 and in the order of slots. So
equal calls have equal bits. Nothing is read by the host, and shapes depend on the number of tokens only: a CUDA graph
may hold all of it.

With a group of several ranks each has its share of the experts and its own tokens, which travel over NVLink
(mega_moe_ranks.py); all ranks make all calls, a rank without tokens with a `y` of no rows.

Raises ValueError or TypeError where an argument cannot be right; then nothing was launched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from . import _routing, mega_moe_ranks, routing
from ._extension import C
from ._gates import SIDE
from ._numbers import fp32_bits, integer
from .epilogue import SwiGLU
from .mega_moe_buffer import (
    BLOCK,
    SM90SymmBuffer,
    check_activation,
    get_symm_buffer_for_mega_moe,
    get_symm_buffer_for_sm90_mega_moe,
)
from .mega_moe_products import Products, Weights
from .weights import PackedWeights

__all__ = [
    "SM90SymmBuffer",
    "fp8_mega_moe",
    "get_block_m_for_mega_moe",
    "get_symm_buffer_for_mega_moe",
    "get_symm_buffer_for_sm90_mega_moe",
    "mega_moe_pre_dispatch_sm90",
    "transform_weights_for_mega_moe_sm90",
]

_TILES = (16, 32, 64, 128)


def transform_weights_for_mega_moe_sm90(l1_weights: Weights, l2_weights: Weights) -> tuple[Weights, Weights]:
    """Weights as `fp8_mega_moe` takes them, made once.

    Args:
        l1_weights: float8_e4m3fn `[E, 2 * I, H]`, I rows of gates and then I of ups, and float32 scales of 128x128
            blocks `[E, 2 * I / 128, H / 128]`. 8 gates and their 8 ups become neighbours, in a new tensor; scales stay
            as they are. Or PackedWeights for activations 'fp8' (int4, uint4, e2m1), packed with `gate_up='halves'` or
            'interleaved', which stay as they are.
        l2_weights: `[E, H, I]`, likewise; stays as it is.
    """
    _check_pair(l1_weights, l2_weights)
    if isinstance(l1_weights, PackedWeights):
        return l1_weights, l2_weights
    data, scales = l1_weights
    both = data.shape[1]
    if both % (2 * BLOCK) != 0:
        raise ValueError(f"l1_weights must have rows of gates and ups in whole blocks of {BLOCK}, got {[*data.shape]}")
    rows = data.view(torch.uint8).unflatten(1, (2, both // 2 // SIDE, SIDE))
    return (rows.transpose(1, 2).reshape(data.shape).view(data.dtype), scales), l2_weights


def mega_moe_pre_dispatch_sm90(
    x: torch.Tensor,
    topk_idx: torch.Tensor,
    topk_weights: torch.Tensor,
    buf_x: torch.Tensor,
    buf_x_sf: torch.Tensor,
    buf_topk_idx: torch.Tensor,
    buf_topk_weights: torch.Tensor,
    num_tokens: int,
    group_size: int = 128,
    routed_scaling_factor: float = 1.0,
) -> None:
    """Tokens into a buffer: E4M3 with a scale for each 128 of K, their experts, and weights times a factor.

    Slots of the buffer's rows behind `num_tokens` become -1 with weight 0.

    Args:
        x: bfloat16 `[num_tokens or more, hidden]`.
        topk_idx, topk_weights: int32 or int64, and float32, `[num_tokens or more, slots]`.
        buf_x, buf_x_sf, buf_topk_idx, buf_topk_weights: of an `SM90SymmBuffer`.
        num_tokens: rows that count.
        group_size: 128.
        routed_scaling_factor: of the weights.
    """
    count = integer("num_tokens", num_tokens, smallest=0)
    if group_size != BLOCK:
        raise ValueError(f"group_size must be {BLOCK}, got {group_size}")
    factor = fp32_bits("routed_scaling_factor", routed_scaling_factor)
    room, slots = buf_topk_idx.shape
    if count > room:
        raise ValueError(f"num_tokens must be at most the {room} that the buffer has room for, got {count}")
    _check("x", x, (torch.bfloat16,), (None, buf_x.shape[1]))
    _check("topk_idx", topk_idx, (torch.int32, torch.int64), (None, slots))
    _check("topk_weights", topk_weights, (torch.float32,), (None, slots))
    _check("buf_x", buf_x, (torch.float8_e4m3fn,), (room, None))
    _check("buf_x_sf", buf_x_sf, (torch.float32,), (room, -(-buf_x.shape[1] // BLOCK)))
    _check("buf_topk_idx", buf_topk_idx, (torch.int64,), (room, slots))
    _check("buf_topk_weights", buf_topk_weights, (torch.float32,), (room, slots))
    for name, tensor in (("x", x), ("topk_idx", topk_idx), ("topk_weights", topk_weights)):
        if tensor.shape[0] < count:
            raise ValueError(f"{name} must have at least num_tokens={count} rows, got {tensor.shape[0]}")
    C.pre_dispatch(
        x=x[:count].detach(),
        ids=topk_idx[:count],
        weights=topk_weights[:count].detach(),
        factor_bits=factor,
        q=buf_x[:count],
        s=buf_x_sf[:count],
        out_ids=buf_topk_idx,
        out_weights=buf_topk_weights,
    )


def fp8_mega_moe(
    y: torch.Tensor,
    l1_weights: Weights,
    l2_weights: Weights,
    sym_buffer: SM90SymmBuffer,
    cumulative_local_expert_recv_stats: torch.Tensor | None = None,
    recipe: Sequence[int] = (128, 128, 128),
    activation: str = "swiglu",
    activation_clamp: float | None = None,
    fast_math: bool = True,
    num_tokens_bound: int | None = None,
) -> None:
    """The layer's result of the first `len(y)` tokens of a buffer.

    Args:
        y: bfloat16 `[tokens, hidden]`, which is written; of a token without an expert, zeros.
        l1_weights, l2_weights: as `transform_weights_for_mega_moe_sm90` makes them.
        sym_buffer: with the tokens; it stays as it is.
        cumulative_local_expert_recv_stats: None, or int32 `[num_experts]`, to which the number of tokens of each
            expert is added.
        recipe, activation: (128, 128, 128) and 'swiglu'.
        activation_clamp: None, or the limit of gates (from above) and of ups (on both sides), before the activation.
        fast_math: makes no difference here.
        num_tokens_bound: None, or at least the number of tokens of any rank; by default the buffer's. Of several ranks
            each makes room for so many of all; of a rank with more the call tells, and traps. One rank ignores it.

    Sums of gates and ups are FP32 up to the activation; it is multiplied by the token's weight before it is quantised:
    the largest magnitude of each 128 of a row, but at least 1e-4, over 448 is its scale. Results of `down` are rounded
    to BF16 before they are added.
    """
    if not isinstance(sym_buffer, SM90SymmBuffer) or sym_buffer.buffer is None:
        raise TypeError(f"sym_buffer must be an SM90SymmBuffer that was not destroyed, got {sym_buffer!r}")
    if tuple(recipe) != (BLOCK,) * 3:
        raise ValueError(f"recipe must be (128, 128, 128), got {recipe}")
    check_activation(activation)
    buffer, hidden, inner = sym_buffer, sym_buffer.hidden, sym_buffer.intermediate_hidden
    _check("y", y, (torch.bfloat16,), (None, hidden))
    tokens, device = y.shape[0], buffer.x.device
    if tokens > buffer.num_max_tokens_per_rank:
        raise ValueError(f"y must have at most the buffer's {buffer.num_max_tokens_per_rank} tokens, got {tokens}")
    if num_tokens_bound is not None and integer("num_tokens_bound", num_tokens_bound, smallest=0) < tokens:
        raise ValueError(f"num_tokens_bound must be at least the {tokens} tokens of y, got {num_tokens_bound}")
    _check_pair(l1_weights, l2_weights)
    experts = buffer.local_experts
    shapes = (experts, 2 * inner, hidden), (experts, hidden, inner)
    for name, weights, shape in zip(("l1_weights", "l2_weights"), (l1_weights, l2_weights), shapes, strict=True):
        found = weights.shape if isinstance(weights, PackedWeights) else weights[0].shape
        if tuple(found) != shape:
            raise ValueError(f"{name} must be {[*shape]} as the buffer says, got {[*found]}")
    stats = cumulative_local_expert_recv_stats
    if stats is not None:
        _check("cumulative_local_expert_recv_stats", stats, (torch.int32,), (experts,))
    for name, tensor in (("y", y), ("cumulative_local_expert_recv_stats", stats)):
        if tensor is not None and tensor.device != device:
            raise ValueError(f"{name} must be on {device} like the buffer, but is on {tensor.device}")
    # A limit that cannot be is refused here, before anything is launched.
    limit = None if activation_clamp is None or activation_clamp == math.inf else activation_clamp
    layout = l1_weights.gate_up if isinstance(l1_weights, PackedWeights) else "eights"
    gate = SwiGLU(limit=limit, layout=layout or "halves")
    room = buffer.num_max_tokens_per_rank
    if buffer.shared is not None and num_tokens_bound is not None:
        room = max(min(num_tokens_bound, room), 1)
    if tokens > 0 or buffer.shared is not None:
        _layer(y, Products(l1_weights, l2_weights, buffer, gate), stats, room)


def _layer(y: torch.Tensor, products: Products, stats: torch.Tensor | None, room: int) -> None:
    tokens, buffer = y.shape[0], products.buffer
    fits = y.is_contiguous() and (buffer.shared is None or y.data_ptr() % 16 == 0)
    out = y if fits else torch.empty_like(y, memory_format=torch.contiguous_format)
    if buffer.shared is not None:
        parts = [range(room)] if products.in_one_launch else mega_moe_ranks.parts_of(buffer, room)
        for part in parts:
            _part_of_ranks(tokens, room, part, products, stats)
        mega_moe_ranks.combine(buffer, out)
    else:
        expected = max(-(-tokens * buffer.num_topk // buffer.num_experts), 1)
        kind, weights = products.kind_of_rows(expected), buffer.topk_weights[:tokens]
        # Rows behind each other: a token may choose an expert twice (SGLang's choices of weight 0 do), and then
        # matrices of so many rows as there are tokens would not hold all.
        found = routing.route(buffer.topk_idx[:tokens], buffer.num_experts, kind=kind, weights=weights)
        rows = routing.gather((buffer.x[:tokens], buffer.x_sf[:tokens]), found)
        down = products.room_for_down(found)
        if products.in_one_launch:
            C.moe_layer(**products.record(rows, found, expected), out=down)
        else:
            products.run(rows, found, expected, down)
        _routing.launch_combine(down, None, found.row_of, out)
        if stats is not None:
            stats.add_(found.counts)
    if out is not y:
        y.copy_(out)


def _part_of_ranks(tokens: int, room: int, part: range, products: Products, stats: torch.Tensor | None) -> None:
    """Results of experts here into the slots of a part of all ranks' tokens."""
    buffer = products.buffer
    assert buffer.shared is not None
    found = mega_moe_ranks.find_rows(buffer, tokens, room, part)
    expected = max(-(-len(part) * buffer.shared.count * buffer.num_topk // buffer.num_experts), 1)
    travel = mega_moe_ranks.travel_of(buffer, found, part)
    if products.in_one_launch:
        assert buffer.pulled is not None
        rows = mega_moe_ranks.room_for_rows(buffer, mega_moe_ranks.rows_at_once(buffer, found, len(part)))
        C.moe_layer_of_ranks(**products.record(rows, found, expected), **travel, pulled=buffer.pulled)
    else:
        down = products.room_for_down(found)
        products.run(mega_moe_ranks.pull_rows(buffer, travel), found, expected, down)
        mega_moe_ranks.push_rows(travel, down)
    if stats is not None:
        stats.add_(found.counts)


def get_block_m_for_mega_moe(
    num_ranks: int,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_tokens: int,
    num_topk: int,
    mma_type: str = "fp8xfp8",
    global_num_tokens: int | None = None,
) -> int:
    """Rows of a tile that hold what an expert is likely to get: 16, 32, 64 or 128. No layout here depends on it.

    Args:
        num_ranks, num_experts, num_topk: GPUs, experts of all, and choices of a token.
        num_tokens: of each rank. An expert is likely to get `num_tokens * num_ranks * num_topk / num_experts` rows.
        num_max_tokens_per_rank, mma_type: make no difference.
        global_num_tokens: None, or of all ranks together.
    """
    numbers = {"num_ranks": num_ranks, "num_experts": num_experts, "num_topk": num_topk}
    ranks, experts, choices = (integer(name, number, smallest=1) for name, number in numbers.items())
    integer("num_max_tokens_per_rank", num_max_tokens_per_rank, smallest=0)
    tokens = integer("num_tokens", num_tokens, smallest=0) * ranks
    if global_num_tokens is not None:
        tokens = integer("global_num_tokens", global_num_tokens, smallest=0)
    expected = -(-tokens * choices // experts)
    return next((rows for rows in _TILES if rows >= expected), _TILES[-1])


def _check_pair(l1_weights: Weights, l2_weights: Weights) -> None:
    for name, weights in (("l1_weights", l1_weights), ("l2_weights", l2_weights)):
        if isinstance(weights, PackedWeights):
            if weights.activations != "fp8" or len(weights.shape) != 3:
                raise ValueError(
                    f"{name} must be packed for activations 'fp8', a stack [E, N, K], got {weights.activations!r} and "
                    f"{[*weights.shape]}"
                )
            continue
        if not isinstance(weights, (tuple, list)) or len(weights) != 2:
            raise TypeError(f"{name} must be PackedWeights, or a pair of data and scales, got {weights!r}")
        data, scales = weights
        _check(f"the data of {name}", data, (torch.float8_e4m3fn,), (None, None, None))
        blocks = data.shape[0], -(-data.shape[1] // BLOCK), -(-data.shape[2] // BLOCK)
        _check(f"the scales of {name}", scales, (torch.float32,), blocks)
    if isinstance(l1_weights, PackedWeights) and l1_weights.gate_up is None:
        raise ValueError("l1_weights must be packed with gate_up='halves' or 'interleaved', got None")
    if isinstance(l2_weights, PackedWeights) and l2_weights.gate_up is not None:
        raise ValueError(f"l2_weights must be packed without gate_up, got {l2_weights.gate_up!r}")


def _check(name: str, tensor: Any, dtypes: Sequence[torch.dtype], shape: Sequence[int | None]) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in dtypes:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must be {names}, got {getattr(tensor, 'dtype', tensor)}")
    if tensor.dim() != len(shape) or any(
        wanted is not None and wanted != size for wanted, size in zip(shape, tensor.shape, strict=True)
    ):
        wanted_shape = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must be [{wanted_shape}], got {[*tensor.shape]}")
