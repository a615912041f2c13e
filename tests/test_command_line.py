"""python -m deep_gemm: what it prints, and its exit status."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from devices import why_no_gpu

import deep_gemm

ROOT = Path(deep_gemm.__file__).resolve().parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "deep_gemm", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=300
    )


def succeed(*arguments: str) -> str:
    done = run(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_doctor_names_what_it_found() -> None:
    printed = succeed("doctor")
    assert deep_gemm.__version__ in printed
    for name in ("GPU", "driver", "compiler", "cache"):
        assert f"  {name} " in printed


def test_the_default_runs_a_gemm_and_checks_it() -> None:
    printed = succeed()
    assert "right: differs from the FP64 product" in printed
    if why_no_gpu():
        assert "nothing ran on a GPU" in printed
        assert "for sm_90a" in printed
    else:
        assert "TFLOPS" in printed


def test_explain_prints_candidates_reasons_and_the_choice() -> None:
    printed = succeed("explain", "64", "2112", "7168")
    assert printed.count("->") == 1
    assert "refused: " in printed
    assert "constexpr GemmConfig kConfig{" in printed


def test_explain_knows_bf16() -> None:
    printed = succeed("explain", "4096", "7168", "2048", "--bf16")
    assert ".operand = ElementType::bf16" in printed
    assert ".k = 64}" in printed


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = [sys.executable, "-m", "deep_gemm", "explain", "512", "2112", "7168", "--all"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0


def test_explain_refuses_what_is_no_extent() -> None:
    assert run("explain", "0", "128", "128").returncode != 0


@pytest.mark.parametrize("options", [[], ["--bf16"]], ids=["fp8", "bf16"])
def test_precompile_needs_no_gpu(fresh_cache, options) -> None:
    printed = succeed("precompile", "256x512", "--max-m", "16", *options)
    assert "in the cache: " in printed
    assert list(Path(fresh_cache).rglob("*.cubin"))


@pytest.mark.skipif(why_no_gpu() is None, reason="this machine has a GPU")
def test_bench_without_a_gpu_says_so() -> None:
    done = run("bench", "64", "256", "512")
    assert done.returncode == 1
    assert "nothing was measured" in done.stdout


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_simulate(schedule) -> None:
    printed = succeed("simulate", "33", "136", "272", "--schedule", schedule, "--seed", "3")
    assert "right: differs from the FP64 product" in printed
    assert re.search(r"hazards +none", printed)


def test_simulate_has_a_shape_of_its_own() -> None:
    assert "M=64 N=256 K=512" in succeed("simulate")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("64", "128", "100"), "K must be a multiple of 16"),
        (("0", "128", "128"), "from 1 up"),
        (("x", "1", "16"), "'x'"),
    ],
)
def test_simulate_says_what_is_wrong_in_a_line(arguments, said) -> None:
    done = run("simulate", *arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
