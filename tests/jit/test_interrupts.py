"""Ctrl-C ends what takes long, wherever it comes, and leaves everything usable."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cached import COMPILE
from fake_nvcc import WRITE_IMAGE, fake_nvcc
from fresh import start

# Sends SIGINT when `ready()` says so. What would go on without it ends by itself after a while: `otherwise()`.
HEAD = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told this process to ignore it

def interrupt_when(ready, otherwise=lambda: None):
    def watch():
        while not ready():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        if not over.wait(20):
            otherwise()
    threading.Thread(target=watch, daemon=True).start()
over = threading.Event()
"""

# When all blocks are running, each on a host thread of its own, all but one end. That one counts until it is told to.
SPIN = """
struct Params { int* end; int* arrived; int* count; long long last; };
extern "C" __global__ void spin(const __grid_constant__ Params params) {
    if (threadIdx.x == 0) {
        atomicAdd(params.arrived, 1);
        while (*(volatile int*)params.arrived % gridDim.x != 0) {}
        while (blockIdx.x == params.last && *(volatile int*)params.end == 0) atomicAdd(params.count, 1);
    }
}
"""


@pytest.mark.parametrize("blocks", [1, 4])
def test_a_simulator_run_can_be_interrupted(blocks: int) -> None:
    """Whichever of the simulator's threads runs what takes long."""
    code = f"""
from deep_gemm import simulator
result = []
for last in range({blocks}):
    end, arrived, count = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    def run():
        C.jit_launch("spin", {SPIN!r}, {blocks}, 32, 1, 0, False, [end, arrived, count], [last])
    over.clear()
    interrupt_when(lambda: count.item() > 0, lambda end=end: end.fill_(1))
    with simulator.options(threads={blocks}):
        try:
            run()
            result.append("it ended by itself")
        except KeyboardInterrupt:
            result.append("too late" if end.item() else "interrupted")
        over.set()
        before = count.item()
        time.sleep(0.05)
        if count.item() != before:
            result.append("a thread is still running")
        end.fill_(1)
        run()  # usable again
"""
    outcome = start(HEAD + code).wait()
    assert (outcome.status, outcome.result) == (0, ["interrupted"] * blocks), outcome.stderr


def test_a_product_on_cpu_tensors_can_be_interrupted() -> None:
    """Entered by the way of the calls of every layer. D is then written in part."""
    code = """
import deep_gemm
from deep_gemm import simulator
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8
def multiply(m, n, k):
    a, b = per_token_cast_to_fp8(torch.ones(m, k), False), per_block_cast_to_fp8(torch.ones(n, k), False)
    d = torch.full((m, n), float("nan"), dtype=torch.bfloat16)
    def call():
        deep_gemm.fp8_gemm_nt(a, b, d)
    return call, d
long, d = multiply(2048, 4096, 2048)
interrupt_when(lambda: not d.isnan().all())
try:
    long()
    result = "it ended by itself"
except KeyboardInterrupt:
    result = "interrupted" if d.isnan().any() else "too late"
over.set()
short, d = multiply(16, 128, 256)
short()
assert (d == 256).all()
"""
    outcome = start(HEAD + code).wait()
    assert (outcome.status, outcome.result) == (0, "interrupted"), outcome.stderr


@contextmanager
def held_locks(cache: Path, released_by: Path) -> Iterator[None]:
    """Another process compiles everything, until a file appears, or for a while."""
    cache.mkdir()
    lock = (cache / "lock").open("w")
    fcntl.lockf(lock, fcntl.LOCK_EX)

    def release() -> None:
        deadline = time.monotonic() + 20
        while not released_by.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        lock.close()

    thread = threading.Thread(target=release)
    thread.start()
    yield
    thread.join()


WAITING = (
    HEAD
    + COMPILE
    + """
entered = threading.Event()
def shortly_after():
    entered.wait()
    time.sleep(0.2)
    return True
interrupt_when(shortly_after)
entered.set()
try:
    CALL
    result = "it ended by itself"
except KeyboardInterrupt:
    result = "interrupted" if jit.statistics()["compiled"] == 0 else "too late"
over.set()
open(RELEASE, "w").close()
AFTER
assert jit.statistics()["compiled"] > 0
assert not list(os.scandir(os.path.join(os.environ["DG_JIT_CACHE_DIR"], "drafts")))
"""
)
KERNELS = '[("doubler", TEXT % f"{i}.0f") for i in range(4)]'


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("compile()", "compile()"),
        # The main thread waits for another one, which waits for another process.
        (
            "other = threading.Thread(target=compile); other.start(); time.sleep(0.05); compile()",
            "other.join(); compile()",
        ),
        (
            f"jit.compile_many({KERNELS}, HOPPER_TARGET, workers=2)",
            f"assert threading.active_count() <= 2; results = jit.compile_many({KERNELS}, HOPPER_TARGET); "
            "assert not any(result.error for result in results)",
        ),
    ],
    ids=["kernel", "thread", "compile_many"],
)
def test_a_wait_for_another_process_can_be_interrupted(cache, tmp_path, call: str, after: str) -> None:
    release = tmp_path / "release"
    code = WAITING.replace("CALL", call).replace("AFTER", after).replace("RELEASE", repr(str(release)))
    with held_locks(cache, release):
        outcome = start(code, DG_JIT_CACHE_DIR=cache).wait()
    assert (outcome.status, outcome.result) == (0, "interrupted"), outcome.stderr


# nvcc, which starts programs of its own and waits for them.
HANGS = "echo half > $TMPDIR/half; sleep 60 & echo $! >> {started}; wait"


@pytest.mark.parametrize(
    ("call", "ended_by"),
    [
        ("compile()", "KeyboardInterrupt()"),
        (f"jit.compile_many({KERNELS}, HOPPER_TARGET, workers=2)", "KeyboardInterrupt()"),
        (
            "import runpy; sys.argv[1:] = ['precompile', '576x7168', '--max-m', '64']; runpy.run_module('deep_gemm', "
            "run_name='__main__')",
            "SystemExit(130)",
        ),
    ],
    ids=["kernel", "compile_many", "precompile"],
)
def test_nvcc_is_ended(cache, tmp_path, call: str, ended_by: str) -> None:
    """With what it started, and its files are gone."""
    started, work = tmp_path / "started", tmp_path / "work"
    work.mkdir()
    compiler = fake_nvcc(tmp_path, HANGS.format(started=started))
    code = (
        HEAD
        + COMPILE
        + f"""
interrupt_when(lambda: os.path.exists({str(started)!r}))
try:
    {call}
    result = "it ended by itself"
except BaseException as error:
    result = repr(error)
over.set()
assert jit.statistics()["compiled"] == 0
assert not os.listdir({str(work)!r})
open({str(compiler)!r}, "w").write({fake_nvcc(tmp_path, WRITE_IMAGE).read_text()!r})
compile()
"""
    )
    fake_nvcc(tmp_path, HANGS.format(started=started))
    environment = {"DG_JIT_USE_NVRTC": 0, "DG_JIT_NVCC_COMPILER": compiler, "TMPDIR": work}
    outcome = start(code, DG_JIT_CACHE_DIR=cache, **environment).wait()
    assert (outcome.status, outcome.result) == (0, ended_by), outcome.stderr
    for pid in started.read_text().split():
        deadline = time.monotonic() + 10  # until init has taken note of it
        while is_running(int(pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_running(int(pid))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_stopped_thread_says_so(cache, tmp_path) -> None:
    """The thread that waits for others can end their waits, and they can work again."""
    release = tmp_path / "release"
    code = f"""
import threading, time
errors = []
def work():
    C.stop_threads([threading.get_native_id()])
    try:
        compile()
    except RuntimeError as error:
        errors.append(str(error))
    C.let_threads_go([threading.get_native_id()])
    open({str(release)!r}, "w").close()
    compile()
thread = threading.Thread(target=work)
thread.start()
thread.join()
result = [errors, jit.statistics()["compiled"]]
"""
    with held_locks(cache, release):
        outcome = start(COMPILE + code, DG_JIT_CACHE_DIR=cache).wait()
    assert outcome.result == [["deep_gemm: stopped by the thread that waits for this one"], 1], outcome.stderr
