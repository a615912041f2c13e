"""Calls by named fields, of which tests leave out each in turn, and change each in turn.

A field that was read in another's place, or by nobody, would give a wrong result in silence.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from deep_gemm import _extension
from deep_gemm._extension import C

Record = dict[str, object]
STUB = ast.parse((Path(__file__).resolve().parents[2] / "deep_gemm" / "_C.pyi").read_text())
FUNCTIONS = {node.name: node.args for node in STUB.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
HERE_UNSEEN = "seen by another family"


def bits(value: float) -> int:
    return struct.unpack("I", struct.pack("f", value))[0]


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Part:
    """A rank's part of the shared memory, of which a call gets a copy's address."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory


def stub_fields(family: str) -> dict[str, tuple[str, bool]]:
    """Each field's annotation, and whether a call needs it, as the stub has them: arguments, or a class of them."""
    arguments = FUNCTIONS[family]
    if arguments.kwarg is not None:
        return _fields_of_class(ast.unparse(arguments.kwarg.annotation).removeprefix("Unpack[").removesuffix("]"))
    given = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {each.arg: (ast.unparse(each.annotation), default is None) for each, default in given}


def _fields_of_class(name: str) -> dict[str, tuple[str, bool]]:
    fields = {}
    for base in CLASSES[name].bases:
        fields |= _fields_of_class(base.id) if base.id in CLASSES else {}
    for each in CLASSES[name].body:
        if isinstance(each, ast.AnnAssign):
            kind = ast.unparse(each.annotation)
            fields[each.target.id] = kind, not kind.startswith("NotRequired")
    return fields


def fields_of(family: str) -> list[str]:
    return getattr(C, f"{family}_fields")().split()


def outcome(family: str, record: Record) -> object:
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


def check_each_field_counts(family: str, made: Callable[[], Record], others: Mapping[str, object]) -> None:
    """`others`: what may stand in a field's place, a number, or what makes a tensor of the base's."""
    base = made()
    found = outcome(family, base)
    assert not isinstance(found, str), found
    assert [*others] == fields_of(family)
    for name, other in others.items():
        if other is HERE_UNSEEN:
            continue
        value = other(base.get(name)) if callable(other) else other
        assert outcome(family, base | {name: value}) != found, name


def check_needed_fields(family: str, made: Callable[[], Record]) -> None:
    """What may be left out is what the stub says."""
    needed = [name for name, (_, is_needed) in stub_fields(family).items() if is_needed]
    for name in needed:
        record = made() | ({"parts": ()} if "parts" in needed else {})
        del record[name]
        with pytest.raises(TypeError, match=f"^{name} of {family} must be (a tensor|an integer|integers), got None"):
            getattr(C, family)(**record)
