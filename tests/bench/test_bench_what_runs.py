"""The tables of what runs where, which benchmarks/what_runs.py writes out of the pair table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def what_runs(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import what_runs

    return what_runs


def test_the_documents_say_what_the_pair_table_says(what_runs) -> None:
    """After a change of the table: python benchmarks/what_runs.py."""
    for path, make in what_runs.DOCUMENTS.items():
        document = path.read_text()
        assert what_runs.with_table(document, make(what_runs.C.pairs())) == document


EXPERTS = "m_contiguous,m_psum,masked"
PAIRS = f"""\
arch=sm80 a=bf16 b=bf16 scalings_a= scalings_b= outputs=bf16,fp32 groupings=dense
arch=sm80 a=e4m3 b=s4m scalings_a=fp32:1x128 scalings_b=fp32:1x128,fp32:1x-1 outputs=bf16 groupings=dense
arch=sm90 a=e4m3 b=s4m scalings_a=fp32:1x128 scalings_b=fp32:1x128 outputs=fp16 groupings=dense,{EXPERTS}
arch=sm90 a=e4m3 b=s4 scalings_a=fp32:1x-1 scalings_b=ue8m0:1x32 outputs=bf16 groupings=dense,{EXPERTS}
"""


def test_formats_are_named_as_functions_are_and_architectures_that_agree_together(what_runs) -> None:
    lines = [line.strip("| ").split(" | ") for line in what_runs.what_runs(PAIRS).splitlines()]
    assert lines[2][:6] == ["BF16 x BF16: `bf16_gemm`", "80", "no", "no", "no", "no"]
    assert lines[2][-1] == "BF16, FP32"
    assert lines[3] == [
        "E4M3 x int4: `fp8_int4_gemm`",
        "80, 90",
        "90",
        *["no"] * 3,
        "80: 1x128; 90: 1x128, row",
        "80: 1x128, row; 90: 1x128, 2^n 1x32",
        "80: BF16; 90: BF16, FP16",
    ]
    assert len(lines) == 4


def test_formats_and_groupings_without_a_name_or_a_column_are_refused(what_runs) -> None:
    with pytest.raises(KeyError, match="e3m2"):
        what_runs.what_runs(PAIRS.replace("b=s4m", "b=e3m2"))
    with pytest.raises(SystemExit, match="E4M3 x int4 is multiplied for some of"):
        what_runs.what_runs(PAIRS.replace("m_psum,masked", "m_psum"))
    with pytest.raises(SystemExit, match="the document has 0 places for the table"):
        what_runs.with_table("no table here", PAIRS)
