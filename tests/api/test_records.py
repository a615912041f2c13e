"""Calls by named fields: quantise and routing kernels, MoE layers; and of all families what their fields' names are.

Products: test_product_record.py; logits and ranks: test_rank_records.py.
"""

from __future__ import annotations

import pytest
import torch
from records import Record, bits, check_each_field_counts, check_needed_fields, fields_of, integers, stub_fields

from deep_gemm import _extension, epilogue
from deep_gemm._extension import C


def quantize() -> Record:
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


def route() -> Record:
    return {
        "ids": integers(1, 0, 0, 1, 1, 0).view(3, 2),
        **{name: torch.full((6 if name == "row_of" else 8,), -7, dtype=torch.int32) for name in ("row_of", "source")},
        **{name: torch.full((2,), -7, dtype=torch.int32) for name in ("ends", "counts")},
        "masked": 0,
        "alignment": 4,
    }


def gather_rows() -> Record:
    x = torch.arange(6 * 16).view(6, 16).bfloat16()
    return {"x": x, "source": integers(2, -1, 5), "out": torch.full((3, 16), 9.0).bfloat16(), "choices": 1, "clear": 0}


def combine_rows() -> Record:
    y = torch.arange(4 * 16).view(4, 16).bfloat16()
    return {"x": y, "row_of": integers(0, 1, 2, 3).view(2, 2), "out": torch.full((2, 16), 9.0).bfloat16()}


def pre_dispatch() -> Record:
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


def moe_layer() -> Record:
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


BASES = {made.__name__: made for made in (quantize, route, gather_rows, combine_rows, pre_dispatch, moe_layer)}
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
        **{
            f"{name}{part}": other
            for name in ("up", "down")
            for part, other in {
                **dict.fromkeys(("", "_scales"), lambda tensor: tensor.double()),
                **dict.fromkeys(("_second_scales", "_zeros"), lambda _: torch.ones(2, 128)),
                "_packing": (1, 256, 128, 0, 0, 0),
            }.items()
        },
        **{name: lambda tensor: tensor.double() for name in ("ends", "row_weights", "ready")},
        "expected_m": 1 << 40,
        "gate": (9, 9, 9, 9, 9),
        **{name: lambda tensor: tensor.double() for name in ("rows", "row_scales", "inner", "inner_scales", "out")},
    },
}


@pytest.mark.parametrize("family", BASES)
def test_every_field_changes_what_a_call_does(family) -> None:
    check_each_field_counts(family, BASES[family], OTHERS[family])


@pytest.mark.parametrize("family", BASES)
def test_what_may_be_left_out_is_what_the_stub_says(family) -> None:
    check_needed_fields(family, BASES[family])


@pytest.mark.parametrize("family", _extension.BORROWING)
def test_fields_are_those_of_the_stub(family) -> None:
    assert [*stub_fields(family)] == fields_of(family)


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
