"""Matrices of tests: a drawn sample runs unless all of it is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

MATRIX = """
import pytest

@pytest.mark.sampled(5)
@pytest.mark.parametrize("tile", [*range(9), pytest.param(99, marks=pytest.mark.always)])
@pytest.mark.parametrize("kind", ["first", "second", "third"])
def test_matrix(tile, kind): assert kind != "wrong"

@pytest.mark.sampled(2)
@pytest.mark.parametrize("where", [pytest.param(i, marks=pytest.mark.gpu if i < 4 else ()) for i in range(8)])
def test_devices(where): pass

@pytest.mark.sampled(5)
@pytest.mark.parametrize("few", range(3))
def test_small_matrix(few): pass

def test_plain(): pass
"""
ARCHITECTURES = """
import pytest

@pytest.mark.parametrize("device", ["sm80-any", "sm90-any", "sm100-lazy", "sm100-eager", "cuda"])
@pytest.mark.parametrize("kind", range(20))
def test_behaviour(device, kind): pass

@pytest.mark.parametrize("device", ["sm90-lazy", "sm90-eager"])
def test_two(device): pass

@pytest.mark.parametrize("word", range(9))
def test_words(word): pass
"""
ALWAYS = {f"test_matrix[{kind}-99]" for kind in ("first", "second", "third")}


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest over that file, or over other text; returns the tests that ran and what was printed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # for xdist's processes
    pytester.makeini("[pytest]\nmarkers = gpu: a device")

    def run_it(*arguments: str, text: str = MATRIX, status: int = 0, times: str | None = "1") -> tuple[set[str], str]:
        pytester.makepyfile(test_it=text)
        # xdist hands on the paths that its process began with.
        start = pytester.runpytest_subprocess if "xdist" in arguments else pytester.runpytest_inprocess
        share = [] if times is None else ["--times", times]
        done = start("-p", "sampling", "-p", "no:cacheprovider", "-rA", *share, *arguments)
        assert done.ret == status
        printed = done.stdout.str()
        return set(
            re.findall(r"^(?:PASSED|FAILED) test_it.py::(test_\w+(?:\[[^]]*\])?)", printed, re.MULTILINE)
        ), printed

    return run_it


def of(test: str, ran: set[str]) -> set[str]:
    return {name for name in ran if name.startswith(f"{test}[")}


def test_as_many_run_as_the_mark_says(run) -> None:
    ran, printed = run("--seed", "1")
    matrix = of("test_matrix", ran)
    assert len(matrix) == 5
    assert matrix > ALWAYS
    assert len(of("test_small_matrix", ran)) == 3
    assert "test_plain" in ran
    assert re.search(r"\d+ deselected", printed)


def test_those_that_need_a_gpu_are_drawn_apart(run) -> None:
    for seed in "123":
        on_gpu = [int(name[-2]) < 4 for name in of("test_devices", run("--seed", seed)[0])]
        assert sorted(on_gpu) == [False, False, True, True]


def test_the_printed_seed_draws_the_same_again(run) -> None:
    ran, printed = run()
    (seed,) = re.findall(r"drawn with --seed (\d+) --times 1 \(all of each: --full\)", printed)
    assert run("--seed", seed)[0] == ran
    assert any(run("--seed", str(other))[0] != ran for other in range(4))


def test_full_runs_all(run) -> None:
    ran, printed = run("--full")
    assert len(ran) == 3 * 10 + 8 + 3 + 1
    assert "deselected" not in printed
    assert "all of each" in printed


def test_by_default_an_eighth_of_what_is_marked_is_drawn(run) -> None:
    ran, _ = run("--seed", "1", times=None)
    counts = [sum(test.startswith(name) for test in ran) for name in ("test_matrix", "test_devices", "test_small")]
    assert counts == [3, 2, 1]  # of 5 the three that always run, of 2 with a GPU and 2 without, and of 5


def test_by_default_an_eighth_of_what_runs_on_the_simulator_is_drawn(run) -> None:
    """And all that runs on a GPU; tests without devices all run."""
    ran, _ = run("--seed", "1", text=ARCHITECTURES, times=None)
    on_gpu = {name for name in ran if name.startswith("test_behaviour") and "cuda" in name}
    simulated = of("test_behaviour", ran) - on_gpu
    assert (len(on_gpu), len(of("test_two", ran)), len(of("test_words", ran))) == (20, 1, 9)
    # Of 20 kinds, each on one architecture, of which one has two schedules.
    assert 3 <= len(simulated) <= 6
    assert len({name.split("-")[1] for name in simulated}) == 3


def test_times_draws_so_many_times_the_sample(run) -> None:
    ran, printed = run("--seed", "1", "--times", "3")
    assert len(of("test_matrix", ran)) == 15
    assert set(of("test_matrix", run("--seed", "1")[0])) <= set(of("test_matrix", ran))
    assert "--seed 1 --times 3" in printed


@pytest.mark.parametrize("times", [1, 2, 3])
def test_of_architectures_one_is_drawn_or_as_many_as_asked_for(run, times) -> None:
    ran, _ = run("--seed", "1", "--times", str(times), text=ARCHITECTURES)
    by_kind: dict[str, set[str]] = {}
    for name in of("test_behaviour", ran):
        kind, device = name[name.index("[") + 1 : -1].split("-", 1)
        by_kind.setdefault(kind, set()).add(device)
    assert len(by_kind) == 20
    for found in by_kind.values():
        assert "cuda" in found
        assert len({device.split("-")[0] for device in found - {"cuda"}}) == times
        assert ("sm100-lazy" in found) == ("sm100-eager" in found)
    assert {device for found in by_kind.values() for device in found} == {
        "sm80-any",
        "sm90-any",
        "sm100-lazy",
        "sm100-eager",
        "cuda",
    }


@pytest.mark.parametrize(
    "arguments", [("test_it.py::test_matrix",), ("-k", "test_matrix"), ("-k", "first or second or third")], ids=str
)
def test_tests_picked_by_name_all_run(run, arguments) -> None:
    assert len(of("test_matrix", run(*arguments)[0])) == 30


def test_all_processes_draw_the_same(run) -> None:
    ran, _ = run("-p", "xdist", "--numprocesses", "2", "--seed", "1")
    assert ran == run("--seed", "1")[0]
    assert len(of("test_matrix", run("-p", "xdist", "--numprocesses", "2")[0])) == 5


def test_a_failure_names_the_seed_though_quiet(run) -> None:
    _, printed = run("-qq", "--seed", "7", text=MATRIX.replace('"wrong"', "kind"), status=1)
    assert "drawn with --seed 7" in printed


def test_values_that_no_drawn_set_has_come_first(run) -> None:
    for seed in "123":
        matrix = of("test_matrix", run("--seed", seed, text=MATRIX.replace("sampled(5)", "sampled(12)"))[0])
        assert len(matrix) == 12
        assert {int(name[:-1].split("-")[1]) for name in matrix} == {*range(9), 99}
