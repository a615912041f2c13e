"""python -m deep_gemm: what it prints, and its exit status. Its larger commands have files of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import refuse, succeed
from devices import why_no_gpu

import deep_gemm
from deep_gemm._targets import AMPERE_TARGET, BLACKWELL_TARGET, GPUS, HOPPER_TARGET

ROOT = Path(deep_gemm.__file__).resolve().parent.parent


def test_version() -> None:
    assert succeed("--version") == f"deep_gemm {deep_gemm.__version__}\n"


def test_doctor_names_what_it_found() -> None:
    printed = succeed("doctor")
    assert deep_gemm.__version__ in printed
    for name in ("GPU", "driver", "compiler", "targets", "simulator", "cache"):
        assert f"  {name} " in printed


def test_doctor_knows_targets_and_what_the_simulator_is() -> None:
    printed = succeed("doctor", DG_SIM_TARGET="sm_100f", DG_SIM_NUM_SMS=7)
    for target, gpu in GPUS.items():
        assert f"{target} ({gpu.names})" in printed
    assert re.search(r"simulator +sm_100f, 7 SMs\n", printed)
    assert "never on hardware" in printed
    printed = succeed("doctor", DG_SIM_TARGET="hopper")
    assert re.search(r"simulator +none: DG_SIM_TARGET: the simulator's target must be like sm_90a", printed)


def test_the_default_runs_a_gemm_and_checks_it() -> None:
    command = [sys.executable, "-m", "deep_gemm"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout
    assert "right: differs from the FP64 product" in printed
    if why_no_gpu():
        assert "nothing ran on a GPU" in printed
        for target in (AMPERE_TARGET, HOPPER_TARGET, BLACKWELL_TARGET):
            assert re.search(rf"kernel +M=4096 N=7168 K=2048 for {target}: ", printed)
            assert f"on the PTX simulator as {target} " in printed
        assert printed.count("right: differs from the FP64 product") == 3
        assert printed.count("none found (races") == 3
    else:
        assert "TFLOPS" in printed


@pytest.mark.skipif(why_no_gpu() is None, reason="this machine has a GPU")
def test_bench_without_a_gpu_says_so() -> None:
    assert "nothing was measured" in refuse("bench", "64", "256", "512")


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_simulate(schedule) -> None:
    printed = succeed("simulate", "33", "136", "272", "--schedule", schedule, "--seed", "3")
    assert "right: differs from the FP64 product" in printed
    assert re.search(r"hazards +none", printed)


def test_simulate_a_blackwell_gpu() -> None:
    printed = succeed("simulate", "33", "136", "272", "--target", "sm_100a")
    assert "on the PTX simulator as sm_100a" in printed
    assert "right: differs from the FP64 product" in printed
    assert re.search(r"hazards +none", printed)


def test_simulate_has_a_shape_of_its_own() -> None:
    assert "M=64 N=256 K=512" in succeed("simulate")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("64", "128", "100"), "K must be a multiple of 16"),
        (("0", "128", "128"), "a whole number from 1 up is wanted, not '0'"),
        (("x", "1", "16"), "'x'"),
    ],
)
def test_simulate_says_what_is_wrong_in_a_line(arguments, said) -> None:
    assert said in refuse("simulate", *arguments)
