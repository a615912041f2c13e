"""SM100's cost model with constants that are tried: what blackwell_first_day.sh fits."""

from __future__ import annotations

import pytest
from field_calls import estimates_of, explain

from deep_gemm._extension import C

PROBLEMS = {
    "few tokens": ("dense", {"m": 16, "n": 7168, "k": 16384}),
    "many tokens": ("dense", {"m": 4096, "n": 4096, "k": 7168}),
    "experts": ("masked", {"m": 4096, "n": 4096, "k": 7168, "groups": 32, "expected_m": 20}),
}
TARGET = "sm_100f"


def problem(name: str) -> tuple[str, dict[str, int]]:
    grouping, fields = PROBLEMS[name]
    return grouping, fields | {"num_sms": 148}


@pytest.mark.parametrize("name", PROBLEMS)
def test_estimates_are_those_of_selection(name) -> None:
    estimates = dict(estimates_of(*problem(name), TARGET, {}))
    assert dict(estimates_of(*problem(name), TARGET, dict(C.cost_constants()))) == estimates
    explained = {}
    for line in explain(*problem(name), TARGET).splitlines():
        config, _, cost = line.rpartition(": ")
        if cost.endswith(" us"):
            explained[config.partition(" threads")[0]] = float(cost.removesuffix(" us"))
    assert estimates == pytest.approx(explained, rel=1e-5)


def test_a_constant_changes_what_it_is_for() -> None:
    slower = {"launch_us": C.cost_constants()["launch_us"] + 2}
    before, after = (dict(estimates_of(*problem("few tokens"), TARGET, given)) for given in ({}, slower))
    assert all(after[config] == pytest.approx(us + 2) for config, us in before.items())


def test_unknown_constants_and_other_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="no constant launch"):
        estimates_of(*problem("few tokens"), TARGET, {"launch": 1.0})
    with pytest.raises(ValueError, match="for SM100, not for sm90"):
        estimates_of(*problem("few tokens"), "sm_90a", {})
