"""Cost models with constants that are tried: what calibrate.py and blackwell_first_day.sh fit."""

from __future__ import annotations

import pytest
from estimates import Estimates, constants_of, estimates_of
from field_calls import explain

PROBLEMS = {
    "few tokens": ("dense", {"m": 16, "n": 7168, "k": 16384}),
    "many tokens": ("dense", {"m": 4096, "n": 4096, "k": 7168}),
    "experts": ("masked", {"m": 4096, "n": 4096, "k": 7168, "groups": 32, "expected_m": 20}),
}
TARGETS = ("sm_100f", "sm_120a", "sm_80", "sm_90a")


def problem(name: str) -> tuple[str, dict[str, int]]:
    grouping, fields = PROBLEMS[name]
    return grouping, fields | {"num_sms": 148}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_estimates_are_those_of_selection(name, target) -> None:
    estimates = estimates_of(*problem(name), target, {})
    assert estimates_of(*problem(name), target, constants_of(*problem(name), target)) == estimates
    explained: dict[str, float] = {}
    for line in explain(*problem(name), target).splitlines():
        config, _, cost = line.rpartition(": ")
        if cost.endswith(" us"):
            explained.setdefault(config.partition(" threads")[0], float(cost.removesuffix(" us")))
    assert {name: estimates[name] for name in explained} == pytest.approx(explained, rel=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_constant_changes_what_it_is_for(target) -> None:
    slower = {"launch_us": constants_of(*problem("few tokens"), target)["launch_us"] + 2}
    before, after = (estimates_of(*problem("few tokens"), target, given) for given in ({}, slower))
    assert all(after[config] == pytest.approx(us + 2) for config, us in before.items())


def test_what_a_gpu_of_a_target_has_is_among_them() -> None:
    """GB10 (sm_121a) has less memory for each SM than an RTX 5090."""
    rates = [
        constants_of(*problem("few tokens"), target)["memory_bytes_per_cycle"] for target in ("sm_121a", "sm_120a")
    ]
    assert rates[0] < rates[1] / 1.5


def test_unknown_constants_are_refused() -> None:
    with pytest.raises(ValueError, match="cost model of sm100 has no constant launch"):
        estimates_of(*problem("few tokens"), "sm_100f", {"launch": 1.0})


def test_some_configs_of_several_calls() -> None:
    """In the order in which they were added; those that are not legal are left out."""
    estimates, added = Estimates(), []
    for name in PROBLEMS:
        grouping, fields = problem(name)
        configs = list(estimates_of(grouping, fields, "sm_90a", {}))
        found = estimates.add(grouping, fields, "sm_90a", [*configs[3:9], "straight 1x1 cluster 1x1x1 k_warpgroups 1"])
        assert list(found) == configs[3:9]
        added += found.values()
    assert list(estimates.us({})) == added
