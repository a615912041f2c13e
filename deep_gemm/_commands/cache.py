"""`python -m deep_gemm cache ACTION`: what the disk cache holds, whether it is intact, and deleting of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import jit
from .output import Output


def cache(arguments: argparse.Namespace, output: Output) -> int:
    """The disk cache of compiled kernels."""
    root = jit.cache_dir()
    if root is None:
        raise RuntimeError("there is no cache directory: neither DG_JIT_CACHE_DIR nor HOME is set")
    output.facts |= {"action": arguments.action, "directory": str(root)}
    if arguments.action == "list":
        return list_entries(output)
    if arguments.action == "size":
        return tell_sizes(root, output)
    if arguments.action == "verify":
        return verify(root, arguments.remove, output)
    if arguments.action == "pack":
        count = jit.pack_cache(arguments.file, targets=arguments.target or ())
        size = Path(arguments.file).stat().st_size
        output.facts |= {"file": arguments.file, "kernels": count, "bytes": size}
        output.line(f"{count} kernels of {root} in {arguments.file} ({size / 1e6:.1f} MB)")
        return 0
    if arguments.action == "unpack":
        count = jit.unpack_cache(arguments.file)
        output.facts |= {"file": arguments.file, "new_kernels": count}
        output.line(f"{count} new kernels in {root}, of {arguments.file}")
        return 0
    if arguments.action == "clear":
        return tell_deleted(root, jit.clear_cache(), output)
    if arguments.max_mb is None and arguments.older_than is None:
        raise ValueError("prune wants to know what to keep: --max-mb, --older-than DAYS, or both")
    most = None if arguments.max_mb is None else arguments.max_mb * 1e6
    return tell_deleted(root, jit.prune_cache(max_bytes=most, older_than_days=arguments.older_than), output)


def list_entries(output: Output) -> int:
    kernels = output.facts["kernels"] = []
    for entry in jit.list_cache():
        kernels.append({name: str(value) if name == "path" else value for name, value in vars(entry).items()})
        output.line(
            f"{entry.created}  {entry.target:8s} {entry.output:6s} {entry.image_bytes / 1e3:8.1f} kB  "
            f"{entry.compile_seconds:5.1f} s  {entry.name}.{entry.key}"
        )
    return 0


def tell_sizes(root: Path, output: Output) -> int:
    meaning = {"kernels": "kernels", "tuned": "winners", "failed": "sources", "drafts": "drafts"}
    sizes = jit.cache_sizes()
    output.facts["sizes"] = {part: {"count": count, "bytes": size} for part, (count, size) in sizes.items()}
    output.line(root)
    for part, (count, size_bytes) in sizes.items():
        output.line(f"  {part:7s} {count:6d} {meaning[part]:8s} {size_bytes / 1e6:10.1f} MB")
    output.line(f"  {'all':22s} {sum(size_bytes for _, size_bytes in sizes.values()) / 1e6:10.1f} MB")
    return 0


def verify(root: Path, remove: bool, output: Output) -> int:
    count, _ = jit.cache_sizes()["kernels"]
    damaged = jit.verify_cache(remove=remove, progress=True)
    for entry in damaged:
        output.line(f"damaged: {entry.path}: {entry.problem}")
    how_many = f"{len(damaged) or 'none'} damaged" + (", deleted" if remove and damaged else "")
    output.line(f"{count} kernels in {root}: {how_many}")
    found = [{"path": str(entry.path), "problem": entry.problem} for entry in damaged]
    output.facts |= {"kernels": count, "damaged": found, "deleted": remove}
    return 1 if damaged and not remove else 0


def tell_deleted(root: Path, deleted: int, output: Output) -> int:
    count, size_bytes = jit.cache_sizes()["kernels"]
    output.facts |= {"deleted": deleted, "kernels": count, "bytes": size_bytes}
    output.line(f"deleted {deleted} kernels; {count} are left in {root} ({size_bytes / 1e6:.1f} MB)")
    return 0
