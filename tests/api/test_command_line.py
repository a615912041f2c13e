"""python -m deep_gemm: what it prints, and its exit status. Its larger commands have files of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import refuse, run, succeed
from devices import why_no_gpu

import deep_gemm
from deep_gemm._commands import doctor
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


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("doctor", ("gpu", "compiler", "cache", "missing", "works")),
        ("explain 64 512 512", ("candidates", "refused", "kernel")),
        ("precompile 256x512 --max-m 16 --dry-run", ("target", "kernels")),
        ("logits 64 128 --rows 1", ("kernels",)),
        ("simulate 33 136 272", ("difference", "hazards", "statistics")),
        ("cache size", ("directory", "sizes")),
        ("cache list", ("kernels",)),
    ],
)
def test_a_program_gets_one_object_of_json(command, names) -> None:
    found = json.loads(succeed(*command.split(), "--json"))
    assert found["command"] == command.split()[0]
    assert found["status"] == 0
    assert set(names) <= set(found)


def test_json_has_the_error_and_the_status() -> None:
    status, printed = run("--json", "precompile")
    said = "precompile wants shapes of weights (7168x2048 ...), or --model config.json"
    assert printed.startswith(f"python -m deep_gemm precompile: {said}\n")  # on stderr
    assert json.loads(printed[printed.index("{") :]) == {"command": "precompile", "error": said, "status": status}


@pytest.mark.parametrize("command", ["nothing", "precompile --nothing", "explain 1 2", "cache", "bench --target sm_1"])
def test_a_usage_error_is_three_lines_at_most(command) -> None:
    status, printed = run(*command.split())
    assert status == 2
    assert printed.startswith("python -m deep_gemm")
    assert printed.count("\n") <= 3


def test_doctor_names_what_is_missing_and_what_mends_it() -> None:
    status, printed = run("doctor", DG_JIT_USE_NVRTC=0, DG_JIT_NVCC_COMPILER="/none", DG_JIT_CACHE_DIR="", HOME=None)
    assert status == 1
    assert re.search(r"compiler +none: /none could not be started", printed)
    assert re.search(r"missing +no compiler: .*\. Run: unset DG_JIT_USE_NVRTC\n", printed)
    assert "no directory for compiled kernels. Run: export DG_JIT_CACHE_DIR=/a/directory\n" in printed
    status, printed = run("doctor", "--json", DG_JIT_NVRTC_LIBRARY="/none")
    assert status == 1
    assert "nvidia-cuda-nvrtc" in json.loads(printed)["missing"][-1]["mended_by"]


def test_doctor_of_a_driver_that_torch_or_nvrtc_do_not_suit(monkeypatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    missing = doctor._missing_of_gpu({"version": 12040}, {"identity": "nvrtc 13.0 build 1"})
    assert [each.mended_by.split(" -m ")[1] for each in missing] == [
        "pip install --force-reinstall torch",
        "pip install nvidia-cuda-nvrtc-cu12",
    ]
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert doctor._missing_of_gpu({"version": 13000}, {"identity": "nvrtc 13.0 build 1"}) == []


def test_doctor_sees_a_gpu_without_a_driver(tmp_path) -> None:
    assert not doctor._has_gpu(tmp_path / "none")
    for name, vendor, kind in (("0", "0x8086", "0x030000"), ("1", "0x10de", "0x040300"), ("2", "0x10de", "0x030200")):
        assert not doctor._has_gpu(tmp_path)
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    assert doctor._has_gpu(tmp_path)
