"""Every example runs as its own header says, checks itself and exits with zero. Without a GPU: on the simulator, and
there as a B200 and an A100 too."""

from __future__ import annotations

from pathlib import Path

import fresh
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "where",
    [
        pytest.param({}, id="here"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "", "DG_SIM_TARGET": "sm_100f"}, id="as-b200"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "", "DG_SIM_TARGET": "sm_80"}, id="as-a100"),
    ],
)
def test_example(name: str, where: dict[str, str]) -> None:
    if name == "generate":
        pytest.importorskip("transformers", reason="third_party/requirements-transformers.txt")
    assert fresh.program(EXAMPLES / f"{name}.py", **where).strip(), "an example says what it did"


def test_all_are_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert [name for name in NAMES if f"`{name}.py`" not in listed] == []
