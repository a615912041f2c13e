"""autotune_gain.py: what is picked beside what DG_AUTOTUNE measures, of cases that are named or drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    command = [sys.executable, str(PROGRAM), "--device", "cpu", "--calls", "1", "--out", str(tmp_path), *cases]
    # Of a drawn case none is timed: they are too large for the simulator.
    command += ["--seconds", "0"] if "--draw" in cases else []
    environment = os.environ | {"DG_JIT_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    rows = json.loads((tmp_path / "autotune.json").read_text())["rows"]
    assert rows
    assert {row["class"] for row in rows} == {name}
    if "--draw" not in cases:
        assert rows[0]["picked_us"] > 0
        assert rows[0]["tuned_us"] > 0
