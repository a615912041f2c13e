"""The table of what rounding scales does to a checkpoint, which benchmarks/scale_rounding.py writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def scale_rounding(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import scale_rounding

    return scale_rounding


def test_the_document_says_what_the_kernels_give(scale_rounding) -> None:
    """After a change of either: python benchmarks/scale_rounding.py."""
    document = scale_rounding.DOCUMENT.read_text()
    assert scale_rounding.with_table(document, scale_rounding.errors()) == document


def test_a_document_without_the_marks_is_refused(scale_rounding) -> None:
    with pytest.raises(SystemExit, match="0 places"):
        scale_rounding.with_table("no marks", "table")
