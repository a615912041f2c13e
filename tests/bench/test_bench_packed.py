"""The tables of packed weights that docs/notes/packed-speed.md shows are those of the measured file."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from result_file import read_result

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("result", "part", "program"),
    [
        ("h200_packed", "packed", "bench_packed"),
        ("h200_humming", "humming", "bench_humming"),
        ("h100_packed", "packed experts", "bench_packed"),
        ("h100_packed_rest", "packed rest", "bench_packed"),
        ("h100_unpacked", "unpacked", "bench_unpacked"),
    ],
)
def test_the_tables_are_those_of_the_result(result, part, program, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tables = importlib.import_module(program).tables

    document = read_result(ROOT / "benchmarks" / "results" / f"{result}.json")
    text = (ROOT / "docs" / "notes" / "packed-speed.md").read_text()
    shown = text.split(f"<!-- begin {part} -->")[1].split(f"<!-- end {part} -->")[0]
    assert shown.strip() == tables(document).strip()
