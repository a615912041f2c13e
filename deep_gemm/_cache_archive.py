"""Kernels of the disk cache as one file, for an image or for other machines."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ._disk_cache import _directories, _read, cache_dir, verify_cache
from ._extension import C

_FILES = ("kernel.cu", "kernel.cubin", "kernel.json", "kernel.ptx")
_MEMBER = re.compile(r"kernels/([A-Za-z0-9_]+\.[0-9a-f]{32})/(" + "|".join(map(re.escape, _FILES)) + ")")


def _root() -> Path:
    root = cache_dir()
    if root is None:
        raise RuntimeError("there is no cache directory: neither DG_JIT_CACHE_DIR nor HOME is set")
    return root


def pack_cache(file: str | Path, *, targets: Sequence[str] = ()) -> int:
    """Write the kernels of the disk cache into a compressed tar file, and say how many.

    Equal kernels make equal files: names in order, no times, no owners. Damaged entries are left out.

    Args:
        file: to write; it appears when it is complete.
        targets: only kernels for these ("sm_90a"); by default all.

    Raises:
        RuntimeError: there is no cache directory.
        OSError: the file cannot be written.
    """
    path, count = Path(file), 0
    with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=path.name, delete=False) as draft:
        try:
            with tarfile.open(fileobj=draft, mode="w:xz") as archive:
                for directory in _directories(_root()):
                    if str(C.jit_entry_problem(directory.name)):
                        continue
                    if targets and _read(directory)[0].target not in targets:
                        continue
                    for name in filter(lambda name: (directory / name).is_file(), _FILES):
                        content = (directory / name).read_bytes()
                        member = tarfile.TarInfo(f"kernels/{directory.name}/{name}")
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
                    count += 1
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
    return count


def unpack_cache(file: str | Path) -> int:
    """Put the kernels of a file of `pack_cache` into the disk cache, and say how many were new.

    Kernels are code that runs with the rights of every process that loads them: unpack only files from whom you trust.
    What is no entry of a cache, or not what was packed, is refused, and the cache is as it was.

    Raises:
        RuntimeError: there is no cache directory.
        ValueError: the file is none of `pack_cache`.
        OSError: it cannot be read, or the cache cannot be written.
    """
    root = _root()
    for part in ("drafts", "kernels"):
        (root / part).mkdir(mode=0o755, parents=True, exist_ok=True)
    added = []
    with tempfile.TemporaryDirectory(prefix="unpacked.", dir=root / "drafts", ignore_cleanup_errors=True) as draft:
        for name in _extract(Path(file), Path(draft)):
            target = root / "kernels" / name
            if not target.exists():
                try:
                    (Path(draft) / name).rename(target)
                except OSError:
                    if not target.exists():  # else another process was faster
                        raise
                    continue
                added.append(target)
    damaged = {entry.path for entry in verify_cache(only=[path.name for path in added], remove=True)}
    if damaged:
        names = ", ".join(sorted(path.name for path in damaged))
        raise ValueError(f"{file} must hold kernels as pack_cache wrote them, but {names} is damaged, and was left out")
    return len(added)


def _extract(file: Path, folder: Path) -> list[str]:
    """The entries of an archive, in a folder."""
    names: dict[str, None] = {}
    try:
        with tarfile.open(file, mode="r:*") as archive:
            for member in archive:
                match = _MEMBER.fullmatch(member.name)
                if match is None or not member.isreg():
                    raise ValueError(f"{file} must be a file of pack_cache, but {member.name!r} is no file of a kernel")
                content = archive.extractfile(member)
                assert content is not None
                (folder / match[1]).mkdir(mode=0o755, exist_ok=True)
                (folder / match[1] / match[2]).write_bytes(content.read())
                names[match[1]] = None
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{file} must be a file of pack_cache: {error}") from None
    return list(names)
