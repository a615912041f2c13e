"""The cost model: its numpy copy agrees with selection, and its picks were near the best where that was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


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
    calibrate.print_regret(calibrate.cost_model.constants_of(data.configs), data, 0)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("regret"))
    assert float(line.split("mean ")[1].split(",")[0]) < 1.03, line


def blocks(calibrate, case: list, height: int) -> tuple[float, float]:
    """How many there are on average, and by what part of it they scatter."""
    model = calibrate.cost_model
    configs = model.Configs.of([(calibrate.sizes_of(case), (0, height, 128, 1, 1, 1, 1))], [4])
    mean, scatter = model.expected_blocks(configs, configs.rows)
    return float(mean[0]), float(scatter[0])


def test_blocks_scatter_where_experts_may_need_more_than_one(calibrate) -> None:
    """6 experts of 90 to 166 rows: one block of 192 each, but one or two of 128."""
    case = ["masked", 6, 128, 6144, 7168]
    assert blocks(calibrate, case, 192) == (6, 0)
    mean, scatter = blocks(calibrate, case, 128)
    assert 6 < mean < 12
    assert 0.05 < scatter < 0.5


def test_last_blocks_of_contiguous_experts_are_half_full(calibrate) -> None:
    """On average: of those that are higher than the alignment. Those of 64 rows without a token are left out."""
    case = ["contiguous", 5, 1024, 6144, 7168]
    of_alignment = blocks(calibrate, case, 128)[0]
    assert blocks(calibrate, case, 256) == (of_alignment / 2 + 5 / 4, 0)
    real, scatter = blocks(calibrate, case, 64)
    assert 2 * of_alignment - 5 < real < 2 * of_alignment
    assert scatter == 0


def test_rows_of_padding_are_no_steps(calibrate) -> None:
    """Experts of 45 to 83 rows: one or two times 64, and one by itself counts as two. Of 134 to 250: three or four."""
    model = calibrate.cost_model

    def steps(case: list) -> float:
        configs = model.Configs.of([(calibrate.sizes_of(case), (0, 256, 128, 1, 1, 1, 1))], [4])
        return float(model.expected_row_steps(configs)[0])

    assert steps(["masked", 10, 64, 6144, 7168]) == 10 * 2
    assert steps(["masked", 10, 192, 6144, 7168]) == pytest.approx(10 * (3 * 7 + 4 * 6) / 13)
    assert 3 * 64 < steps(["contiguous", 64, 192, 6144, 7168]) < 4 * 64
