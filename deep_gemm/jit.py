"""The kernel compiler and its cache, as the user sees them: settings, what is cached, compiling beforehand."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._extension import C

__all__ = [
    "CacheEntry",
    "CompileResult",
    "cache_dir",
    "clear_cache",
    "compile_many",
    "compiler_info",
    "list_cache",
    "settings",
    "statistics",
]


@dataclass(frozen=True)
class CacheEntry:
    """One compiled kernel in the disk cache."""

    name: str
    key: str
    path: Path  # the entry's directory: kernel.cu, kernel.cubin or kernel.ptx, kernel.json
    target: str
    output: str
    compiler: str
    created: str  # UTC
    image_bytes: int
    compile_seconds: float
    registers: int
    spill_bytes: int
    wgmma_waits: str  # ptxas's reason for waiting for wgmma where the source does not; else empty


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
    """What this process did: kernels `compiled`, `found_on_disk` and `loaded`, and `compile_seconds`."""
    return dict(C.jit_statistics())


def cache_dir() -> Path | None:
    """Where compiled kernels are kept, or None where there is no place for them."""
    directory = str(C.jit_settings()["cache_dir"])
    return Path(directory) if directory else None


def list_cache() -> list[CacheEntry]:
    """The kernels in the disk cache, by name. Entries that cannot be read are left out."""
    root = cache_dir()
    if root is None:
        return []
    entries = []
    for path in sorted((root / "cache").glob("*/kernel.json")):
        try:
            if not path.is_file():  # a FIFO would be waited for
                continue
            facts = json.loads(path.read_text())
            entries.append(CacheEntry(path=path.parent, **{field: facts[field] for field in _JSON_FIELDS}))
        except (OSError, ValueError, KeyError):
            continue
    return entries


_JSON_FIELDS = [field for field in CacheEntry.__dataclass_fields__ if field != "path"]


def clear_cache() -> int:
    """Delete every kernel of the disk cache, damaged ones too, and say how many. Loaded kernels stay loaded.

    What DG_AUTOTUNE measured goes as well.

    Processes that are compiling meanwhile lose nothing: what they finish appears in the emptied cache.
    """
    root = cache_dir()
    if root is None:
        return 0
    # Only what the cache itself makes: DG_JIT_CACHE_DIR may name a directory with other things in it.
    entries = [path for path in (root / "cache").glob("*.*") if path.is_dir()]
    for path in entries:
        shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(root / "failed", ignore_errors=True)
    shutil.rmtree(root / "tuned", ignore_errors=True)
    return len(entries)


@contextmanager
def worker_threads(count: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads that an exception in the `with` block ends soon, Ctrl-C above all.

    What has not begun is dropped; waits for other processes and for nvcc end. NVRTC finishes the kernels it has begun.
    """
    ids: list[int] = []
    pool = ThreadPoolExecutor(count, initializer=lambda: ids.append(threading.get_native_id()))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        C.stop_threads(ids)
        try:
            pool.shutdown()
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
        output: "cubin" for a GPU, "ptx" for the simulator.
        workers: kernels compiled at once; by default one for each core that this process may use. They are threads:
            NVRTC compiles programs of one process side by side (two at once on two cores: 1.75 times the speed of one).
        progress: show a progress bar on stderr.

    Returns:
        One result for each kernel, in the order given. A kernel that does not compile has its `error` set, and the
        others are compiled all the same. Interrupted (Ctrl-C), it keeps what is compiled and drops the rest.
    """
    work = list(kernels)
    workers = workers or len(os.sched_getaffinity(0))
    results: dict[int, CompileResult] = {}
    bar = _ProgressBar(len(work), target) if progress else None

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
        for done in as_completed(pending):
            results[pending[done]] = done.result()
            if bar:
                bar.advance(results.values())
    if bar:
        bar.close(results.values())
    return [results[index] for index in range(len(work))]


class _ProgressBar:
    """A bar on stderr, redrawn in place on a terminal; elsewhere only its last line appears."""

    WIDTH = 30

    def __init__(self, total: int, target: str) -> None:
        self.total = total
        self.target = target
        self.start = time.perf_counter()
        self.live = sys.stderr.isatty()

    def line(self, results: Sequence[CompileResult]) -> str:
        done = len(results)
        failed = sum(result.error is not None for result in results)
        filled = self.WIDTH * done // max(self.total, 1)
        return (
            f"compiling for {self.target} [{'#' * filled}{'.' * (self.WIDTH - filled)}] {done}/{self.total}, "
            f"{time.perf_counter() - self.start:.1f} s" + (f", {failed} failed" if failed else "")
        )

    def advance(self, results: Iterable[CompileResult]) -> None:
        if self.live:
            print(f"\r{self.line(list(results))}", end="", file=sys.stderr, flush=True)

    def close(self, results: Iterable[CompileResult]) -> None:
        print(("\r" if self.live else "") + self.line(list(results)), file=sys.stderr, flush=True)
