"""benchmarks/all.sh: the programs that it runs exist and know the options that it gives them."""

from __future__ import annotations

import re
from pathlib import Path

import fresh
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RUNS = re.findall(r"^run (\w+) \d+ (\S+\.py)(.*)$", (BENCHMARKS / "all.sh").read_text(), re.MULTILINE)


def test_runs_are_found() -> None:
    assert {"gemm", "host", "micro"} <= {name for name, _, _ in RUNS}


@pytest.mark.parametrize(("program", "arguments"), [run[1:] for run in RUNS], ids=[run[0] for run in RUNS])
def test_options_are_known(program: str, arguments: str) -> None:
    shown = fresh.program(BENCHMARKS / program, "--help")
    for option in ["--out", "--commit", *re.findall(r"--[\w-]+", arguments)]:
        assert re.search(rf"{option}\b", shown), f"{program} has no {option}"
