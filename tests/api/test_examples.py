"""Every example runs as its own header says, checks itself and exits with zero. Without a GPU: on the simulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}"], cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "an example says what it did"


def test_all_are_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert [name for name in NAMES if f"`{name}.py`" not in listed] == []
