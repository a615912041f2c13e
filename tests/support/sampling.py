"""Draws, in each run, a sample of the tests that are marked `sampled(count)`: matrices grow faster than patience does.

    @pytest.mark.sampled(12)  # of all parameter sets of this test, 12 run with `--times 1`, an eighth of them without
    @pytest.mark.parametrize("tile", [pytest.param(TILE, marks=pytest.mark.always), ...])  # such ones in any case

Of a test without that mark whose `device` goes over architectures of the simulator, one architecture is drawn for each
set of the other parameters; and with less than `--times 1` that share of these sets. Other tests all run.

Of sets that need a GPU as many are drawn as of others, apart from them. Values of parameters that no drawn set has yet
come first, so that each occurs where `count` allows it. The seed is printed: `--seed` draws the same again. `--times 3`
draws three times as many of each as is marked, and `.ci/run` twice; by default it is an eighth of that, so that the
tests take minutes. `--full` runs everything, and so does whoever picks tests by name, by `-k` or because
they failed (`--last-failed`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

import pytest

SEED = pytest.StashKey[int]()
AN_EIGHTH = 0.125
WORKER_INPUT = "sampling_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sampling")
    group.addoption("--full", action="store_true", help="run all of each matrix of tests, not a drawn sample")
    group.addoption(
        "--times",
        type=float,
        default=AN_EIGHTH,
        metavar="N",
        help="draw N times as many of each matrix as is marked (0.125)",
    )
    group.addoption("--seed", type=int, metavar="N", help="draw the sample of the run that printed this seed")


_share = 1.0  # of the examples that hypothesis draws


def pytest_configure(config: pytest.Config) -> None:
    global _share
    _share = 1.0 if everything(config) else min(config.option.times, 1.0)
    config.addinivalue_line("markers", "sampled(count): of the test's parameter sets, so many are drawn with --times 1")
    config.addinivalue_line("markers", "always: a parameter set that every sample has")
    seed = config.getoption("seed")
    drawn = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    config.stash[SEED] = getattr(config, "workerinput", {}).get(WORKER_INPUT, drawn)


def examples(count: int) -> int:
    """For hypothesis's `max_examples` of tests that run kernels: `count` with `--times 1`."""
    return math.ceil(count * _share)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: its workers draw what this process would."""
    node.workerinput[WORKER_INPUT] = node.config.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    return description(config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Once more where it is needed: with -q there is no header."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(description(config))


def description(config: pytest.Config) -> str:
    if everything(config):
        return "matrices of tests: all of each"
    times = config.option.times
    drawn_by = f"--seed {config.stash[SEED]}" + (f" --times {times:g}" if times != AN_EIGHTH else "")
    return f"matrices of tests: a sample, drawn with {drawn_by} (all of each: --full)"


def everything(config: pytest.Config) -> bool:
    option = config.option
    named = any("::" in argument for argument in config.args) or bool(option.keyword)
    return bool(option.full or named or getattr(option, "lf", False))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before pytest sorts them by their fixtures: of tens of thousands, most go."""
    if everything(config):
        return
    matrices: dict[tuple[str, bool], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            matrix = item.nodeid.partition("[")[0], item.get_closest_marker("gpu") is not None
            matrices.setdefault(matrix, []).append(item)
    times, left_out = config.option.times, of_other_architectures(config, items)
    for (test, _), matrix_items in matrices.items():
        generator = random.Random(f"{config.stash[SEED]} {test}")
        left_out |= set(matrix_items) - set(drawn(matrix_items, generator, marked_count(matrix_items) * times))
    if times < 1:
        for test, unmarked in on_simulator(item for item in items if item not in left_out).items():
            generator = random.Random(f"{config.stash[SEED]} {test}")
            left_out |= set(unmarked) - set(drawn(unmarked, generator, len(unmarked) * times))
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def on_simulator(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Function]]:
    """Of each test without the mark, its sets that run kernels on the simulator."""
    found: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and device_of(item) and not item.get_closest_marker("sampled"):
            found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return found


def device_of(item: pytest.Item) -> str | None:
    """Of the simulator."""
    device = getattr(item, "callspec", None) and item.callspec.params.get("device")
    return device if isinstance(device, str) and device.startswith("sm") else None


def of_other_architectures(config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each test without the mark, those on other architectures of the simulator than the drawn ones."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        device = device_of(item)
        if device is not None and not item.get_closest_marker("sampled"):
            groups.setdefault(item.nodeid.replace(device, "*", 1), []).append(item)
    left_out: set[pytest.Item] = set()
    for test, same in groups.items():
        of_arch: dict[str, list[pytest.Item]] = {}
        for item in same:
            of_arch.setdefault(item.callspec.params["device"].split("-")[0], []).append(item)
        others = sorted(of_arch)
        random.Random(f"{config.stash[SEED]} {test}").shuffle(others)
        left_out.update(item for arch in others[max(1, int(config.option.times)) :] for item in of_arch[arch])
    return left_out


def marked_count(items: list[pytest.Function]) -> int:
    marker = items[0].get_closest_marker("sampled")
    assert marker is not None
    return int(marker.args[0])


def drawn(items: list[pytest.Function], generator: random.Random, wanted: float) -> list[pytest.Function]:
    count = math.ceil(wanted)
    chosen = [item for item in items if item.get_closest_marker("always")]
    left = [item for item in items if not item.get_closest_marker("always")]
    generator.shuffle(left)
    values = values_of(items)
    seen = set().union(*(values[id(item)] for item in chosen))
    while left and len(chosen) < count:
        best = max(left, key=lambda item: len(values[id(item)] - seen))  # the first of equals
        if values[id(best)] <= seen:  # nothing is new any more
            return chosen + left[: count - len(chosen)]
        left.remove(best)
        chosen.append(best)
        seen |= values[id(best)]
    return chosen


def values_of(items: list[pytest.Function]) -> dict[int, set[tuple[str, str]]]:
    """By the identity of each item of one test, its parameters' values. As text: not every value can be in a set."""
    texts: dict[int, str] = {}  # by identity: thousands of items share each value

    def text(value: object) -> str:
        if id(value) not in texts:
            texts[id(value)] = repr(value)
        return texts[id(value)]

    return {id(item): {(name, text(value)) for name, value in item.callspec.params.items()} for item in items}
