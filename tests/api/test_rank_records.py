"""Calls by named fields: index logits, and the kernels by which tokens travel between ranks."""

from __future__ import annotations

import pytest
import torch
from records import HERE_UNSEEN, Part, Record, check_each_field_counts, check_needed_fields, fields_of, integers

PLACES = {"ids_at": 1024, "weights_at": 1088, "x_at": 1152, "x_scales_at": 1120, "results_at": 1664}


def part() -> Part:
    """Of one rank, with four tokens of 128 columns and two choices."""
    memory = torch.zeros(4096, dtype=torch.uint8)
    ids = torch.tensor([[0, 1], [-1, 1], [1, 0], [0, 0]])
    numbers = torch.Generator().manual_seed(0)
    for at, values in (
        (PLACES["ids_at"], ids),
        (PLACES["weights_at"], torch.arange(8.0)),
        (PLACES["x_at"], torch.randn(4, 128, generator=numbers).to(torch.float8_e4m3fn)),
        (PLACES["x_scales_at"], torch.arange(4.0)),
        (PLACES["results_at"], torch.randn(8, 128, generator=numbers).bfloat16()),
    ):
        flat = values.flatten().view(torch.uint8)
        memory[at : at + len(flat)] = flat
    return Part(memory)


def group() -> Record:
    """Of one rank, with four tokens of 128 columns and two choices."""
    return {
        "rank": 0,
        "timeout_ns": 10**9,
        "parts": part(),
        "part_bytes": 4096,
        **PLACES,
        "calls": integers(0),
    }


def exchange_choices() -> Record:
    return group() | {
        "ids": torch.full((8, 2), 9, dtype=torch.int32)[:4],
        "row_weights": torch.full((4, 2), 9.0),
        "first_token": 0,
        "tokens": 4,
        "bound": 4,
        "experts": 2,
    }


def travel() -> Record:
    return group() | {"source": integers(7, 0, -1, 2), "first_token": 0, "room": 4, "choices": 2}


def pull_rows() -> Record:
    return travel() | {"out": torch.zeros(4, 128).to(torch.float8_e4m3fn), "out_scales": torch.zeros(4, 1)}


def push_rows() -> Record:
    return travel() | {"down": torch.randn(4, 128, generator=torch.Generator().manual_seed(1)).bfloat16()}


def combine_results() -> Record:
    return group() | {
        "calls": integers(1),  # this one, which pull_rows has counted
        "out": torch.full((4, 128), 9.0).bfloat16(),
        "choices": 2,
        "num_experts": 2,
    }


def queries() -> Record:
    generator = torch.Generator().manual_seed(0)
    return {
        "q": torch.randn(3, 8, 32, generator=generator).to(torch.float8_e4m3fn),
        "weights": torch.randn(3, 8, generator=generator),
        "cleaned": 0,
    }


def mqa_logits() -> Record:
    return queries() | {
        "logits": torch.full((3, 16), 9.0),
        "keys": torch.randn(16, 32, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn),
        "scales": torch.ones(16),
        "first_keys": integers(2, 1, 0),
        "end_keys": integers(4, 16, 9),
        "compressed": 0,
    }


def paged_mqa_logits() -> Record:
    keys = torch.randn(2 * 32, 32, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn)
    blocks = torch.cat((keys.view(torch.uint8).view(2, -1), torch.ones(2, 32).view(torch.uint8)), 1)
    base = queries()
    return base | {
        "q": base["q"].view(3, 1, 8, 32),
        "logits": torch.full((3, 64), 9.0),
        "cache": blocks.view(2, 32, 1, 36),
        "lengths": integers(5, 40, 64),
        "block_table": integers(0, 1, 1, 0, 0, 1).view(3, 2),
    }


BASES = {
    made.__name__: made
    for made in (mqa_logits, paged_mqa_logits, exchange_choices, pull_rows, push_rows, combine_results)
}
# The timeout: test_mega_moe_ranks.py reads it in what a rank says that waited in vain.
OTHER_GROUP = {
    "rank": 1,
    "timeout_ns": HERE_UNSEEN,
    "parts": lambda _: (),
    "part_bytes": 8,
    **dict.fromkeys(PLACES, HERE_UNSEEN),
    "calls": lambda calls: calls + 5,
}
OTHER_TRAVEL = OTHER_GROUP | {
    "source": lambda source: source.flip(0),
    "first_token": 1,
    "room": 2,
    "choices": 1,
}
OTHER_QUERIES = {
    "q": lambda q: q.flip(0),
    "q_scales": lambda _: integers(1),
    "weights": lambda weights: -weights,
    "logits": lambda logits: logits.int(),
    "cleaned": 1,
}
OTHERS = {
    "mqa_logits": OTHER_QUERIES
    | {
        "keys": lambda keys: keys.flip(0),
        "scales": lambda scales: -scales,
        "first_keys": lambda _: integers(0, 0, 0),
        "end_keys": lambda _: integers(4, 16, 16),
        "compressed": 1,
    },
    "paged_mqa_logits": OTHER_QUERIES
    | {
        "cache": lambda cache: cache.flip(0),
        "lengths": lambda _: integers(5, 40, 40),
        "block_table": lambda table: table.flip(1),
    },
    "exchange_choices": OTHER_GROUP
    | {
        "ids_at": PLACES["ids_at"] + 8,
        "weights_at": PLACES["weights_at"] + 8,
        "ids": lambda ids: ids[:2],
        "row_weights": lambda weights: weights.int(),
        "first_token": 1,
        "tokens": 2,
        "bound": 3,
        "experts": 1,
    },
    "pull_rows": OTHER_TRAVEL
    | {
        "x_at": PLACES["x_at"] + 128,
        "x_scales_at": PLACES["x_scales_at"] + 4,
        "out": lambda out: out.float(),
        "out_scales": lambda scales: scales.int(),
    },
    "push_rows": OTHER_TRAVEL
    | {"calls": HERE_UNSEEN, "results_at": PLACES["results_at"] + 256, "down": lambda down: -down},
    "combine_results": OTHER_GROUP
    | {
        "ids_at": PLACES["ids_at"] + 8,
        "results_at": PLACES["results_at"] + 256,
        "out": lambda out: out.float(),
        "choices": 1,
        "num_experts": 1,
    },
}


@pytest.mark.parametrize("family", BASES)
def test_every_field_changes_what_a_call_does(family) -> None:
    check_each_field_counts(family, BASES[family], OTHERS[family])


@pytest.mark.parametrize("family", BASES)
def test_what_may_be_left_out_is_what_the_stub_says(family) -> None:
    check_needed_fields(family, BASES[family])


def test_every_field_of_a_group_is_seen_by_a_family() -> None:
    unseen = set(OTHER_GROUP) - {"timeout_ns"}
    for others in OTHERS.values():
        unseen -= {name for name, other in others.items() if other is not HERE_UNSEEN}
    assert not unseen


def test_a_layer_of_ranks_is_a_layer_that_travels() -> None:
    layer = [name for name in fields_of("moe_layer") if name != "out"]  # sent from registers
    travels = [name for name in fields_of("push_rows") if name != "down"]
    assert fields_of("moe_layer_of_ranks") == [*layer, *travels, "pulled"]
