"""Hopper's cost model: its picks were near the best where that was measured; how many blocks it expects of experts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
SOURCE = """
#include "config/sm90/cost.hpp"
#include <cstdio>
using namespace deep_gemm;
int main() {
    Problem few, five;
    few.grouping = Grouping::masked, few.m = 1024, few.num_groups = 6, few.expected_m = 128;
    five.grouping = Grouping::m_contiguous, five.m = 5120, five.num_groups = 5;
    for (const Problem& p : {few, five})
        for (const int32_t height : {64, 128, 192, 256}) {
            const ExpectedBlocks blocks = sm90::expected_tiles(p, height);
            std::printf("%.9g %.9g\\n", blocks.mean, blocks.scatter);
        }
    Problem ten;
    ten.grouping = Grouping::masked, ten.m = 1024, ten.num_groups = 10;
    for (const int32_t rows : {64, 192}) {
        ten.expected_m = rows;
        std::printf("%.9g 0\\n", sm90::expected_row_steps(ten));
    }
}
"""


@pytest.fixture
def fit(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import fit

    yield fit
    for name in ("fit", "paths"):
        sys.modules.pop(name, None)


def test_picks_are_near_the_best_measured(fit, capsys) -> None:
    data = fit.Data(*sorted((BENCHMARKS / "results").glob("calibration_h200*.json")))
    fit.print_regret({}, data, 0)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("regret"))
    assert float(line.split("mean ")[1].split(",")[0]) < 1.03, line


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> list[tuple[float, float]]:
    """What SOURCE prints: blocks and how much they scatter."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("blocks")
    (folder / "blocks.cpp").write_text(SOURCE)
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'deep_gemm' / 'include'}"]
    sources = ["blocks.cpp", ROOT / "csrc/util/require.cpp"]
    subprocess.run(["g++", "-std=c++20", *include, *sources, "-o", "blocks"], cwd=folder, check=True)
    run = subprocess.run([folder / "blocks"], check=True, capture_output=True, text=True)
    return [tuple(map(float, line.split())) for line in run.stdout.splitlines()]


def test_blocks_scatter_where_experts_may_need_more_than_one(expected) -> None:
    """6 experts of 90 to 166 rows: one block of 192 each, but one or two of 128."""
    _, (mean, scatter), of_192, _ = expected[:4]
    assert of_192 == (6, 0)
    assert 6 < mean < 12
    assert 0.05 < scatter < 0.5


def test_last_blocks_of_contiguous_experts_are_half_full(expected) -> None:
    """On average: of those that are higher than the alignment. Those of 64 rows without a token are left out."""
    (real, scatter), (of_alignment, _), _, of_256 = expected[4:8]
    assert of_256 == (of_alignment / 2 + 5 / 4, 0)
    assert 2 * of_alignment - 5 < real < 2 * of_alignment
    assert scatter == 0


def test_rows_of_padding_are_no_steps(expected) -> None:
    """Experts of 45 to 83 rows: one or two times 64, and one by itself counts as two. Of 134 to 250: three or four."""
    (few, _), (many, _) = expected[8:]
    assert few == 10 * 2
    assert many == pytest.approx(10 * (3 * 7 + 4 * 6) / 13)
