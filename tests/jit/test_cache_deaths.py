"""The kernel cache and processes that die."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from cached import COMPILE, TEXT, counts
from fake_nvcc import WRITE_IMAGE, fake_nvcc
from fresh import check, start


def test_killed_compiler(cache, tmp_path):
    compiler = fake_nvcc(tmp_path, "kill -9 $$")
    code = (
        COMPILE
        + f"""
try:
    compile()
    result = "compiled"
except RuntimeError as error:
    result = str(error)
    open({str(compiler)!r}, "w").write({fake_nvcc(tmp_path, WRITE_IMAGE).read_text()!r})
    assert bytes.fromhex(compile()) == b"image\\n"  # a failure is not remembered
"""
    )
    fake_nvcc(tmp_path, "kill -9 $$")
    outcome = check(code, DG_JIT_CACHE_DIR=cache, DG_JIT_USE_NVRTC=0, DG_JIT_NVCC_COMPILER=compiler)
    assert "was killed by signal 9" in outcome.result
    assert "ran out of memory" in outcome.result
    kept = outcome.result.split("The source is kept in ")[1].strip()
    assert Path(kept).read_text() == TEXT % "2.0f"


def test_killed_process_gives_its_lock_back(cache, tmp_path):
    """The process that compiles is killed; one that waited for it compiles at once."""
    started = tmp_path / "started"
    # The first compilation lasts as long as its process.
    hang = f"[ -e {started} ] || {{ touch {started}; while kill -0 $PPID; do sleep 0.1; done; exit 1; }}"
    compiler = fake_nvcc(tmp_path, f"{hang}\n{WRITE_IMAGE}")
    environment = {"DG_JIT_CACHE_DIR": cache, "DG_JIT_USE_NVRTC": 0, "DG_JIT_NVCC_COMPILER": compiler}
    holder = start(COMPILE + "compile()", **environment)
    while not started.exists():
        time.sleep(0.01)
    waiter = start(COMPILE + "compile()\nresult = jit.statistics()", **environment)
    time.sleep(0.3)
    os.kill(holder.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    outcome = waiter.wait()
    assert holder.wait().status == -signal.SIGKILL
    assert outcome.status == 0, outcome.stderr
    assert outcome.result["compiled"] == 1
    assert time.monotonic() - killed_at < 20  # far below the patience of 120 s


def test_leftovers_of_killed_processes_are_removed(cache):
    old, new = cache / "drafts" / "old", cache / "drafts" / "new"
    for draft in (old, new):
        draft.mkdir(parents=True)
        (draft / "kernel.cu").write_text("half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    counts(cache)
    assert not old.exists()
    assert new.exists()


def test_leftovers_go_where_everything_is_cached(filled):
    """Also those of a process that died before anything was kept, and of no other process's store."""
    cache, _ = filled
    old = cache / "drafts" / "old"
    old.mkdir()
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert counts(cache)[0]["compiled"] == 0
    assert not old.exists()


def test_leftovers_of_nvcc_are_removed(cache, tmp_path):
    """Its files are not in the cache."""
    temporary = tmp_path / "temporary"
    old, new, foreign = (temporary / name for name in ("deep_gemm-nvcc-old", "deep_gemm-nvcc-new", "others"))
    for folder in (old, new, foreign):
        folder.mkdir(parents=True)
    for folder in (old, foreign):
        os.utime(folder, (time.time() - 7200, time.time() - 7200))
    compiler = fake_nvcc(tmp_path, WRITE_IMAGE)
    counts(cache, DG_JIT_USE_NVRTC=0, DG_JIT_NVCC_COMPILER=compiler, TMPDIR=temporary)
    assert sorted(temporary.iterdir()) == sorted([new, foreign])


def test_deleted_cache_directory_is_made_again(cache):
    did, printed = counts(cache, f"compile()\nimport shutil\nshutil.rmtree({str(cache)!r})\ncompile(factor='3.0f')")
    assert (did["compiled"], printed) == (2, "")
    assert counts(cache, "compile(factor='3.0f')")[0]["compiled"] == 0
