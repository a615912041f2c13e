"""Calls by named fields: quantise and routing kernels. (Products: test_product_record.py.)

A field that was read in another's place, or by nobody, would give a wrong result in silence. So each is left out here
in turn, and changed in turn.
"""

from __future__ import annotations

import ast
import struct
from pathlib import Path

import pytest
import torch

from deep_gemm import _extension
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


BASES = {made.__name__: made for made in (quantize, route, gather_rows, combine_rows)}
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
}


def outcome(family: str, record: dict[str, object]) -> object:
    """All that it writes, or what it says."""
    record = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in record.items()}
    try:
        getattr(C, family)(**record)
    except (TypeError, ValueError) as error:
        return str(error).splitlines()[0]
    written = [record.get(name) for name in _extension.BORROWING[family]]
    return tuple(None if each is None else each.flatten().view(torch.uint8).tolist() for each in written)


@pytest.mark.parametrize("family", BASES)
def test_every_field_changes_what_a_call_does(family) -> None:
    base = BASES[family]()
    found = outcome(family, base)
    assert not isinstance(found, str), found
    assert [*OTHERS[family]] == getattr(C, f"{family}_fields")().split()
    for name, other in OTHERS[family].items():
        value = other(base.get(name)) if callable(other) else other
        assert outcome(family, base | {name: value}) != found, name


@pytest.mark.parametrize("family", _extension.BORROWING)
def test_what_may_be_left_out_is_what_the_stub_says(family) -> None:
    arguments = FUNCTIONS[family]
    assert [argument.arg for argument in arguments.kwonlyargs] == getattr(C, f"{family}_fields")().split()
    if family not in BASES:
        return
    needed = [a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    for name in needed:
        record = BASES[family]()
        del record[name]
        with pytest.raises(TypeError, match=f"^{name} of {family} must be an? (tensor|integer), got None"):
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
