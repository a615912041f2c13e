"""python -m deep_gemm bench: on the simulator each call is checked, times are a GPU's."""

from __future__ import annotations

import csv
import json
import math

import pytest
import torch
from command_line import refuse, run, succeed

from deep_gemm import simulator
from deep_gemm._cases import FUNCTIONS, Wanted, build
from deep_gemm._commands import bench, results
from deep_gemm._targets import BLACKWELL_TARGET, HOPPER_TARGET

EXPERTS = (2, 40, 128, 256)


def shape_for(name: str) -> tuple[int, ...]:
    """Small, with rows that fill no tile."""
    if "m_grouped" in name or "k_grouped" in name:
        return EXPERTS
    by_part = {
        "einsum": (48, 3, 128, 256),
        "logits": (3, 130, 32, 64),
        "routing.route": (20, 8, 3),
        "routing": (20, 8, 3, 256),
        "quantize": (33, 512),
        "_cast_": (33, 512),
        "get_mn": (33, 8),
    }
    return next((shape for part, shape in by_part.items() if part in name), (33, 128, 256))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_has_a_call_that_is_right(name) -> None:
    """And whose check would notice: before the call there is no result."""
    target = BLACKWELL_TARGET if "fp4_gemm" in name else HOPPER_TARGET
    with simulator.options(target=target):
        case = build(name, shape_for(name), Wanted(torch.device("cpu"), target))
        writes_d = "gemm" in name or "einsum" in name
        assert not writes_d or not case.check() <= case.limit
        case.call()
        assert case.check() <= case.limit
    assert case.bytes > 0


def test_the_public_products_are_there() -> None:
    import deep_gemm

    # A head split has no case.
    left = {name for name in dir(deep_gemm) if "gemm_" in name and name not in FUNCTIONS}
    assert left == {"fp8_gemm_nt_skip_head_mid", "cublaslt_nvfp4_gemm_nt"}


MODEL = {"hidden_size": 128, "num_attention_heads": 2, "head_dim": 64, "intermediate_size": 128}


def test_a_model_is_checked_on_the_simulator_without_times(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    file = tmp_path / "rows.csv"
    command = ("bench", "--model", str(tmp_path), "--rows", "5", "--simulate", "--csv", str(file), "--json")
    rows = json.loads(succeed(*command))["rows"]
    assert [row["weight"] for row in rows] == ["qkv", "o", "gate and up", "down"]
    assert all(row["right"] and row["function"] == "bf16_gemm_nt" and "us" not in row for row in rows)
    with file.open() as lines:
        assert [row["shape"] for row in csv.DictReader(lines)] == [row["shape"] for row in rows]


def test_a_list_of_shapes_says_which_is_refused(tmp_path) -> None:
    file = tmp_path / "shapes"
    file.write_text("# two\nbf16_gemm_nt 3x64x64\n\n4x4  # of fp8_gemm_nt\n")
    status, printed = run("bench", "--list", str(file), "--simulate")
    assert status == 1
    assert "times there mean nothing, and none is given" in printed
    assert "a shape of fp8_gemm_nt must be MxNxK, got 4x4" in printed
    assert "bf16_gemm_nt  3x64x64  right" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing", "4x4x4"), "there is no such function to bench: 'nothing' (bench --functions lists them)"),
        ((), "bench wants shapes (4096x7168x2048 ...), --list FILE or --model config.json"),
        (("4x4x4", "--model", "x"), "bench wants shapes or --model, not both"),
        (("4x4x4", "--simulate", "--png", "x"), "--png draws times, and --simulate has none"),
    ],
)
def test_bench_says_what_it_wants(arguments, said) -> None:
    assert said in refuse("bench", *arguments)


def timed_row(monkeypatch) -> dict:
    seconds = iter((2e-6, 5e-6))
    monkeypatch.setattr(bench, "gpu_seconds", lambda call, device, calls: next(seconds))
    case = build("bf16_gemm_nt", (4, 64, 128), Wanted(torch.device("cpu"), HOPPER_TARGET))
    row: dict = {}
    bench._fill(row, case, torch.device("cuda"), 1)
    return row


def test_times_and_what_is_made_of_them(monkeypatch) -> None:
    row = timed_row(monkeypatch)
    assert math.isclose(row["us"], 2)
    assert math.isclose(row["times_as_fast"], 2.5)
    assert math.isclose(row["tflops"], 2 * 4 * 64 * 128 / 2e-6 * 1e-12)
    assert math.isclose(row["gb_per_s"], 2 * (4 * 128 + 64 * 128 + 4 * 64) / 2e-6 * 1e-9)
    head, line = results.table([row, {"function": "other", "right": False, "error": "why"}]).splitlines()[:2]
    assert head.split()[:4] == ["function", "shape", "right", "from"]
    assert line.split()[:3] == ["bf16_gemm_nt", "4x64x128", "right"]
    assert line.split()[4:] == ["2.00", "0.0", "9", "5.00", "2.50", "matmul"]


def test_a_picture_of_times(monkeypatch, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    results.write_png(str(tmp_path / "times.png"), [timed_row(monkeypatch), {"function": "other", "error": "why"}])
    assert (tmp_path / "times.png").read_bytes()[:4] == b"\x89PNG"


def test_a_picture_without_matplotlib_is_refused(monkeypatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(results.importlib, "import_module", absent)
    with pytest.raises(RuntimeError, match=r"--png needs matplotlib, which is not installed\. Run: .* -m pip install"):
        results.require_matplotlib()
