"""`python -m deep_gemm cache ACTION`: what the disk cache holds, whether it is intact, and deleting of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import jit


def cache(arguments: argparse.Namespace) -> int:
    """The disk cache of compiled kernels."""
    root = jit.cache_dir()
    if root is None:
        raise RuntimeError("there is no cache directory: neither DG_JIT_CACHE_DIR nor HOME is set")
    if arguments.action == "list":
        return list_entries()
    if arguments.action == "size":
        return print_sizes(root)
    if arguments.action == "verify":
        return verify(root, arguments.remove)
    if arguments.action == "pack":
        count = jit.pack_cache(arguments.file, targets=arguments.target or ())
        print(f"{count} kernels of {root} in {arguments.file} ({Path(arguments.file).stat().st_size / 1e6:.1f} MB)")
        return 0
    if arguments.action == "unpack":
        print(f"{jit.unpack_cache(arguments.file)} new kernels in {root}, of {arguments.file}")
        return 0
    if arguments.action == "clear":
        return print_deleted(root, jit.clear_cache())
    if arguments.max_mb is None and arguments.older_than is None:
        raise ValueError("prune wants to know what to keep: --max-mb, --older-than DAYS, or both")
    most = None if arguments.max_mb is None else arguments.max_mb * 1e6
    return print_deleted(root, jit.prune_cache(max_bytes=most, older_than_days=arguments.older_than))


def list_entries() -> int:
    for entry in jit.list_cache():
        print(
            f"{entry.created}  {entry.target:8s} {entry.output:6s} {entry.image_bytes / 1e3:8.1f} kB  "
            f"{entry.compile_seconds:5.1f} s  {entry.name}.{entry.key}"
        )
    return 0


def print_sizes(root: Path) -> int:
    meaning = {"kernels": "kernels", "tuned": "winners", "failed": "sources", "drafts": "drafts"}
    sizes = jit.cache_sizes()
    print(root)
    for part, (count, size_bytes) in sizes.items():
        print(f"  {part:7s} {count:6d} {meaning[part]:8s} {size_bytes / 1e6:10.1f} MB")
    print(f"  {'all':22s} {sum(size_bytes for _, size_bytes in sizes.values()) / 1e6:10.1f} MB")
    return 0


def verify(root: Path, remove: bool) -> int:
    count, _ = jit.cache_sizes()["kernels"]
    damaged = jit.verify_cache(remove=remove, progress=True)
    for entry in damaged:
        print(f"damaged: {entry.path}: {entry.problem}")
    print(f"{count} kernels in {root}: {len(damaged) or 'none'} damaged" + (", deleted" if remove and damaged else ""))
    return 1 if damaged and not remove else 0


def print_deleted(root: Path, deleted: int) -> int:
    count, size_bytes = jit.cache_sizes()["kernels"]
    print(f"deleted {deleted} kernels; {count} are left in {root} ({size_bytes / 1e6:.1f} MB)")
    return 0
