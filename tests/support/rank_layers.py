"""A MoE layer spread over simulated ranks, against one rank's."""

from __future__ import annotations

from typing import Any

import layer_weights
import torch
from inputs import random_values

import deep_gemm
from deep_gemm import simulator

HIDDEN, INNER, SLOTS = 256, 128, 3


class Layer:
    """The tokens of each rank, by a layer of one rank, and by one spread over all of them."""

    def __init__(self, tokens: list[int], local: int = 2, bound: int = 12, weights: str = "fp8") -> None:
        self.tokens, self.local, self.bound = tokens, local, bound
        self.experts, cpu = local * len(tokens), torch.device("cpu")
        (l1, _), (l2, _) = layer_weights.made(weights, self.experts, HIDDEN, INNER, cpu)
        self.weights = deep_gemm.transform_weights_for_mega_moe_sm90(l1, l2)
        self.given = []
        for rank, count in enumerate(tokens):
            drawn = torch.Generator().manual_seed(rank)
            ids = torch.randint(-1, self.experts + 1, (count, SLOTS), generator=drawn, dtype=torch.int32)
            x = random_values((count, HIDDEN), cpu, 7 + rank).bfloat16()
            self.given.append((x, ids, random_values((count, SLOTS), cpu, 70 + rank).abs()))

    def buffer(self, group: Any, **more: Any) -> Any:
        sizes = self.experts, self.bound, SLOTS, HIDDEN, INNER
        return deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, *sizes, device="cpu", **more)

    def check(self, schedule: str, calls: int = 1, **form: Any) -> None:
        """So many calls of all ranks behind each other against one rank's, in equal bits."""
        alone = self.buffer(None)
        wanted = [self.call(alone, rank, 0) for rank in range(len(self.tokens))]
        group = simulator.ranks(len(self.tokens))
        buffers = [self.buffer(rank, **form) for rank in group]
        found = []
        for at, (rank, buffer) in enumerate(zip(group, buffers, strict=True)):
            with rank:
                more = {"num_tokens_bound": self.bound} if at != 1 or "tokens_at_once" in form else {}
                found.append([self.call(buffer, at, at * self.local, **more) for _ in range(calls)])
        group.run(schedule=schedule, seed=3)
        for results, right in zip(found, wanted, strict=True):
            assert all(torch.equal(y, right) for y in results)
        parts = 1 if form["persistent"] else -(-self.bound // form.get("tokens_at_once", self.bound))
        for buffer in buffers:
            assert int(buffer.shared.record["calls"]) == calls * parts
            assert buffer.ready is None or not (buffer.ready.any() or buffer.pulled.any())

    def call(self, b: Any, rank: int, first: int, **more: Any) -> torch.Tensor:
        x, ids, factors = self.given[rank]
        y = torch.full((len(x), HIDDEN), 7.0).bfloat16()
        views = b.x, b.x_sf, b.topk_idx, b.topk_weights
        deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, factors, *views, num_tokens=len(x))
        weights = [layer_weights.experts_of(each, first, b.local_experts) for each in self.weights]
        deep_gemm.fp8_mega_moe(y, *weights, b, activation_clamp=2.0, **more)
        return y
