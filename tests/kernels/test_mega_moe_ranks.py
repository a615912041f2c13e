"""`fp8_mega_moe` with a group: simulated ranks that run together, their shared memory by the memory model."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import exchange
import pytest
import torch
from fresh import copied_package, run
from inputs import random_values

import deep_gemm
from deep_gemm import simulator
from deep_gemm.utils import per_block_cast_to_fp8

HIDDEN, INNER, SLOTS, BOUND = 256, 128, 3, 12


class Layer:
    """The tokens of each rank, by a layer of one rank, and by one spread over all of them."""

    def __init__(self, tokens: list[int], local: int = 2) -> None:
        self.tokens, self.local = tokens, local
        self.experts = local * len(tokens)
        cpu, shapes = torch.device("cpu"), ((2 * INNER, HIDDEN), (HIDDEN, INNER))
        made = []
        for seed, shape in enumerate(shapes):
            cast = [per_block_cast_to_fp8(v, False) for v in random_values((self.experts, *shape), cpu, seed)]
            made.append(tuple(torch.stack(part) for part in zip(*cast, strict=True)))
        self.weights = deep_gemm.transform_weights_for_mega_moe_sm90(*made)
        self.given = []
        for rank, count in enumerate(tokens):
            drawn = torch.Generator().manual_seed(rank)
            ids = torch.randint(-1, self.experts + 1, (count, SLOTS), generator=drawn, dtype=torch.int32)
            x = random_values((count, HIDDEN), cpu, 7 + rank).bfloat16()
            self.given.append((x, ids, random_values((count, SLOTS), cpu, 70 + rank).abs()))

    def buffer(self, group: Any) -> Any:
        sizes = self.experts, BOUND, SLOTS, HIDDEN, INNER
        return deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, *sizes, device="cpu")

    def call(self, b: Any, rank: int, first: int, **more: Any) -> torch.Tensor:
        x, ids, factors = self.given[rank]
        y = torch.full((len(x), HIDDEN), 7.0).bfloat16()
        views = b.x, b.x_sf, b.topk_idx, b.topk_weights
        deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, factors, *views, num_tokens=len(x))
        weights = [tuple(part[first : first + b.local_experts] for part in pair) for pair in self.weights]
        deep_gemm.fp8_mega_moe(y, *weights, b, activation_clamp=2.0, **more)
        return y


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("schedule", "tokens"), [("eager", [5, 12]), ("random", [9, 0]), ("lazy", [4, 1, 7])])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_as_one_rank_does_it(schedule, tokens, target) -> None:
    """Uneven ranks, choices of no expert, a rank without tokens; equal bits in each call."""
    with simulator.options(num_sms=1, target=target):
        layer = Layer(tokens)
        alone = layer.buffer(None)
        wanted = [layer.call(alone, rank, 0) for rank in range(len(tokens))]
        group = simulator.ranks(len(tokens))
        buffers = [layer.buffer(rank) for rank in group]
        stats = [torch.zeros(layer.local, dtype=torch.int32) for _ in group]
        found = []
        for at, (rank, buffer) in enumerate(zip(group, buffers, strict=True)):
            with rank:
                more = {"num_tokens_bound": BOUND} if at == 0 else {}
                found.append(layer.call(buffer, at, at * layer.local, **more))
        group.run(schedule=schedule, seed=3)
        for y, right in zip(found, wanted, strict=True):
            assert torch.equal(y, right)
        assert all(int(buffer.shared.calls) == 1 for buffer in buffers)
        del stats


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_calls_behind_each_other(schedule) -> None:
    """Buffers are written again as soon as the order allows it."""
    assert exchange.run([[5, 3, 0], [1, 5, 2]], schedule=schedule, seed=5) == []


FLAGS, CHOICES, RESULTS = "ranks/flags.cuh", "kernels/exchange_choices.cuh", "kernels/combine_results.cuh"
SYSTEM = "ptx/system.cuh"
# What was done wrong: in which file, of what, in its place; and what is reported for it.
BUGS = {
    "flags that release nothing": (SYSTEM, "st.release.sys.global", "st.relaxed.sys.global", "race"),
    "flags that acquire nothing": (SYSTEM, "ld.acquire.sys.global", "ld.relaxed.sys.global", "race"),
    "flags for one GPU": (SYSTEM, "st.release.sys.global", "st.release.gpu.global", "scope|race"),
    "tokens not waited for": (
        CHOICES,
        "wait_for(ranks, Phase::tokens, other, call, block < ranks.count)",
        "params.tokens",
        "race|call",
    ),
    "no barrier behind the wait for tokens": (CHOICES, "__syncthreads();", "", "race|uninitialised|call"),
    "results not waited for": (RESULTS, "< ranks.count)\n        wait", "< 0)\n        wait", "race"),
    "no barrier behind the wait for results": (RESULTS, "__syncthreads();", "", "race"),
    "results of others told before they are sent": (
        "kernels/pull_rows.cuh",
        "*ranks.calls = call_now(ranks, false);",
        "*ranks.calls = call_now(ranks, false), tell_all(ranks, Phase::results, call_now(ranks, true), 0);",
        "race|call",
    ),
    "calls that are not counted": ("kernels/pull_rows.cuh", "*ranks.calls = call_now(ranks, false);", ";", "race|call"),
}
CALL = """
import exchange
result = []
for options in ({"schedule": "lazy"}, {"schedule": "random", "seed": 1}, {"schedule": "random", "seed": 2}):
    try:
        result += exchange.run([[5, 3], [1, 5]], **options)
    except RuntimeError as error:
        result.append(str(error))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path, bug) -> None:
    file, right, wrong, kinds = BUGS[bug]
    header = tmp_path / "package" / "include" / "deep_gemm" / file
    edit = f"""
text = open({str(header)!r}).read()
assert text.count({right!r}) == 1, text.count({right!r})
open({str(header)!r}, "w").write(text.replace({right!r}, {wrong!r}))
"""
    outcome = run(copied_package(tmp_path / "package") + edit + CALL)
    assert outcome.status == 0, outcome.stderr
    assert any(re.search(kinds, each) for each in outcome.result), outcome.result


def fault_of(buffer: Any) -> list[int]:
    """Phase + 1, the rank that was waited for, the call."""
    return buffer.shared.part[512:524].view(torch.int32).tolist()


def test_a_rank_that_never_comes(capfd) -> None:
    """The one that waits says so and traps, and has written whom it waited for in which call."""
    with simulator.options(num_sms=1):
        group = simulator.ranks(2)
        ranks = [exchange.Rank(rank, [3], 5, timeout_s=1e-3) for rank in group]
        ranks[0].note()
        with pytest.raises(RuntimeError, match="trap: on device 0: the kernel trapped"):
            group.run()
    assert fault_of(ranks[0].buffer) == [1, 1, 1]
    wanted = "deep_gemm: fp8_mega_moe call 1: rank 0 waited for tokens of rank 1 for longer than 0.001 s\n"
    assert capfd.readouterr().out == wanted


def test_more_tokens_than_there_is_room_for(capfd) -> None:
    with simulator.options(num_sms=1):
        group = simulator.ranks(2)
        ranks = [exchange.Rank(rank, [tokens], room) for rank, tokens, room in zip(group, (3, 5), (4, 5), strict=True)]
        for rank in ranks:
            rank.note()
        with pytest.raises(RuntimeError, match="trap: on device 0: the kernel trapped"):
            group.run()
    assert fault_of(ranks[0].buffer) == [1, 1, 1]
    assert capfd.readouterr().out == (
        "deep_gemm: fp8_mega_moe call 1: rank 1 has 5 tokens, but rank 0 has room for 4 of each: num_tokens_bound must "
        "be at least the tokens of every rank\n"
    )


@pytest.mark.parametrize(
    ("group", "more", "message"),
    [
        (SimpleNamespace(size=lambda: 3), {}, "num_experts must be a multiple of the 3 ranks of group, got 4"),
        (SimpleNamespace(size=lambda: 2, rank=lambda: 0), {}, "device must be a GPU with a group of 2 ranks, got cpu"),
        (simulator.ranks(2)[0], {"persistent": True}, "persistent must be False with a group of more than one rank"),
        (simulator.ranks(2)[1], {"timeout_s": 0}, "timeout_s must be a number of seconds above 0, got 0"),
    ],
)
def test_wrong_groups(group, more, message) -> None:
    with pytest.raises(ValueError, match=message):
        deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, 4, 4, 2, 256, 128, device="cpu", **more)


def test_ranks_that_do_not_agree() -> None:
    first, second = simulator.ranks(2)
    deep_gemm.get_symm_buffer_for_sm90_mega_moe(first, 4, 4, 2, 256, 128, device="cpu")
    with pytest.raises(ValueError, match=r"the same sizes on all ranks, got \(4, 128, 2, 256, 128\) and \(8, 128, 2, "):
        deep_gemm.get_symm_buffer_for_sm90_mega_moe(second, 8, 4, 2, 256, 128, device="cpu")


def test_ranks_are_at_least_two() -> None:
    with pytest.raises(ValueError, match="count must be at least 2, got 1"):
        simulator.ranks(1)
