"""Cases of other models, their classes, and the tables that report.py writes."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def summary(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import summary

    yield summary
    for name in ("summary", "report", "tables", "micro_tables"):
        sys.modules.pop(name, None)


def models() -> list[dict]:
    return json.loads((BENCHMARKS / "models.json").read_text())["rows"]


def test_models_are_no_public_cases_and_each_has_a_class(summary) -> None:
    public = {tuple(row["case"]) for row in json.loads((BENCHMARKS / "cases.json").read_text())["rows"]}
    cases = [tuple(row["case"]) for row in models()]
    assert len(cases) == len(set(cases)) >= 80
    assert not public & set(cases)
    assert all(summary.class_of(case, "models") != "other" for case in cases)
    assert all(row["model"] and "us" not in row for row in models())


def test_cases_at_random(summary) -> None:
    from drawn_cases import KINDS, drawn_cases

    cases = drawn_cases(40, 1)
    assert cases == drawn_cases(100, 1)[:40] != drawn_cases(40, 2)
    assert [case[0] for case in cases[: len(KINDS)]] == list(KINDS)
    assert all(summary.class_of(case, "drawn").startswith("drawn, ") for case in cases)
    assert all(case[-1] % 128 == 0 for case in cases if case[0] != "wgrad")


def test_tables(summary, tmp_path) -> None:
    import report

    rows = [
        {
            "case": row["case"],
            "class": summary.class_of(row["case"], "models"),
            "model": row["model"],
            "status": "ok",
            "us": 10.0,
            "tflops": 1.0,
            "gb_per_s": 1.0,
            "efficiency": 0.5,
            "cublas_us": 20.0,
        }
        for row in models()
    ]
    text = report.model_section(rows, [])
    assert "| dense M <= 16 |" in text
    assert "2.000" in text
    one, other = tmp_path / "one.md", tmp_path / "other.md"
    one.write_text("<!-- begin cases (x) -->\nold\n<!-- end cases -->\n")
    other.write_text("<!-- begin models (x) -->\nold\n<!-- end models -->\n")
    with pytest.raises(SystemExit, match="no place for micro"):
        report.fill([one, other], {"models": text, "micro": text})
    assert "old" in other.read_text(), "all documents or none"
    report.fill([one, other], {"models": text})
    assert "old" in one.read_text()
    assert "old" not in other.read_text()
    assert "Llama 3 8B qkv" in other.read_text()


def test_micro_tables(summary) -> None:
    import micro_tables

    row = {"n": 576, "k": 7168, "bytes": 4128768, "us": 3.4, "gb_per_s": 1214, "ctas_per_sm": 2, "threads": 512}
    part = {"status": "exit status 1", "about": "Reads", "rows": [row | {"loads": 8}]}
    text = micro_tables.micro_section({"parts": {"read": part}})
    assert "Incomplete: exit status 1." in text
    assert "| 576 x 7168 | 4.1 | 3.40 | 1214 |" in text


def test_host_table(summary) -> None:
    import report

    document = {
        "machine": {name: "x" for name in ("commit", "torch", "compiler", "driver", "gpu", "power_limit", "processor")},
        "device": "cuda",
        "import_seconds": [0.007],
        "first_call_seconds": {"empty cache": [0.16]},
        "warm_call_seconds": {"fp8_gemm_nt": {"median": 2.5e-6, "least": 2.4e-6}},
        "bare_launches": [
            {"stream": "own", "attributes": "", "smem_bytes": 232448, "touched_bytes": 0, "us": 2.1},
            {"stream": "own", "attributes": "dependent", "smem_bytes": 0, "touched_bytes": 65536, "us": 2.2},
            {"stream": "default", "attributes": "dependent", "smem_bytes": 0, "touched_bytes": 0, "us": 2.4},
        ],
    }
    older = document | {"machine": document["machine"] | {"commit": "y"}, "bare_launches": []}
    text = report.host_section([older, document])
    assert "| median | y | x |" in text
    assert "| warm: fp8_gemm_nt | 2.50 us | 2.50 us |" in text
    launch = "| the driver's launch alone:"
    assert f"{launch} no attribute, 227 KB of shared memory |  | 2.10 us |" in text
    assert f"{launch} dependent |  | 2.20 to 2.40 us |" in text


def test_chain_table(summary) -> None:
    import report

    machine = {"commit": "x", "torch": "y"}
    layer = [["dense", 16, 2112, 7168], ["dense", 16, 7168, 2048]]
    figures = {f"{chain}_{start}_us": 5.0 for chain in ("graph", "small", "launched") for start in ("plain", "early")}
    rows = [
        {"cases": layer, "status": "ok", **figures, "graph_early_us": 4.0},
        {"cases": layer[:1], "status": "skipped: out of time"},
    ]
    text = report.chain_section({"machine": machine, "rows": rows})
    assert "| dense, 16 rows: 2112x7168, 7168x2048 | 5.00 / 4.00 | 5.00 / 5.00 | 5.00 / 5.00 |  |  |" in text
    assert "| dense 16 2112 7168 |  /  |  /  |  /  |  | skipped: out of time |" in text


def test_another_card_has_tables_of_its_own(summary) -> None:
    """Its limits are not known, so only what was timed in turn is compared."""
    import report

    machine = {"commit": "x", "torch": "y", "gpu": "NVIDIA H100 80GB HBM3"}
    timed = {"status": "ok", "us": 10.0, "tflops": 1.0, "deepgemm_us": 12.5, "efficiency": None}
    left = {"status": "skipped: out of time"}
    rows = [
        {"case": case, "class": summary.class_of(case), **result}
        for case, result in [(["wgrad", 576, 4096, 7168], timed), (["wgrad", 2112, 4096, 7168], left)]
    ]
    document = {"machine": machine, "rows": rows}
    assert not report.of_known_card(document)
    assert report.of_known_card({"machine": {"gpu": summary.KNOWN_GPU}})
    assert "| wgrad | 1/2 | 1.250 | 1.250 |  |  | 0 |" in report.other_card_section([document])
    text = report.other_card_cases([document])
    assert "| wgrad 576 4096 7168 | 1 | 10.00 | 12.50 |  |  |" in text
    assert "| wgrad 2112 4096 7168 |  |  |  |  | skipped: out of time |" in text


def test_the_last_result_of_a_case_counts(summary) -> None:
    """Unless its run left the case out; and a wrong one is not hidden by one that was right before."""
    import report

    cases = [["dense", m, 576, 7168] for m in (1, 16, 64)]
    first = [{"case": case, "status": "ok", "us": 10.0} for case in cases]
    states = [{"status": "skipped: out of time"}, {"status": "wrong"}, {"status": "ok", "us": 9.0}]
    second = [{"case": case, **state} for case, state in zip(cases, states, strict=True)]
    assert report.latest([{"rows": first}, {"rows": second}]) == [first[0], *second[1:]]
    assert report.latest([{"rows": second}, {"rows": first}]) == first


def test_documents_have_the_tables_of_the_kept_results(summary, tmp_path, monkeypatch) -> None:
    import report

    names = ("performance.md", "notes/tables.md", "notes/tables-h100.md", "notes/micro-benchmarks.md")
    kept = [BENCHMARKS.parent / "docs" / name for name in names]
    written = [Path(shutil.copy(path, tmp_path)) for path in kept]
    results = sorted((BENCHMARKS / "results").glob("*.json"))
    monkeypatch.setattr(sys, "argv", ["report.py", *map(str, results), "--into", *map(str, written)])
    assert report.main() == 0
    assert [path.read_text() for path in written] == [path.read_text() for path in kept]


def test_result_files_are_read_as_they_were_written(tmp_path, monkeypatch) -> None:
    """Names once, six digits, and what a row does not have stays away."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    machine = importlib.import_module("machine")
    rows = [{"case": ["dense", i], "us": i / 3, "why": None} | ({"extra": [1.5]} if i == 2 else {}) for i in range(5)]
    document = {"what": "x", "machine": {"commit": "a"}, "rows": rows, "parts": {"p": {"rows": rows}}, "few": rows[:2]}
    machine.write_result(tmp_path / "x.json", document)
    read = machine.read_result(tmp_path / "x.json")
    assert read["rows"] == read["parts"]["p"]["rows"]
    for kept, row in zip(read["rows"], rows, strict=True):
        assert list(kept) == list(row)
        assert kept == row | {"us": pytest.approx(row["us"], rel=1e-5)}
    assert (tmp_path / "x.json").read_text().count('"why"') == 4
    assert {name: read[name] for name in ("what", "machine")} == {name: document[name] for name in ("what", "machine")}
