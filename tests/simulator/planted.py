"""Pipelines that are right, and with mistakes planted: a right one has no hazards, and each mistake is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from deep_gemm import simulator


def _under(*schedules: tuple[str, int]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("schedule", "seed"), schedules, ids=[f"{name}{seed}" for name, seed in schedules])


ONE_OF_EACH = ("eager", 0), ("lazy", 0), ("random", 1)
EACH_SCHEDULE, MORE_SCHEDULES = _under(*ONE_OF_EACH), _under(*ONE_OF_EACH, ("random", 2), ("random", 3))
# Of a bug's number, schedule and seed, and other options of `simulator.run`: what is reported, and if D was right.
Run = Callable[..., tuple[simulator.Report, bool]]


def every_bug(bugs: Mapping[int, tuple[str, str]]) -> pytest.MarkDecorator:
    names = [f"{number}-{text.replace(' ', '_')}" for number, (text, _) in bugs.items()]
    return pytest.mark.parametrize("bug", bugs, ids=names)


def assert_right(run: Run, schedule: str, seed: int, **options: str) -> simulator.Report:
    """Without a bug."""
    report, right = run(0, schedule, seed, **options)
    assert not report.hazards, (seed, "\n".join(map(str, report.hazards)))
    assert right, seed
    return report


def flagged(run: Run, kernel: str, bug: int, expected: str, schedule: str, seed: int) -> str:
    """The message, which names one of the hazards that are expected first."""
    with pytest.raises(RuntimeError) as raised:
        run(bug, schedule, seed, hazards="error")
    message = str(raised.value)
    assert re.search(rf"'{kernel}': ({expected}):", message), message
    return message
