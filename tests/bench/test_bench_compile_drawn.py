"""compile_drawn.py writes down which kernels spill, are warned of or refused; count_sm100.py prints a table."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from compiled import Compiled
from drawn_problems import kind_of
from matrix import pairs
from packed_orders import PACKED
from result_file import read_result

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CLEAN = Compiled(registers=40, spill_bytes=0, stack_bytes=0, complaints="", error=None)
UNCLEAN = [
    Compiled(registers=255, spill_bytes=16, stack_bytes=8, complaints="", error=None),
    Compiled(registers=50, spill_bytes=0, stack_bytes=0, complaints="a warning", error=None),
    Compiled(registers=0, spill_bytes=0, stack_bytes=0, complaints="", error="refused"),
]


@pytest.fixture
def compile_drawn(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import compile_drawn

    yield compile_drawn
    sys.modules.pop("compile_drawn", None)


def run(compile_drawn, monkeypatch, folder: Path, planted: list[Compiled]) -> tuple[int, dict]:
    """Its status and its result, with planted results of the first kernels."""
    results = [*planted, *[CLEAN] * 1000]
    monkeypatch.setattr(compile_drawn, "compile_all", lambda texts, *_: [results.pop(0) for _ in texts])
    monkeypatch.setattr(sys, "argv", ["compile_drawn.py", "--count", "60", "--out", str(folder)])
    return compile_drawn.main(), read_result(folder / "sm100_compiled.json")


def test_a_clean_draw(compile_drawn, monkeypatch, tmp_path) -> None:
    status, result = run(compile_drawn, monkeypatch, tmp_path, [])
    assert status == 0
    assert (result["problems"], result["target"], result["not_clean"]) == (60, "sm_100a", [])
    assert 50 < result["kernels"] == sum(result["kernels_by_grouping"].values()) <= 60
    assert result["registers"] == {"most": 40, "median": 40}


def test_what_is_not_clean_is_counted_and_named(compile_drawn, monkeypatch, tmp_path) -> None:
    status, result = run(compile_drawn, monkeypatch, tmp_path, UNCLEAN)
    assert status == 1
    names = ("spill_or_use_the_stack", "warned_of", "refused_by_the_compiler")
    assert [result[name] for name in names] == [1, 1, 1]
    assert [each["said"] for each in result["not_clean"]] == ["", "a warning", "refused"]
    assert result["registers"] == {"most": 255, "median": 40}


def test_problems_of_sm120_meet_all_that_the_pair_table_has(compile_drawn) -> None:
    """And scales of both kinds, gates, quantised output, packed weights."""
    drawn = compile_drawn.problems_of("sm_120a", 1000, 1)
    assert drawn == compile_drawn.problems_of("sm_120a", 1000, 1) != compile_drawn.problems_of("sm_120a", 1000, 2)
    plain, weights = drawn[:750], drawn[750:]
    of_arch = [pair for pair in pairs() if pair.arch == "sm120"]
    wanted = {(p.a, p.b, *kind) for p in of_arch for kind in product(p.groupings, p.outputs)}
    assert {kind_of(problem) for problem in plain} == wanted
    names = {name for _, fields in plain for name, value in fields.items() if value}
    assert {"exponent_scales", "per_row_b", "gate", "quantised", "quantised_words", "add_c", "head_skipped"} <= names
    of_weights = {name for _, fields in weights for name in fields}
    assert set(PACKED) <= of_weights


def test_counts_are_tables() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "count_sm100.py")], capture_output=True, text=True, check=True
    )
    tables = [text.splitlines() for text in done.stdout.strip().split("\n\n")]
    assert [rows[0].split(" | ")[0] for _, _, *rows in tables] == ["| BF16", "| blocks"]
    for head, _, *rows in tables:
        assert all(row.count("|") == head.count("|") for row in rows)
