"""A limit on the size of the kernel cache: what was unused for longest goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cached import COMPILE, counts, entry
from fresh import check, run, start

DAY = 86400


def factors(cache: Path) -> set[str]:
    """Which kernels are kept."""
    return {path.read_text().split("*= ")[1].split("f;")[0] for path in cache.glob("kernels/*/kernel.cu")}


def fill(cache: Path, count: int) -> None:
    """Kernels of 0.6 MB each, by their factors: 1.0 was used last, `count`.0 long before."""
    known: set[Path] = set()
    for i in range(1, count + 1):
        counts(cache, f"compile(factor='{i}.0f')")
        (path,) = set((cache / "kernels").iterdir()) - known
        os.truncate(path / "kernel.cu", 600_000)
        os.utime(path, (time.time() - i * 2 * DAY,) * 2)
        known.add(path)


@pytest.fixture
def three(cache) -> Path:
    fill(cache, 3)
    return cache


def test_without_a_limit_everything_stays(three):
    counts(three, "compile(factor='9.0f')")
    assert factors(three) == {"1.0", "2.0", "3.0", "9.0"}


def test_the_oldest_go_when_a_kernel_is_kept(three):
    counts(three, "compile(factor='9.0f')", DG_JIT_CACHE_MAX_MB=1)
    assert factors(three) == {"1.0", "9.0"}
    assert not list((three / "drafts").iterdir())


def test_use_counts_not_age(three):
    """It is noted once a day, so that reading kernels hardly writes."""
    counts(three, "compile(factor='3.0f')")
    counts(three, "compile(factor='9.0f')", DG_JIT_CACHE_MAX_MB=1)
    assert factors(three) == {"3.0", "9.0"}
    recent = (time.time() - DAY / 2,) * 2
    for path in (three / "kernels").iterdir():
        os.utime(path, (time.time() - 3 * DAY,) * 2)
        before = path.stat().st_mtime
        check(f"assert C.jit_entry_problem({path.name!r}) == ''", DG_JIT_CACHE_DIR=three)
        assert path.stat().st_mtime == before  # to look is not to use
        os.utime(path, recent)
    counts(three, "compile(factor='3.0f')")
    assert {path.stat().st_mtime for path in (three / "kernels").iterdir()} == {recent[0]}


def test_the_kernel_just_kept_stays_whatever_its_size(cache):
    """One that is larger than the limit goes when the next one comes."""
    code = """
TEXT = "//" + "x" * 1_100_000 + TEXT
compile()
result = [len(jit.list_cache())]
TEXT = TEXT[2 + 1_100_000:]
compile(factor="3.0f")
result += [len(jit.list_cache()), C.jit_prune_cache(100_000), C.jit_prune_cache(0), len(jit.list_cache())]
"""
    assert check(COMPILE + code, DG_JIT_CACHE_DIR=cache, DG_JIT_CACHE_MAX_MB=1).result == [1, 1, 0, 1, 0]


def test_processes_that_evict_at_once_lose_nothing_new(cache):
    fill(cache, 6)
    running = [
        start(COMPILE + f"compile(factor='{i}.0f')", DG_JIT_CACHE_DIR=cache, DG_JIT_CACHE_MAX_MB=1)
        for i in range(10, 16)
    ]
    outcomes = [process.wait() for process in running]
    assert [(outcome.status, outcome.stderr) for outcome in outcomes] == [(0, "")] * 6
    assert factors(cache) == {"1.0", *(f"{i}.0" for i in range(10, 16))}


@pytest.mark.parametrize("value", ["-1", "1.5", "many"])
def test_a_limit_that_is_none_is_refused(value):
    outcome = run("jit.settings()", DG_JIT_CACHE_MAX_MB=value)
    assert f"DG_JIT_CACHE_MAX_MB must be a whole number of megabytes (0: no limit), got '{value}'" in outcome.stderr


def test_what_would_not_be_loaded_is_told(filled):
    """For `python -m deep_gemm cache verify`: the reasons that a load would give."""
    cache, _ = filled
    code = f"result = C.jit_entry_problem({entry(cache).name!r})"
    assert check(code, DG_JIT_CACHE_DIR=cache).result == ""
    assert check("result = C.jit_entry_problem('none.0')", DG_JIT_CACHE_DIR=cache).result == "there is no such entry"
    entry(cache).chmod(0o777)
    assert check(code, DG_JIT_CACHE_DIR=cache).result == f"every user may write {entry(cache)}"
    entry(cache).chmod(0o755)
    os.truncate(entry(cache) / "kernel.cubin", 100)
    assert "another size" in check(code, DG_JIT_CACHE_DIR=cache).result
