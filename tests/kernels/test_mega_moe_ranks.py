"""`fp8_mega_moe` with a group: simulated ranks that run together, their shared memory by the memory model."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import exchange
import layer_weights
import pytest
import torch
from fresh import copied_package, run
from grouped_inputs import alignment_of
from rank_layers import Layer

import deep_gemm
from deep_gemm import mega_moe_ranks, simulator
from deep_gemm.epilogue import SwiGLU
from deep_gemm.mega_moe_products import Products

# SMs of a rank, and how its buffer is made. Blocks that run at once are limited.
FORMS: dict[str, tuple[int, dict[str, Any]]] = {
    "launches": (1, {"persistent": False}),
    "launches in parts": (1, {"persistent": False, "tokens_at_once": 5}),
    "one launch": (2, {"persistent": True}),
    "one launch, a ring of rows": (2, {"persistent": True, "tokens_at_once": 1}),
}
TOKENS = ("eager", [5, 12]), ("random", [9, 0]), ("lazy", [4, 1, 7]), ("random", [1, 12, 0, 3])


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("weights", "schedule", "tokens"),
    [
        *((weights, *sizes) for weights in ("fp8", "int4", "e2m1") for sizes in TOKENS[:2]),
        *(("fp8", *sizes) for sizes in TOKENS[2:]),  # packed weights' quantise kernels have too many blocks
    ],
)
@pytest.mark.parametrize(
    ("target", "form"), [*(("sm_90a", form) for form in FORMS), ("sm_80", "launches"), ("sm_80", "launches in parts")]
)
def test_as_one_rank_does_it(target, form, weights, schedule, tokens) -> None:
    """Uneven ranks, choices of no expert, a rank without tokens; equal bits. A ring of rows is of one block, or few."""
    sms, more = FORMS[form]
    packed = weights != "fp8"  # pairs of CTAs quantise
    with simulator.options(num_sms=2 if packed else sms, target=target), alignment_of(16 if packed else 8):
        Layer(tokens, weights=weights).check(schedule, **more)


@pytest.mark.parametrize(
    ("target", "ranks", "weights", "persistent", "wanted"),
    [
        ("sm_90a", 2, "fp8", None, True),
        ("sm_90a", 2, "fp8", False, False),
        ("sm_90a", 2, "int4", None, False),
        ("sm_90a", 2, "int4", True, True),
        ("sm_90a", 1, "fp8", None, False),
        ("sm_90a", 1, "int4", True, True),
        ("sm_80", 2, "fp8", None, False),
    ],
)
def test_what_is_one_launch(target, ranks, weights, persistent, wanted) -> None:
    (l1, _), (l2, _) = layer_weights.made(weights, 4 // ranks, 256, 128, torch.device("cpu"))
    with simulator.options(target=target):
        group = simulator.ranks(2)[0] if ranks == 2 else None
        sizes = 4, 4, 2, 256, 128
        buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(group, *sizes, device="cpu", persistent=persistent)
    assert Products(l1, l2, buffer, SwiGLU()).in_one_launch == wanted


def test_many_rows_an_expert() -> None:
    """Tiles whose rows are tokens, in clusters that share them, and more of them than the ring holds."""
    with simulator.options(num_sms=2), alignment_of(64):
        Layer([88, 9], local=1, bound=160).check("random", persistent=True, tokens_at_once=10)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_calls_behind_each_other(schedule) -> None:
    """Buffers are written again as soon as the order allows it."""
    assert exchange.run([[5, 3, 0], [1, 5, 2]], schedule=schedule, seed=5) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weights", ["fp8", "e2m1"])
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_one_launch_again_and_again(schedule, weights) -> None:
    """As a graph replays it: counters are as they were, and bits are equal."""
    with simulator.options(num_sms=2), alignment_of(16):
        Layer([2, 1], local=1, bound=2, weights=weights).check(schedule, calls=3, persistent=True, tokens_at_once=1)


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
    "no barrier behind the wait for tokens": (CHOICES, "__syncthreads();", "", "race|uninitialised|call|warp sync"),
    "results not waited for": (RESULTS, "< ranks.count)\n        wait", "< 0)\n        wait", "race"),
    "no barrier behind the wait for results": (RESULTS, "__syncthreads();", "", "race"),
    "results of others told before they are sent": (
        FLAGS,
        "{ *ranks.calls = call_now(ranks, false); }",
        "{ *ranks.calls = call_now(ranks, false), tell_all(ranks, Phase::results, call_now(ranks, true), 0); }",
        "race|call",
    ),
    "calls that are not counted": (FLAGS, "{ *ranks.calls = call_now(ranks, false); }", "{}", "race|call"),
}
CALL = """
import exchange
result = []
for options in ({"schedule": "lazy"}, {"schedule": "random", "seed": 1}, {"schedule": "random", "seed": 2}):
    try:
        result += exchange.run([[5, 3], [1, 5]], **options)
    except RuntimeError as error:
        result.append(str(error))
    if result:
        break
"""


def outcome_of(tmp_path: Any, bug: tuple[str, str, str, str], call: str) -> list[str]:
    """What is reported by a package with that bug."""
    file, right, wrong, _ = bug
    header = tmp_path / "package" / "include" / "deep_gemm" / file
    edit = f"""
text = open({str(header)!r}).read()
assert text.count({right!r}) == 1, text.count({right!r})
open({str(header)!r}, "w").write(text.replace({right!r}, {wrong!r}))
"""
    outcome = run(copied_package(tmp_path / "package") + edit + call)
    assert outcome.status == 0, outcome.stderr
    return outcome.result


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path, bug) -> None:
    found = outcome_of(tmp_path, BUGS[bug], CALL)
    assert any(re.search(BUGS[bug][3], each) for each in found), found


COUNT, PULLED = "ptx/count.cuh", "moe/pulled_rows.cuh"
# Of the one launch.
LAYER_BUGS = {
    "counts that release nothing": (COUNT, "red.release.gpu.global", "red.relaxed.gpu.global", "race"),
    "counts that acquire nothing": (COUNT, "ld.acquire.gpu.global", "ld.relaxed.gpu.global", "race"),
    "rows counted before all lanes have brought theirs": (PULLED, "__syncwarp();  // all its lanes have", "", "race"),
    "rows that are not waited for": (PULLED, "while (ptx::load_acquire", "while (false && ptx::load_acquire", "race"),
    "one row too few": (PULLED, "wait_until(block, kRows);", "wait_until(block, kRows - 1);", "race"),
    "rows over others": (PULLED, "{ wait_until(block, 0); }", "{}", "race"),
    "rows over others that have come but were not read": (
        PULLED,
        "{ wait_until(block, 0); }",
        "{ if (block >= places()) wait_until(block - places(), kRows); }",
        "race",
    ),
    "a tile that says that it has read before it has": (
        "kernels/moe_layer_sm90.cuh",
        "        });\n        if (threadIdx.x < 32) reads",
        "            if (threadIdx.x < 32) reads.read(tiles.block_of_rows(tile));\n        });\n        if (0) reads",
        "race",
    ),
    "no proxy fence": (PULLED, "ptx::fence_memory_for_async_proxy();", "", "proxy fence"),
    "calls that are not counted": (FLAGS, "{ *ranks.calls = call_now(ranks, false); }", "{}", "race|deadlock"),
    "results at their neighbours' slots": ("moe/sent_rows.cuh", "line[col]", "line[col ^ 1]", "bits"),
}
LAYER_CALL = """
from rank_layers import Layer
import deep_gemm
from deep_gemm import simulator
deep_gemm.set_mk_alignment_for_contiguous_layout(8)
result = []
for schedule in ("random", "lazy"):
    try:
        with simulator.options(num_sms=2):
            Layer([3, 9]).check(schedule, persistent=True, tokens_at_once=1)
    except RuntimeError as error:
        result.append(str(error))
    except AssertionError:
        result.append("bits")
    if result:
        break
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bug", LAYER_BUGS)
def test_a_bug_planted_into_the_one_launch_is_found(tmp_path, bug) -> None:
    found = outcome_of(tmp_path, LAYER_BUGS[bug], LAYER_CALL)
    assert any(re.search(LAYER_BUGS[bug][3], each) for each in found), found


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


def test_a_rank_that_ends_within_a_call(capfd, monkeypatch) -> None:
    """It has told that its tokens are there, and never that it has sent its results."""
    layer, combine = Layer([3, 2], bound=4), mega_moe_ranks.combine
    with simulator.options(num_sms=1):
        group = simulator.ranks(2)
        buffers = [layer.buffer(rank, timeout_s=1e-3) for rank in group]
        for at, (rank, does) in enumerate(zip(group, (combine, lambda *_: None), strict=True)):
            monkeypatch.setattr(mega_moe_ranks, "combine", does)
            with rank:
                layer.call(buffers[at], at, at * layer.local, num_tokens_bound=4)
        with pytest.raises(RuntimeError, match="trap: on device 0: the kernel trapped"):
            group.run()
    assert fault_of(buffers[0]) == [2, 1, 1]
    wanted = "deep_gemm: fp8_mega_moe call 1: rank 0 waited for results of rank 1 for longer than 0.001 s\n"
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
        (None, {"tokens_at_once": 4}, "tokens_at_once must be None for one rank, got 4"),
        (simulator.ranks(2)[0], {"tokens_at_once": 0}, "tokens_at_once must be at least 1, got 0"),
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
