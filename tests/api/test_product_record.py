"""A product's record: what Python names, and the key that a call is known again by, made of all of it.

A field that the key left out would launch what was launched before, in silence. So each is changed here in turn.
"""

from __future__ import annotations

import pytest
import torch
from inputs import random_blocks, random_rows
from records import stub_fields
from reference import assert_matches, product_nt

from deep_gemm._extension import C

FIELDS = C.product_fields().split()
ANNOTATIONS = {name: annotation for name, (annotation, _) in stub_fields("product").items()}


def key_of(record: dict[str, object]) -> bytes:
    return bytes(C.product_key(*[record.get(name) for name in FIELDS]))


def values_of(annotation: str) -> list[object]:
    """Of a field: different ones, each of which is something else to a kernel."""
    if annotation.startswith("Tensor"):
        memory = torch.zeros(64)
        same_address = [memory, memory[:32], memory.view(torch.int32), memory.view(8, 8), memory.view(8, 8).T[:, :4]]
        return [*same_address, memory.view(8, 8)[:, :4].T, memory[1:], memory.as_strided((8, 8), (1, 8))]
    if annotation.startswith("Sequence"):
        return [[1], [2], [1, 1], [0], []]
    return [0, 1, -1, 1 << 40]


BASE = {"a": torch.zeros(2, 3), "b": torch.zeros(4, 3), "d": torch.zeros(2, 4)}


def test_every_field_is_in_the_key() -> None:
    """None of them is left out on purpose, either."""
    keys = [key_of(BASE)]
    assert keys[0] == key_of(dict(BASE))
    for name in FIELDS:
        keys += [key_of(BASE | {name: value}) for value in values_of(ANNOTATIONS[name])]
        assert len(set(keys)) == len(keys), name


def test_a_value_is_not_the_same_in_another_field() -> None:
    for kind in ("Tensor | None", "int | None", "Sequence[int] | None"):
        value = values_of(kind)[0]
        same = [name for name in FIELDS if ANNOTATIONS[name] == kind]
        keys = {key_of({**BASE, name: value}) for name in same}
        assert len(keys) == len(same) > 3


@pytest.mark.parametrize(
    "fields",
    [{"c": torch.zeros(1, 1, 1, 1, 1)}, {"recipe": [0] * 13}, {"c": 1}, {"layout": torch.zeros(1)}, {"gate": 5}],
    ids=["five dimensions", "many numbers", "a number for a tensor", "a tensor for a number", "a number for numbers"],
)
def test_what_no_key_can_say_has_none(fields) -> None:
    with pytest.raises(ValueError, match="nothing knows this call again"):
        key_of(BASE | fields)


def test_names_that_python_makes_while_it_runs() -> None:
    """Neither the same tuple of names comes again, nor the same strings."""
    (a, a_scales), (b, b_scales) = random_rows((24, 256), "cpu", 0), random_blocks((136, 256), "cpu", 1)
    d = torch.empty(24, 136).bfloat16()
    given = {"a": a, "a_scales": a_scales, "b": b, "b_scales": b_scales, "d": d, "layout": 6}
    for turn in range(4):
        d.fill_(float("nan"))
        names = [*given] if turn % 2 else [*reversed(given)]
        assert C.product(**{"".join(list(name)): given[name] for name in names}) is True
        assert_matches(d, product_nt((a, a_scales), (b, b_scales)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d": None}, "a product's record must have a, b and d"),
        ({"batched_form": 0, "bias": torch.zeros(4)}, "bias must be None where products are batched"),
        ({"batched_form": 0, "head_splits": (1, 2, 3)}, "head_splits must be None where products are grouped"),
        ({"masked_m": torch.zeros(1, dtype=torch.int32), "c": torch.zeros(4)}, "c must be None where products are of"),
        ({"ks": [16]}, "grouped_layout must be there where products are grouped along K"),
        ({"batched_form": 7}, "no expression has the number 7"),
    ],
)
def test_what_a_grouping_has_no_place_for_is_refused(fields, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        C.product(**BASE | fields)
