"""The first day on a Blackwell: its parts run, in small and on the simulator, and its report says what came of them."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from estimates import constants_of, estimates_of

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
CASES = [["dense", 16, 7168, 16384], ["dense", 4096, 4096, 7168], ["masked", 32, 20, 4096, 7168]]
FOLDER = BENCHMARKS / "first_day"


def executable(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def part(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", ["sm_100f", "sm_120a"])
def test_a_rehearsal_ends_with_a_report(tmp_path, target) -> None:
    out = tmp_path / "day"
    environment = os.environ | {"FIRST_DAY": "rehearsal", "PARTS": "formats calibrate fit", "PYTHON": sys.executable}
    environment["DG_SIM_TARGET"] = target
    command = [str(BENCHMARKS / "blackwell_first_day.sh"), str(out), "abc123"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split("\t")[::2] for line in (out / "parts.txt").read_text().splitlines()] == [
        ["formats", "0"],
        ["calibrate", "0"],
        ["fit", "0"],
    ]
    report = (out / "report.md").read_text()
    times = json.loads((out / "formats.json").read_text())["rows"][0]["us"]
    assert isinstance(times["FP8, UE8M0 per 32"], float)
    assert all(f"| {name} |" in report for name in times)
    fitted = constants_of("dense", {"m": 16, "n": 256, "k": 512}, target)
    assert all(f"| {name} |" in report for name in fitted)
    assert "## Public cases\n\nmissing" in report
    assert out.with_suffix(".tar.gz").stat().st_size > 0


def test_its_setup_installs_what_the_fit_needs_at_its_pin(tmp_path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "third_party", clone / "third_party")
    (clone / "benchmarks").symlink_to(BENCHMARKS)
    (clone / "third_party" / "requirements-benchmarks.txt").write_text("no-such-package-of-ours>=1\n")
    pip = 'case "$*" in "-m pip install "*) echo "installed: $*"; exit 0 ;; esac'
    executable(clone / "develop.sh", 'echo "develop.sh $*"')
    executable(clone / "python", pip, f'exec {sys.executable} "$@"')
    environment = os.environ | {"PARTS": "setup", "PYTHON": str(clone / "python")}
    environment.pop("FIRST_DAY", None)
    script = str(clone / "benchmarks" / "blackwell_first_day.sh")
    subprocess.run([script, str(tmp_path / "day"), "abc123"], env=environment, capture_output=True, check=True)
    log = (tmp_path / "day" / "setup.log").read_text()
    assert "develop.sh test " in log
    assert re.search(
        "installed: .*--constraint third_party/constraints.txt no-such-package-of-ours>=1$", log, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("target", "memory"), [("sm_100f", {"memory_gb_per_s": 5000.0}), ("sm_80", {"memory_bytes_per_cycle": 10.0})]
)
def test_a_fit_finds_the_constants_that_made_the_times(part, target, memory) -> None:
    fit = part("fit")
    true = {"launch_us": 5.0, "l2_bytes_per_cycle": 48.0, **memory}
    problems = []
    for case in CASES:
        grouping, fields = fit.fields_of(fit.sizes_of(case), 148)
        us = estimates_of(grouping, fields, target, true)
        problems.append(fit.Problem(case, grouping, fields, target, us))
    before, after = fit.summary(problems, {}), fit.summary(problems, fit.fit(problems, 1.5, 0))
    assert after["loss"] < before["loss"] / 20
    assert after["mean_regret"] <= before["mean_regret"]


def test_a_file_that_does_not_say_its_target_is_refused(part, tmp_path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"machine": {"num_sms": 148}, "problems": []}))
    with pytest.raises(SystemExit, match=r"must say num_sms and target"):
        part("fit").problems_of([path])


def test_configs_are_named_as_the_library_names_them(part) -> None:
    fit = part("fit")
    grouping, fields = fit.fields_of(fit.sizes_of(CASES[1]), 148)
    assert fit.text_of([0, 128, 224, 2, 1, 1, 1]) in estimates_of(grouping, fields, "sm_100f", {})


def test_failed_tests_are_told_and_run_again_alone(part, tmp_path, monkeypatch) -> None:
    correctness = part("correctness")
    monkeypatch.setattr(correctness, "ROOT", tmp_path)
    path = tmp_path / "test_some.py"
    path.write_text("def test_right(): pass\ndef test_wrong(): assert 1 == 2, 'one is not two'\n")
    arguments = correctness.argparse.Namespace(pick=[], workers=0, file_seconds=60)
    row = correctness.check(path, arguments, correctness.time.monotonic() + 100)
    assert (row["ended"], row["passed"], row["failed"]) == ("ok", 1, 1)
    (failure,) = row["failures"]
    assert (failure["test"], failure["alone"]) == ("test_some.py::test_wrong", "failed")
    assert "one is not two" in failure["message"]


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("ERROR SUMMARY: 0 errors", 0),
        ("ERROR SUMMARY: 3 errors", 3),
        ("RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)", 2),
        ("nothing of that kind", None),
    ],
)
def test_reports_of_a_sanitizer_are_counted(part, tmp_path, line, reported) -> None:
    program = tmp_path / "compute-sanitizer"
    says = ("========= COMPUTE-SANITIZER", f"========= {line}", "5 passed in 1s")
    executable(program, *(f"echo '{each}'" for each in says))
    row = part("hazards").run(str(program), "memcheck", 1, 20)
    assert row["reported"] == reported
    assert row["tests"] == "5 passed in 1s"


def test_an_empty_folder_has_nothing_that_was_measured(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "report.py"), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\nmissing\n") == 8
    assert "no fit" in done.stdout
