"""The simulator as the device of CPU tensors: options, environment, reports."""

from __future__ import annotations

import fresh
import pytest
import torch

import deep_gemm
from deep_gemm import simulator
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8


def multiply(m: int = 32, n: int = 128, k: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(rows, k, generator=generator).to(torch.bfloat16) for rows in (m, n))
    d = torch.empty(m, n, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt(per_token_cast_to_fp8(a, use_ue8m0=False), per_block_cast_to_fp8(b, use_ue8m0=False), d)
    return d.double(), a.double() @ b.double().T


def test_options_are_restored() -> None:
    before = simulator.get_options()
    with simulator.options(schedule="random", seed=11, hazards="report", threads=2, num_sms=3):
        inside = simulator.get_options()
        assert (inside["schedule"], inside["seed"], inside["hazards"], inside["threads"], inside["num_sms"]) == (
            "random",
            11,
            "report",
            2,
            3,
        )
    assert simulator.get_options() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "soon"}, "lazy, eager or random"),
        ({"hazards": "maybe"}, "error or report"),
        ({"target": "h100"}, "sm_90a"),
        ({"num_sms": 0}, "at least one SM"),
    ],
)
def test_bad_options_are_refused(change: dict, message: str) -> None:
    before = simulator.get_options()
    with pytest.raises(ValueError, match=message):
        simulator.set_options(**change)
    assert simulator.get_options() == before


def test_last_report() -> None:
    simulator.clear_reports()
    assert simulator.last_report() is None
    result, exact = multiply()
    assert (result - exact).norm() < 0.05 * exact.norm()
    report = simulator.last_report()
    assert not report.hazards
    assert report.statistics["blocks"] >= 1
    assert (
        sum(count for name, count in report.statistics["instructions"].items() if name.startswith("wgmma.mma_async"))
        > 0
    )
    assert report.statistics["tma_load_bytes"] > 0
    assert report.statistics["multiply_adds"] > 0
    assert "no hazards" in str(report)


def test_threads_and_schedules_do_not_change_the_result() -> None:
    results = []
    for options in ({"threads": 1}, {"threads": 2}, {"schedule": "lazy"}, {"schedule": "random", "seed": 4}):
        with simulator.options(**options):
            results.append(multiply(200, 256, 384)[0])
    assert all(torch.equal(result, results[0]) for result in results)


def test_environment() -> None:
    variables = {
        "DG_SIM_SCHEDULE": "random",
        "DG_SIM_SEED": "42",
        "DG_SIM_HAZARDS": "report",
        "DG_SIM_RULES": "hardware",
        "DG_SIM_THREADS": "3",
        "DG_SIM_NUM_SMS": "6",
        "DG_SIM_TARGET": "sm_90a",
    }
    code = "from deep_gemm import simulator\nresult = dict(simulator.get_options())"
    expected = {"schedule": "random", "seed": 42, "hazards": "report", "rules": "hardware"}
    expected |= {"threads": 3, "num_sms": 6, "target": "sm_90a", "timeline": False}
    assert fresh.check(code, **variables).result == expected


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("DG_SIM_SEED", "many", "DG_SIM_SEED must be a whole number from 0 to 18446744073709551615, got 'many'"),
        ("DG_SIM_SEED", "-1", "DG_SIM_SEED must be a whole number"),
        ("DG_SIM_NUM_SMS", "0", "DG_SIM_NUM_SMS must be a whole number from 1 to 2147483647, got '0'"),
        ("DG_SIM_NUM_SMS", "99999999999", "DG_SIM_NUM_SMS must be a whole number"),
        ("DG_SIM_THREADS", "2x", "DG_SIM_THREADS must be a whole number"),
        ("DG_SIM_TARGET", "hopper", "DG_SIM_TARGET: the simulator's target must be like sm_90a"),
        ("DG_SIM_SCHEDULE", "fair", "DG_SIM_SCHEDULE: the schedule must be lazy, eager or random"),
        ("DG_SIM_RULES", "mine", "DG_SIM_RULES: the rules must be manual or hardware"),
        ("DG_SIM_HAZARDS", "ignore", "DG_SIM_HAZARDS: the hazard mode must be error or report"),
    ],
)
def test_bad_environment_names_the_variable(variable: str, value: str, said: str) -> None:
    code = "from deep_gemm import simulator\nsimulator.get_options()"
    outcome = fresh.run(code, **{variable: value})
    assert outcome.status != 0
    assert said in outcome.stderr


def test_a_second_for_256x512x1024() -> None:
    """The issue's limit is a second on one core; this asks for it with slack for a busy machine."""
    multiply(256, 512, 1024)
    with simulator.options(threads=1):
        multiply(256, 512, 1024)
    assert simulator.last_report().statistics["seconds"] < 3
