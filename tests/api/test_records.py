"""Calls by named fields: quantise, routing and ranks' kernels, MoE layers, logits. (Products: test_product_record.py.)

A field that was read in another's place, or by nobody, would give a wrong result in silence. So each is left out here
in turn, and changed in turn.
"""

from __future__ import annotations

import ast
import struct
from pathlib import Path

import pytest
import torch

from deep_gemm import _extension, epilogue
from deep_gemm._extension import C

STUB = ast.parse((Path(__file__).resolve().parents[2] / "deep_gemm" / "_C.pyi").read_text())
FUNCTIONS = {node.name: node.args for node in STUB.body if isinstance(node, ast.FunctionDef)}


def bits(value: float) -> int:
    return struct.unpack("I", struct.pack("f", value))[0]


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def quantize() -> dict[str, object]:
    """Gates and ups of four rows, of which one does not exist."""
    x = torch.randn(4, 256, generator=torch.Generator().manual_seed(0)).bfloat16()
    return {
        "x": x,
        "layout": integers(0, 0, -1, 0),
        "q": torch.zeros(4, 128).to(torch.float8_e4m3fn),
        "s": torch.zeros(4, 1),
        "element": 4,
        "share": 0,
        "group": 128,
        "scales": 0,
        "rows": 1,
        "expected_m": 0,
        "gate": 1,
        "interleaved": 0,
        "limit_bits": bits(float("inf")),
        "alpha_bits": bits(1.0),
        "up_shift_bits": bits(0.0),
    }


def route() -> dict[str, object]:
    return {
        "ids": integers(1, 0, 0, 1, 1, 0).view(3, 2),
        **{name: torch.full((6 if name == "row_of" else 8,), -7, dtype=torch.int32) for name in ("row_of", "source")},
        **{name: torch.full((2,), -7, dtype=torch.int32) for name in ("ends", "counts")},
        "masked": 0,
        "alignment": 4,
    }


def gather_rows() -> dict[str, object]:
    x = torch.arange(6 * 16).view(6, 16).bfloat16()
    return {"x": x, "source": integers(2, -1, 5), "out": torch.full((3, 16), 9.0).bfloat16(), "choices": 1, "clear": 0}


def combine_rows() -> dict[str, object]:
    y = torch.arange(4 * 16).view(4, 16).bfloat16()
    return {"x": y, "row_of": integers(0, 1, 2, 3).view(2, 2), "out": torch.full((2, 16), 9.0).bfloat16()}


def pre_dispatch() -> dict[str, object]:
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(0)).bfloat16()
    return {
        "x": x,
        "ids": torch.arange(6).view(3, 2),
        "weights": torch.arange(6.0).view(3, 2),
        "factor_bits": bits(2.0),
        "q": torch.zeros(3, 128).to(torch.float8_e4m3fn),
        "s": torch.zeros(3, 1),
        "out_ids": torch.zeros(4, 2, dtype=torch.int64),
        "out_weights": torch.zeros(4, 2),
    }


def moe_layer() -> dict[str, object]:
    """Two experts of 8 rows each."""
    generator = torch.Generator().manual_seed(0)

    def fp8(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)

    return {
        "up": fp8(2, 256, 128),
        "up_scales": torch.ones(2, 2, 1),
        "down": fp8(2, 128, 128),
        "down_scales": torch.ones(2, 1, 1),
        "ends": integers(8, 136),
        "row_weights": torch.ones(136),
        "ready": torch.zeros(17, dtype=torch.int32),
        "expected_m": 8,
        "gate": epilogue.SwiGLU(layout="eights").record,
        "rows": fp8(136, 128),
        "row_scales": torch.ones(136, 1),
        "inner": torch.zeros(136, 128).to(torch.float8_e4m3fn),
        "inner_scales": torch.zeros(136, 1),
        "out": torch.zeros(136, 128).bfloat16(),
    }


class Part:
    """A rank's part of the shared memory, of which a call gets a copy's address."""

    def __init__(self) -> None:
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
        self.memory = memory


PLACES = {"ids_at": 1024, "weights_at": 1088, "x_at": 1152, "x_scales_at": 1120, "results_at": 1664}


def group() -> dict[str, object]:
    """Of one rank, with four tokens of 128 columns and two choices."""
    return {
        "rank": 0,
        "timeout_ns": 10**9,
        "parts": Part(),
        "part_bytes": 4096,
        **PLACES,
        "calls": integers(0),
    }


def exchange_choices() -> dict[str, object]:
    return group() | {
        "ids": torch.full((8, 2), 9, dtype=torch.int32)[:4],
        "row_weights": torch.full((4, 2), 9.0),
        "first_token": 0,
        "tokens": 4,
        "bound": 4,
        "experts": 2,
    }


def travel() -> dict[str, object]:
    return group() | {"source": integers(7, 0, -1, 2), "first_token": 0, "room": 4, "choices": 2}


def pull_rows() -> dict[str, object]:
    return travel() | {"out": torch.zeros(4, 128).to(torch.float8_e4m3fn), "out_scales": torch.zeros(4, 1)}


def push_rows() -> dict[str, object]:
    return travel() | {"down": torch.randn(4, 128, generator=torch.Generator().manual_seed(1)).bfloat16()}


def combine_results() -> dict[str, object]:
    return group() | {
        "calls": integers(1),  # this one, which pull_rows has counted
        "out": torch.full((4, 128), 9.0).bfloat16(),
        "choices": 2,
        "num_experts": 2,
    }


def queries() -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    return {
        "q": torch.randn(3, 8, 32, generator=generator).to(torch.float8_e4m3fn),
        "weights": torch.randn(3, 8, generator=generator),
        "cleaned": 0,
    }


def mqa_logits() -> dict[str, object]:
    return queries() | {
        "logits": torch.full((3, 16), 9.0),
        "keys": torch.randn(16, 32, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn),
        "scales": torch.ones(16),
        "first_keys": integers(2, 1, 0),
        "end_keys": integers(4, 16, 9),
        "compressed": 0,
    }


def paged_mqa_logits() -> dict[str, object]:
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
    for made in (
        quantize,
        route,
        gather_rows,
        combine_rows,
        pre_dispatch,
        moe_layer,
        mqa_logits,
        paged_mqa_logits,
        exchange_choices,
        pull_rows,
        push_rows,
        combine_results,
    )
}
HERE_UNSEEN = "seen by another family"
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
# What may stand in a field's place: a number, or what makes a tensor of the base's.
OTHERS = {
    "quantize": {
        "x": lambda x: -x,
        "layout": lambda _: integers(0, -1, -1, 0),
        "row_scale": lambda _: torch.full((4,), 2.0),
        "whole": lambda _: torch.ones(1),
        "q": lambda q: q.to(torch.bfloat16),
        "s": lambda s: s.int(),
        "zeros": lambda _: torch.zeros(4, dtype=torch.int64),
        "sums": lambda _: torch.zeros(4, dtype=torch.int64),
        "element": 6,
        "share": 2,
        "group": 32,
        "scales": 1,
        "rows": 2,
        "expected_m": 1 << 40,
        "gate": 2,
        "interleaved": 1,
        "limit_bits": bits(0.125),
        "alpha_bits": bits(2.0),
        "up_shift_bits": bits(1.0),
    },
    "route": {
        "ids": lambda ids: 1 - ids,
        "weights": lambda _: torch.ones(3, 2),
        "row_of": lambda row_of: row_of[1:],
        "source": lambda source: source[:4],
        "ends": lambda ends: ends[:1],
        "counts": lambda counts: counts.float(),
        "indices": lambda _: torch.zeros(8, dtype=torch.int32),
        "row_weights": lambda _: torch.zeros(8),
        "masked": 1,
        "alignment": 1,
    },
    "gather_rows": {
        "x": lambda x: x + 1,
        "scales": lambda _: torch.ones(6, 1),
        "source": lambda source: source.flip(0),
        "out": lambda out: out.float(),
        "out_scales": lambda _: torch.ones(3, 1),
        "choices": 2,
        "clear": 1,
    },
    "combine_rows": {
        "x": lambda x: x + 1,
        "weights": lambda _: torch.full((2, 2), 2.0),
        "row_of": lambda row_of: row_of.flip(0),
        "out": lambda out: out.float(),
    },
    "pre_dispatch": {
        "x": lambda x: -x,
        "ids": lambda ids: 1 - ids,
        "weights": lambda weights: -weights,
        "factor_bits": bits(3.0),
        "q": lambda q: q.bfloat16(),
        "s": lambda s: s.int(),
        "out_ids": lambda ids: ids[:, :1],
        "out_weights": lambda weights: weights[:, :1],
    },
    "moe_layer": {
        **{name: lambda tensor: tensor.double() for name in ("up", "up_scales", "down", "down_scales")},
        **{name: lambda tensor: tensor.double() for name in ("ends", "row_weights", "ready")},
        "expected_m": 1 << 40,
        "gate": (9, 9, 9, 9, 9),
        **{name: lambda tensor: tensor.double() for name in ("rows", "row_scales", "inner", "inner_scales", "out")},
    },
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


def outcome(family: str, record: dict[str, object]) -> object:
    """All that it writes, or what it says."""
    record = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in record.items()}
    written = [record.get(name) for name in _extension.BORROWING[family]]
    if isinstance(part := record.get("parts"), Part):
        memory = part.memory.clone()
        record["parts"], written = (memory.data_ptr(),), [*written, record["calls"], memory]
    try:
        getattr(C, family)(**record)
    except (TypeError, ValueError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return tuple(None if each is None else each.flatten().view(torch.uint8).tolist() for each in written)


@pytest.mark.parametrize("family", BASES)
def test_every_field_changes_what_a_call_does(family) -> None:
    base = BASES[family]()
    found = outcome(family, base)
    assert not isinstance(found, str), found
    assert [*OTHERS[family]] == getattr(C, f"{family}_fields")().split()
    for name, other in OTHERS[family].items():
        if other is HERE_UNSEEN:
            continue
        value = other(base.get(name)) if callable(other) else other
        assert outcome(family, base | {name: value}) != found, name


def test_every_field_of_a_group_is_seen_by_a_family() -> None:
    unseen = set(OTHER_GROUP) - {"timeout_ns"}
    for others in OTHERS.values():
        unseen -= {name for name, other in others.items() if other is not HERE_UNSEEN}
    assert not unseen


def test_a_layer_of_ranks_is_a_layer_that_travels() -> None:
    layer = [name for name in C.moe_layer_fields().split() if name != "out"]  # sent from registers
    travels = [name for name in C.push_rows_fields().split() if name != "down"]
    assert C.moe_layer_of_ranks_fields().split() == [*layer, *travels, "pulled"]


@pytest.mark.parametrize("family", _extension.BORROWING)
def test_what_may_be_left_out_is_what_the_stub_says(family) -> None:
    arguments = FUNCTIONS[family]
    assert [argument.arg for argument in arguments.kwonlyargs] == getattr(C, f"{family}_fields")().split()
    if family not in BASES:
        return
    needed = [a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    for name in needed:
        record = BASES[family]() | ({"parts": ()} if "parts" in needed else {})
        del record[name]
        with pytest.raises(TypeError, match=f"^{name} of {family} must be (a tensor|an integer|integers), got None"):
            getattr(C, family)(**record)


@pytest.mark.parametrize("family", _extension.BORROWING)
def test_fields_have_names(family) -> None:
    with pytest.raises(TypeError, match=f"{family} takes no argument 'e'"):
        getattr(C, family)(e=None)
    with pytest.raises(TypeError, match=f"{family} takes its arguments by their names only"):
        getattr(C, family)(None)


def test_versions_of_all_that_is_written_move() -> None:
    """Without, a backward pass that saved scales would compute with other ones."""
    record = quantize()
    before = {name: record[name]._version for name in ("q", "s", "x")}
    C.quantize(**record)
    assert {name: record[name]._version - count for name, count in before.items()} == {"q": 1, "s": 1, "x": 0}
