"""bench_gemm.py --against-deepgemm: another package of our name is timed in turn, with the same tensors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from result_file import read_result

BENCH = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_gemm.py"
CASES = ("dense,16,128,256", "masked,2,8,128,256", "bf16,8,64,128")
# It has no BF16 functions; masked experts have the newer name only, and results are wrong.
PACKAGE = """
import deep_gemm

def fp8_gemm_nt(a, b, d):
    assert type(a) is tuple and type(b) is tuple  # as DeepGEMM asks
    deep_gemm.fp8_gemm_nt(a, b, d)

def m_grouped_fp8_fp4_gemm_nt_masked(a, b, d, masked_m, expected_m):
    d.zero_()
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "deep_gemm").mkdir()
    (folder / "deep_gemm" / "__init__.py").write_text(PACKAGE)
    (folder / "theirs-1.2.dist-info").mkdir()
    (folder / "theirs-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: theirs\nVersion: 1.2\n\nText: no field\n"
    )
    cases = [part for case in CASES for part in ("--case", case)]
    command = [sys.executable, str(BENCH), "--device", "cpu", "--calls", "1", "--out", str(folder), *cases]
    subprocess.run([*command, "--against-deepgemm", str(folder)], check=True, capture_output=True, text=True)
    document = read_result(folder / "gemm.json")
    assert document["settings"]["deepgemm"] == "theirs 1.2"
    return {row["case"][0]: row for row in document["rows"]}


def test_timed_and_checked(results) -> None:
    assert results["dense"]["deepgemm_us"] > 0
    assert results["dense"]["deepgemm_difference"] < 1e-5


def test_a_wrong_result_is_told(results) -> None:
    assert results["masked"]["status"] == "ok"  # of ours
    assert not results["masked"]["deepgemm_difference"] < 0.1
    assert "deepgemm_us" not in results["masked"]
    assert "wrong" in results["masked"]["deepgemm_status"]


def test_what_it_lacks_is_told(results) -> None:
    assert "deepgemm_us" not in results["bf16"]
    assert results["bf16"]["deepgemm_status"] == "their_deep_gemm has no bf16_gemm_nt"


def test_without_a_gpu_nothing_is_measured_unless_the_simulator_is_asked_for(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(BENCH.parent))
    import bench_gemm

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["bench_gemm.py", "--against-cublas"])
    with pytest.raises(SystemExit):
        bench_gemm.parse_arguments()
    assert "nothing was measured: there is no GPU" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["bench_gemm.py", "--device", "cpu"])
    assert bench_gemm.parse_arguments().device == "cpu"


# Leaves a file for each call, as a JIT leaves kernels; what has 24 rows does not compile.
LEAVES_FILES = """
from pathlib import Path

def fp8_gemm_nt(a, b, d):
    if len(d) == 24:
        raise RuntimeError("no")
    Path(__file__).with_name(f"{len(d)}.cubin").touch()
"""


def test_kernels_are_compiled_ahead_by_several_processes(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH.parent))
    import other_deep_gemm

    package = tmp_path / "deep_gemm"
    package.mkdir()
    (package / "__init__.py").write_text(LEAVES_FILES)
    monkeypatch.setattr(other_deep_gemm, "PROCESSES", 2)
    rows = [{"case": ["dense", m, 64, 128]} for m in (8, 16, 24, 32, 40)]
    other_deep_gemm.compile_ahead(tmp_path, rows, 0, torch.device("cpu"))
    assert {file.stem for file in package.glob("*.cubin")} == {"8", "16", "32", "40"}
