"""Calibration's own parts: the problems' order, kernels compiled ahead, and a measurement of each kind (simulated)."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deep_gemm._targets import HOPPER_SMS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SMALL = [
    ["dense", 16, 256, 512],
    ["wgrad", 64, 256, 256],
    ["contiguous", 2, 100, 256, 256],
    ["masked", 2, 40, 256, 256],
    ["kgrouped", 2, 128, 192, 256],
]


@pytest.fixture
def calibrate(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import calibrate

    yield calibrate
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).parent == BENCHMARKS:
            del sys.modules[name]


def test_configs_that_selection_has_no_more_do_not_count(calibrate, tmp_path) -> None:
    rows = [[0, 128, 192, 1, 1, 1, 1, 30.0], [0, 128, 160, 1, 1, 1, 1, 20.0], [0, 128, 192, 2, 2, 1, 1, 10.0]]
    document = {"columns": calibrate.COLUMNS, "machine": {}}
    path = tmp_path / "calibration.json"
    calibrate.write(document | {"problems": [{"case": ["masked", 6, 1024, 4096, 4096], "rows": rows}]}, path)
    data = calibrate.Data(path)
    assert data.us.tolist() == data.best.tolist() == [30.0]  # no 128x160 for experts, no clusters of four


def test_any_beginning_of_the_problems_has_all_kinds(calibrate) -> None:
    cases = calibrate.ordered(list(calibrate.KINDS))
    assert len({tuple(case) for case in cases}) == len(cases)
    one_round = sum(calibrate.TURNS.values())
    assert {case[0] for case in cases[:one_round]} == set(calibrate.KINDS)


@pytest.mark.parametrize(
    "case", [*SMALL, ["dense", 4096, 7168, 2048], ["masked", 32, 20, 4096, 4096], ["bf16", 512, 2112, 7168]], ids=str
)
def test_kernels_of_forced_configs(calibrate, case) -> None:
    from predict import candidates

    sizes = calibrate.sizes_of(case)
    best, *others = candidates(sizes)
    ((_, ahead),) = calibrate.kernels_of(sizes, HOPPER_SMS, [best])
    swapped, rows, cols = best.config[:3]
    assert f".swap_ab = {'true' if swapped else 'false'}" in ahead
    k = 64 if case[0] == "bf16" else 128
    assert f".tile = {{.rows = {rows}, .cols = {cols}, .k = {k}}}" in ahead
    assert f".stages = {best.stages}," in ahead
    assert len(calibrate.kernels_of(sizes, HOPPER_SMS, [best, others[-1]])) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", [*SMALL, ["bf16", 16, 256, 512]], ids=str)
def test_calls_find_what_was_compiled_ahead(case, tmp_path) -> None:
    """In a fresh process: kernels that this one has loaded would not be looked for."""
    program = f"""
import sys
sys.path[:0] = [{str(BENCHMARKS)!r}]
import paths, torch
from compile_ahead import compile_ahead
from deep_gemm._extension import C
from problems import build
assert compile_ahead([({case}, None)], on_gpu=False) == 1
compiled = C.jit_statistics()["compiled"]
build({case}, torch.device("cpu")).call()
assert compiled == 1 == C.jit_statistics()["compiled"], (compiled, C.jit_statistics())
"""
    environment = os.environ | {"DG_JIT_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_measures_every_kind(calibrate, tmp_path, monkeypatch, capsys) -> None:
    arguments = ["calibrate.py", "measure", "--device", "cpu", "--calls", "1", "--most", "2", "--out", str(tmp_path)]
    for case in SMALL:
        arguments += ["--case", json.dumps(case)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert calibrate.main() == 0
    found = int(re.search(r"found (\d+) compiled ahead", capsys.readouterr().out)[1])
    assert found >= 2 * len(SMALL)  # the calls found every kernel under its very name
    document = importlib.import_module("machine").read_calibration(tmp_path / "calibration.json")
    assert [problem["case"] for problem in document["problems"]] == SMALL
    for problem in document["problems"]:
        assert len(problem["rows"]) == 2
        assert problem["difference"] < 1e-3
    data = calibrate.Data(tmp_path / "calibration.json")
    calibrate.print_regret({}, data, len(SMALL))
    assert "kgrouped" in capsys.readouterr().out


@pytest.mark.parametrize("kinds", [[], ["--kinds", "bf16"]], ids=["fp8", "bf16"])
def test_fits_the_operands_apart(calibrate, kinds, monkeypatch, capsys) -> None:
    file = str(BENCHMARKS / "results" / "calibration_h200_drawn.json")
    monkeypatch.setattr(sys, "argv", ["calibrate.py", "fit", file, *kinds, "--seconds", "0.1"])
    assert calibrate.main() == 0
    printed = capsys.readouterr().out
    start = calibrate.Data(Path(file), kinds=("bf16",) if kinds else ("dense",)).constants()
    found = {name: float(value) for name, value in re.findall(r"double (\w+) = ([\d.e+-]+);", printed)}
    assert set(found) == set(start)
    assert found["promote_cycles"] == pytest.approx(start["promote_cycles"], rel=1e-3) or not kinds
    assert " dense " in printed or kinds


def test_fits_the_constants_that_were_named(calibrate, monkeypatch, capsys) -> None:
    file = str(BENCHMARKS / "results" / "calibration_h200_drawn.json")
    arguments = ["calibrate.py", "fit", file, "--kinds", "wgrad", "--seconds", "0.3", "--constants"]
    monkeypatch.setattr(sys, "argv", [*arguments, "added_gb_per_s,launch_us"])
    assert calibrate.main() == 0
    start = calibrate.Data(Path(file)).constants()
    found = re.findall(r"double (\w+) = ([\d.e+-]+);", capsys.readouterr().out)
    changed = {name for name, value in found if float(value) != pytest.approx(start[name], rel=1e-3)}
    assert len(found) == len(start)
    assert changed <= {"added_gb_per_s", "launch_us"}
    monkeypatch.setattr(sys, "argv", [*arguments, "lunch_us"])
    with pytest.raises(ValueError, match="no lunch_us"):
        calibrate.main()
