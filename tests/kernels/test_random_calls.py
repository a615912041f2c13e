"""Random legal calls of every public product, target and setting: what no list of cases has.

Other ones in each run: the seed of the sample (`--seed`) draws the same again, and a failure names its own. By the
thousand, on the simulator or a GPU: tests/support/random_calls.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from devices import ON_GPU
from random_call import TARGETS, random_call
from sampling import SEED

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "random_calls.py"
CALLS = 4  # of each target


@pytest.mark.sampled(28)
@pytest.mark.parametrize("number", range(CALLS))
@pytest.mark.parametrize("target", [*TARGETS, *ON_GPU])
def test_a_random_legal_call_is_right(target: str, number: int, pytestconfig: pytest.Config) -> None:
    device = torch.device("cuda", torch.cuda.current_device()) if target == "cuda" else torch.device("cpu")
    seed = f"{pytestconfig.stash[SEED]}:{number}"
    options = ["--device", "cuda"] if target == "cuda" else ["--target", target]
    try:
        random_call(seed, device, None if target == "cuda" else target)
    except Exception as error:
        command = " ".join(["PYTHONPATH=. python tests/support/random_calls.py --only", seed, *options])
        raise AssertionError(f"{error} [{getattr(error, 'call', '')}]\nrepeat: {command}") from error


def test_the_long_form_says_what_it_made(tmp_path: Path) -> None:
    result = tmp_path / "calls.json"
    options = ["--calls", "2", "--seed", "any", "--target", "sm_80", "--workers", "1", "--json", str(result)]
    done = subprocess.run([sys.executable, str(PROGRAM), *options], capture_output=True, text=True, check=False)
    said = json.loads(result.read_text())
    assert (said["calls"], said["asked"]) == (2, 2)
    assert sum(said["right"].values()) + said["failed"] == 2
    assert done.returncode == int(said["failed"] > 0), done.stderr
    assert f"2 calls of 2, {said['failed']} failed" in done.stdout


def test_the_long_form_stops_in_time(tmp_path: Path) -> None:
    result = tmp_path / "calls.json"
    options = ["--calls", "100000", "--seconds", "0.5", "--workers", "1", "--json", str(result)]
    done = subprocess.run([sys.executable, str(PROGRAM), *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:18]) == (0, "0 calls of 100000,")
    assert json.loads(result.read_text())["seconds"] < 60
