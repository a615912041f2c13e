"""The kernels on disk (docs/environment.md, "Where kernels are kept"): listing, checking and deleting them."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._extension import C
from ._progress import progress as with_progress

FACTS = "kernel.json"
IMAGES = {"cubin": "kernel.cubin", "ptx": "kernel.ptx", "driver_ptx": "kernel.ptx"}


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
    hidden_waits: str  # ptxas's reason for waiting where the source does not; else empty


@dataclass(frozen=True)
class DamagedEntry:
    """An entry of the disk cache that no process would load."""

    path: Path
    problem: str


_JSON_FIELDS = [field for field in CacheEntry.__dataclass_fields__ if field != "path"]


def cache_dir() -> Path | None:
    """Where compiled kernels are kept, or None where there is no place for them."""
    directory = str(C.jit_settings()["cache_dir"])
    return Path(directory) if directory else None


def list_cache() -> list[CacheEntry]:
    """The kernels in the disk cache, by name. Entries that cannot be read are left out."""
    entries = []
    for directory in _directories(cache_dir()):
        try:
            entries.append(_read(directory)[0])
        except (OSError, ValueError):
            continue
    return entries


def cache_sizes() -> dict[str, tuple[int, int]]:
    """Entries and bytes of each part of the disk cache: "kernels", "tuned", "failed" and "drafts"."""
    sizes = {}
    root = cache_dir()
    for part in ("kernels", "tuned", "failed", "drafts"):
        found = [] if root is None else list((root / part).glob("*"))
        sizes[part] = len(found), sum(map(_size_of, found))
    return sizes


def verify_cache(
    *, only: Sequence[str] | None = None, remove: bool = False, progress: bool = False
) -> list[DamagedEntry]:
    """Ask of every kernel of the disk cache what is asked when it is loaded: is it what was written, and by whom.

    A process that needs a damaged entry notices by itself, and compiles it again; this finds them all at once.

    Args:
        only: `<name>.<key>` of the kernels to ask; by default all.
        remove: delete damaged entries.
        progress: show a progress bar on stderr, if that is a terminal.

    Returns:
        The damaged entries, each with what is wrong with it.

    Raises:
        RuntimeError: a damaged entry could not be deleted.
    """
    directories = [path for path in _directories(cache_dir()) if only is None or path.name in only]
    damaged = []
    for directory in with_progress(directories, "verifying", "kernels", len(directories), progress):
        problem = str(C.jit_entry_problem(directory.name))
        if problem and directory.exists():  # another process may have deleted it meanwhile
            damaged.append(DamagedEntry(directory, problem))
    if remove:
        _remove([entry.path for entry in damaged])
    return damaged


def clear_cache() -> int:
    """Delete every kernel of the disk cache, damaged ones too, and say how many. Loaded kernels stay loaded.

    What DG_AUTOTUNE measured goes as well.

    Processes that are compiling meanwhile lose nothing: what they finish appears in the emptied cache.

    Raises:
        RuntimeError: an entry could not be deleted.
    """
    root = cache_dir()
    if root is None:
        return 0
    shutil.rmtree(root / "failed", ignore_errors=True)
    shutil.rmtree(root / "tuned", ignore_errors=True)
    return _remove(_directories(root))


def prune_cache(*, max_bytes: float | None = None, older_than_days: float | None = None) -> int:
    """Delete the kernels of the disk cache that were unused for longest, and say how many. Loaded kernels stay loaded.

    When a kernel was used is noted once a day, in the time of its directory.

    Args:
        max_bytes: delete until the kernels that are left take no more than this, sources included.
        older_than_days: delete kernels that were not used for longer than this.

    Raises:
        RuntimeError: an entry could not be deleted.
    """
    deleted = 0
    if older_than_days is not None:
        limit = time.time() - older_than_days * 86400
        deleted += _remove([path for path in _directories(cache_dir()) if path.stat().st_mtime < limit])
    if max_bytes is not None:
        deleted += int(C.jit_prune_cache(int(max_bytes)))
    return deleted


def _directories(root: Path | None) -> list[Path]:
    """Only what the cache itself makes: DG_JIT_CACHE_DIR may name a directory with other things in it."""
    return [] if root is None else sorted(path for path in (root / "kernels").glob("*.*") if path.is_dir())


def _size_of(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in files:
        try:
            total += file.lstat().st_size
        except OSError:  # deleted meanwhile
            continue
    return total


def _read(directory: Path) -> tuple[CacheEntry, dict[str, Any]]:
    """An entry, and all that its kernel.json says. Raises OSError or ValueError, with a sentence, where it is none."""
    path = directory / FACTS
    if not path.is_file():  # nor a pipe, on which reading would wait
        raise ValueError(f"its {FACTS} is missing")
    try:
        facts = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {FACTS} is no JSON: {error}") from error
    missing = [field for field in _JSON_FIELDS if field not in facts] if isinstance(facts, dict) else _JSON_FIELDS
    if missing:
        raise ValueError(f"its {FACTS} does not say {', '.join(missing)}")
    return CacheEntry(path=directory, **{field: facts[field] for field in _JSON_FIELDS}), facts


def _remove(directories: Sequence[Path]) -> int:
    """Delete entries, as many as can be. Returns how many."""
    failures = []
    for directory in directories:
        try:
            _remove_one(directory)
        except OSError as error:
            failures.append(error)
    if failures:
        done = len(directories) - len(failures)
        raise RuntimeError(f"deleted {done} of {len(directories)} entries of the cache: {failures[0]}")
    return len(directories)


def _remove_one(directory: Path) -> None:
    """By one rename, so that other processes see all of it or nothing."""
    drafts = directory.parent.parent / "drafts"
    drafts.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="removed.", dir=drafts, ignore_cleanup_errors=True) as away,
        contextlib.suppress(FileNotFoundError),  # another process was faster
    ):
        directory.rename(Path(away) / directory.name)
