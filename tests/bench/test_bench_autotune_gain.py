"""autotune_gain.py: what is picked beside what DG_AUTOTUNE measures, of cases that are named or drawn."""

from __future__ import annotations

from pathlib import Path

import fresh
import pytest
from result_file import read_result

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "autotune_gain.py"


@pytest.mark.parametrize(
    ("cases", "name"),
    [
        (["--case", "dense,16,128,256"], "dense M <= 32"),
        (["--draw", "200", "--only", "^dense,1,"], "drawn, dense M <= 32"),
    ],
    ids=["named", "drawn"],
)
def test_both_are_timed_by_class(cases, name, tmp_path) -> None:
    arguments = ["--device", "cpu", "--calls", "1", "--out", str(tmp_path), *cases]
    # Of a drawn case none is timed: they are too large for the simulator.
    arguments += ["--seconds", "0"] if "--draw" in cases else []
    fresh.program(PROGRAM, *arguments, DG_JIT_CACHE_DIR=tmp_path / "cache")
    rows = read_result(tmp_path / "autotune.json")["rows"]
    assert rows
    assert {row["class"] for row in rows} == {name}
    if "--draw" not in cases:
        assert rows[0]["picked_us"] > 0
        assert rows[0]["tuned_us"] > 0
