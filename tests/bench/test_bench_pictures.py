"""Pictures that a script draws from the library's own numbers."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("script", "documents"),
    [
        ("pictures_sm100", ["blackwell.md", "blackwell-scales.md", "blackwell-formats.md"]),
        ("pictures_packed", ["low_precision.md", "packed-layout.md"]),
    ],
)
def test_pictures_show_what_is_there(script, documents, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    pictures = importlib.import_module(script)
    text = "".join((pictures.IMAGES.parent / document).read_text() for document in documents)
    for name, draw in pictures.PICTURES.items():
        assert str(draw()) == (pictures.IMAGES / f"{name}.svg").read_text(), f"draw {name} anew"
        assert f"(images/{name}.svg)" in text
