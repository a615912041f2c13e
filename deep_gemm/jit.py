"""The kernel compiler and its cache, as the user sees them: settings, what is cached, compiling beforehand."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ._cache_archive import pack_cache, unpack_cache
from ._disk_cache import (
    CacheEntry,
    DamagedEntry,
    cache_dir,
    cache_sizes,
    clear_cache,
    list_cache,
    prune_cache,
    verify_cache,
)
from ._extension import C
from ._progress import progress as with_progress
from ._recording import RecordedKernel, Recording, placeholder, record

__all__ = [
    "CacheEntry",
    "CompileResult",
    "DamagedEntry",
    "RecordedKernel",
    "Recording",
    "cache_dir",
    "cache_sizes",
    "clear_cache",
    "compile_many",
    "compile_recorded",
    "compiler_info",
    "list_cache",
    "pack_cache",
    "placeholder",
    "prune_cache",
    "record",
    "settings",
    "statistics",
    "unpack_cache",
    "verify_cache",
]


@dataclass(frozen=True)
class CompileResult:
    """What became of one kernel of `compile_many`."""

    name: str
    seconds: float
    error: Exception | None = None


def settings() -> dict[str, Any]:
    """The settings in force. They come from the environment, read once at the first use: see docs/environment.md."""
    return dict(C.jit_settings())


def compiler_info() -> dict[str, str]:
    """`identity` (name, version, build) and `path` of the compiler in use.

    Raises:
        RuntimeError: there is no compiler; the message says what to install.
    """
    return {name: str(value) for name, value in C.jit_compiler().items()}


def statistics() -> dict[str, Any]:
    """What this process did: kernels `compiled`, `stored`, `found_on_disk` and `loaded`, and `compile_seconds`.

    A compiled kernel that is not `stored` could not be written to the disk cache, and is kept in memory only.
    """
    return dict(C.jit_statistics())


@contextmanager
def worker_threads(count: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads that an exception in the `with` block ends soon, Ctrl-C above all.

    What has not begun is dropped; waits for other processes and for nvcc end. NVRTC finishes the kernels it has begun.
    """
    workers: list[threading.Thread] = []
    pool = ThreadPoolExecutor(count, initializer=lambda: workers.append(threading.current_thread()))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        ids = [worker.native_id for worker in workers if worker.native_id is not None]
        C.stop_threads(ids)
        try:
            # Not the pool: it forgets a thread in whose start an exception came, which then would not stop.
            for worker in workers:
                worker.join()
        finally:
            C.let_threads_go(ids)
        raise
    pool.shutdown()


def compile_many(
    kernels: Iterable[tuple[str, str]],
    target: str,
    *,
    output: str = "cubin",
    workers: int | None = None,
    progress: bool = True,
) -> list[CompileResult]:
    """Compile kernels into the disk cache, several at once, without a GPU.

    Args:
        kernels: pairs of name and source text.
        target: what to compile for, as "sm_90a".
        output: "cubin" for a GPU, "ptx" for the simulator, "driver_ptx" for a newer GPU that stands in for the target
            (`set_target`).
        workers: kernels compiled at once; by default one for each core that this process may use. They are threads:
            NVRTC compiles programs of one process side by side (two at once on two cores: 1.75 times the speed of one).
        progress: show a progress bar on stderr, if that is a terminal.

    Returns:
        One result for each kernel, in the order given. A kernel that does not compile has its `error` set, and the
        others are compiled all the same. Interrupted (Ctrl-C), it keeps what is compiled and drops the rest.
    """
    work = list(kernels)
    workers = workers or len(os.sched_getaffinity(0))
    results: dict[int, CompileResult] = {}

    def compile_one(index: int) -> CompileResult:
        name, text = work[index]
        start = time.perf_counter()
        error = None
        try:
            C.jit_compile(name, text, target, output)
        except Exception as caught:
            error = caught
        return CompileResult(name, time.perf_counter() - start, error)

    with worker_threads(max(1, min(workers, len(work)))) as pool:
        pending = {pool.submit(compile_one, index): index for index in range(len(work))}
        bar = with_progress(as_completed(pending), f"compiling for {target}", "kernels", len(work), progress)
        for done in bar:
            results[pending[done]] = done.result()
            failed = sum(result.error is not None for result in results.values())
            if failed:
                bar.set_postfix_str(f"{failed} failed")
    return [results[index] for index in range(len(work))]


def compile_recorded(
    recording: Recording, *, output: str = "cubin", workers: int | None = None, progress: bool = False
) -> list[CompileResult]:
    """Compile what `record` noted, a recording, into the disk cache. `compile_many` has the other arguments."""
    targets = dict.fromkeys(kernel.target for kernel in recording.kernels)
    return [
        result
        for target in targets
        for result in compile_many(
            [(kernel.name, kernel.text) for kernel in recording.kernels if kernel.target == target],
            target,
            output=output,
            workers=workers,
            progress=progress,
        )
    ]
