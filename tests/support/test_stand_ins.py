"""A GPU that stands in for an older one runs the tests of its kernels, and leaves out what is about others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest, torch
from candidates import forced_tile

@pytest.mark.gpu
@pytest.mark.kernels_of("sm90")
def test_of_hopper(): raise AssertionError

@pytest.mark.gpu
@pytest.mark.kernels_of("sm80", "sm90")
def test_of_both(): pass

@pytest.mark.gpu
def test_of_any(): pass

def test_a_tile_of_hoppers(monkeypatch):
    import candidates
    monkeypatch.setattr(candidates, "stands_in", lambda device: True)
    monkeypatch.setattr(candidates, "arch_of_gpu", lambda: "sm80")
    from deep_gemm import simulator
    with simulator.options(target="sm_80"), forced_tile(torch.device("cpu"), (64, 64, 128), False, 128, 192):
        raise AssertionError
"""
CONFTEST = """
import devices
devices.why_no_gpu = lambda: None
devices.arch_of_gpu = lambda: "sm80"
exec(open("ROOT/tests/conftest.py").read())
"""


def test_tests_of_another_architecture_are_deselected_and_its_tiles_skipped(tmp_path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST.replace("ROOT", str(ROOT)))
    paths = [str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-c", str(ROOT / "pyproject.toml"), "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed, 1 skipped, 1 deselected" in done.stdout, done.stdout + done.stderr
    assert "deselected, as the GPU runs kernels of sm80: 1 tests" in done.stdout
    assert "128x192 is a tile of Hopper's, and the GPU runs kernels of sm80" in done.stdout
