"""The cost model: its numpy copy agrees with selection, and its picks were near the best where that was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def calibrate(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import calibrate

    yield calibrate
    for name in ("calibrate", "cost_model", "paths"):
        sys.modules.pop(name, None)


def test_numpy_and_selection_agree(calibrate) -> None:
    assert calibrate.check(None) == 0


def test_picks_are_near_the_best_measured(calibrate, capsys) -> None:
    data = calibrate.Data(*sorted((BENCHMARKS / "results").glob("calibration_h200*.json")))
    calibrate.print_regret(calibrate.cost_model.constants(), data, 0)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("regret"))
    assert float(line.split("mean ")[1].split(",")[0]) < 1.03, line
