"""Pictures that a script draws from the library's own numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import pictures_sm100

    yield pictures_sm100
    sys.modules.pop("pictures_sm100", None)


def test_pictures_of_blackwell_show_the_kernel_that_is_there(pictures) -> None:
    document = (pictures.IMAGES.parent / "blackwell.md").read_text()
    for name, draw in pictures.PICTURES.items():
        assert str(draw()) == (pictures.IMAGES / f"{name}.svg").read_text(), f"draw {name} anew"
        assert f"(images/{name}.svg)" in document
