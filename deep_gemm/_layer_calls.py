"""A model's experts as one call, `fp8_mega_moe`: what is compiled beforehand for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import mega_moe
from ._model_calls import Limits, OtherCalls
from ._precompile import Part
from ._products import PRODUCTS
from ._recording import placeholder
from ._simulated_ranks import SimulatedRank, SimulatedRanks
from .weights.blank import blank_weights
from .weights.packings import FOLDED, packing_of

if TYPE_CHECKING:
    from ._models import ModelWeight

_SERVED = [name for name, product in PRODUCTS.items() if product.activations == "fp8"]
_COUNTS_A_PART = 256


class RecordedRank(SimulatedRank):
    """Of as many GPUs as share experts; its memory is only reserved."""

    def share(self, part_bytes: int, sizes: tuple[int, ...]) -> tuple[torch.Tensor, list[int]]:
        part = placeholder(part_bytes, dtype=torch.int8)
        return part, [part.data_ptr()] * self.size()


def whole_layer_calls(weights: Sequence[ModelWeight], limits: Limits) -> OtherCalls:
    """Of the first experts among the weights, with each number of tokens; of several GPUs as the largest of any. In one
    launch and in two, where there are both."""
    pairs = [weight for weight in weights if weight.calls.grouping != "dense"][:2]
    if not pairs:
        raise ValueError("mega_moe must be False for a model without experts")
    up, down = pairs
    if up.calls.operands.product not in _SERVED:
        raise ValueError(f"mega_moe is for experts of {', '.join(_SERVED)}, not of {up.calls.operands.product}")
    counts = range(1, limits.max_m + 1)
    parts = [counts[first : first + _COUNTS_A_PART] for first in range(0, len(counts), _COUNTS_A_PART)]
    make = _maker(up, down, limits.max_m)
    return OtherCalls("experts as one layer", [Part(make, part) for part in parts])


def _maker(up: ModelWeight, down: ModelWeight, most: int) -> Callable[[int], None]:
    kept = threading.local()
    topk, hidden, inner = up.rows_a_token, up.k, down.k

    def buffer_of(persistent: bool) -> mega_moe.SM90SymmBuffer:
        ranks = up.model_experts // up.calls.experts
        group = None if ranks == 1 else RecordedRank(SimulatedRanks(ranks), 0)
        sizes = up.model_experts, most, topk, hidden, inner
        return mega_moe.get_symm_buffer_for_sm90_mega_moe(group, *sizes, device="cpu", persistent=persistent)

    def begin() -> tuple[list[mega_moe.SM90SymmBuffer], Any, Any]:
        buffers = [buffer_of(False)]
        if buffers[0].arch == "sm90":
            buffers.append(buffer_of(True))
        return buffers, _weights(up, "halves"), _weights(down, None)

    def make(tokens: int) -> None:
        if not hasattr(kept, "parts"):
            kept.parts = begin()  # in the thread that records: buffers ask which GPU it is
        buffers, l1, l2 = kept.parts
        buffer = buffers[0]
        views = buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights
        x = placeholder(tokens, hidden, dtype=torch.bfloat16)
        factors = placeholder(tokens, topk, dtype=torch.float32)
        for dtype in (torch.int32, torch.int64):
            ids = placeholder(tokens, topk, dtype=dtype)
            mega_moe.mega_moe_pre_dispatch_sm90(x, ids, factors, *views, num_tokens=tokens)
        y = placeholder(tokens, hidden, dtype=torch.bfloat16)
        for each in buffers:
            mega_moe.fp8_mega_moe(y, l1, l2, each, num_tokens_bound=tokens)

    return make


def _weights(weight: ModelWeight, gate_up: str | None) -> Any:
    shape = weight.calls.experts, weight.n, weight.k
    element = PRODUCTS[weight.calls.operands.product].weights
    if element is None:
        scales = placeholder(shape[0], -(-shape[1] // 128), -(-shape[2] // 128), dtype=torch.float32)
        return placeholder(*shape, dtype=torch.float8_e4m3fn), scales
    packing = packing_of(element, "fp8")
    order = FOLDED if packing.folds_exponents else packing.orders[0]
    group = weight.calls.operands.scale_group()
    converted = group is not None and group <= packing.converted_group
    return blank_weights(shape, element, "fp8", group, order, second_scales=converted, gate_up=gate_up)
