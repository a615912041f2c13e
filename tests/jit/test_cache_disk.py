"""The kernel cache where the disk cannot be used: it is never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cached import COMPILE, counts, entry
from fresh import check, run

TWO_KERNELS_TWICE = (
    COMPILE
    + """
for _ in range(2):
    for factor in ("2.0f", "3.0f"):
        compile(factor=factor)
result = jit.statistics()
"""
)


def assert_kept_in_memory(outcome):
    assert outcome.status == 0, outcome.stderr
    assert outcome.result["compiled"] == 2
    assert outcome.stderr.count("kept in memory only") == 1, outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1, outcome.stderr


def test_without_home():
    outcome = run(TWO_KERNELS_TWICE, HOME=None, DG_JIT_CACHE_DIR=None)
    assert_kept_in_memory(outcome)
    assert "HOME" in outcome.stderr


@pytest.mark.parametrize("place", ["/proc/deep_gemm", "/dev/null/deep_gemm"])
def test_directory_that_cannot_be_made(place):
    assert_kept_in_memory(run(TWO_KERNELS_TWICE, DG_JIT_CACHE_DIR=place))


def test_disk_that_refuses_to_write(cache):
    # A limit on file sizes stands for any error while writing: the source fits, the image does not.
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    outcome = run(limit + TWO_KERNELS_TWICE, DG_JIT_CACHE_DIR=cache)
    assert_kept_in_memory(outcome)
    assert "File too large" in outcome.stderr
    assert not list((cache / "drafts").iterdir())  # nothing half-written is left


@pytest.fixture
def tiny_disk(tmp_path) -> Iterator[Path]:
    """A file system of 16 KiB, which holds one small kernel at most."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk(tiny_disk):
    (tiny_disk / "filler").write_bytes(b"x" * 12288)
    outcome = run(TWO_KERNELS_TWICE, DG_JIT_CACHE_DIR=tiny_disk)
    assert_kept_in_memory(outcome)
    assert "No space left" in outcome.stderr


def dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere" / "at all")


@pytest.mark.parametrize("part", ["", "kernels", "drafts"])
@pytest.mark.parametrize("put", [Path.touch, dangling_link, os.mkfifo], ids=["file", "dangling link", "FIFO"])
def test_something_else_where_a_directory_belongs(cache, part: str, put) -> None:
    if part:
        cache.mkdir()
    put(cache / part)
    assert_kept_in_memory(run(TWO_KERNELS_TWICE, DG_JIT_CACHE_DIR=cache))


def test_name_that_is_too_long(tmp_path) -> None:
    outcome = run(TWO_KERNELS_TWICE, DG_JIT_CACHE_DIR=tmp_path / ("x" * 300))
    assert_kept_in_memory(outcome)
    assert "File name too long" in outcome.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
@pytest.mark.parametrize("mode", [0o700, 0o711])
def test_home_of_another_user(tmp_path, mode: int) -> None:
    """One that cannot be searched, and one that can."""
    home = tmp_path / "home"
    (home / ".deep_gemm" / "kernels").mkdir(parents=True)
    for folder in [home, *home.parents][:3]:
        folder.chmod(0o755)
    home.chmod(mode)
    code = f"""
try:  # which loads the compiler; the other user may not be able to read it
    C.jit_compile("bad", "int x = y;", HOPPER_TARGET, "cubin")
except RuntimeError:
    pass
os.seteuid(4711)
{TWO_KERNELS_TWICE}
os.seteuid(0)
"""
    assert_kept_in_memory(run(code, HOME=home, DG_JIT_CACHE_DIR=None))


@pytest.mark.parametrize("file", ["kernel.cubin", "kernel.json"])
@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, dangling_link], ids=["directory", "FIFO", "dangling link"])
def test_something_else_where_a_file_of_an_entry_belongs(filled, file: str, put) -> None:
    """It is damage: reported, and compiled again; nothing waits for a FIFO's other end."""
    cache, image = filled
    (entry(cache) / file).unlink()
    put(entry(cache) / file)
    assert check("result = len(jit.list_cache())", DG_JIT_CACHE_DIR=cache).result == (file != "kernel.json")
    outcome = check(COMPILE + "result = [compile(), jit.statistics()['compiled']]", DG_JIT_CACHE_DIR=cache)
    assert outcome.result == [image, 1]
    assert outcome.stderr.count("damaged cache entry") == 1
    assert counts(cache)[0]["compiled"] == 0


@pytest.mark.parametrize("put", [Path.touch, os.mkfifo, dangling_link], ids=["file", "FIFO", "dangling link"])
def test_something_else_where_an_entry_belongs(filled, put) -> None:
    cache, _ = filled
    path = entry(cache)
    shutil.rmtree(path)
    put(path)
    assert counts(cache)[0]["compiled"] == 1
    assert counts(cache) == ({"compiled": 0, "stored": 0, "found_on_disk": 1, "loaded": 0, "compile_seconds": 0.0}, "")


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, dangling_link], ids=["directory", "FIFO", "dangling link"])
def test_something_else_where_the_lock_belongs(cache, put) -> None:
    cache.mkdir()
    put(cache / "lock")
    for compiled in (1, 0):
        did, printed = counts(cache)
        assert (did["compiled"], printed) == (compiled, "")


def test_tilde_is_the_home_directory(tmp_path) -> None:
    for name in ("~", "~/compiled"):
        check(COMPILE + "compile()", DG_JIT_CACHE_DIR=name, HOME=tmp_path)
    assert (tmp_path / "kernels").is_dir()
    assert (tmp_path / "compiled" / "kernels").is_dir()
    outcome = run(TWO_KERNELS_TWICE, DG_JIT_CACHE_DIR="~/compiled", HOME=None)
    assert_kept_in_memory(outcome)
    assert "HOME is not set" in outcome.stderr


def test_read_only_directory_is_still_read():
    """Entries that are there are used; new kernels stay in memory."""
    # Not under tmp_path, which only its owner may enter.
    cache = Path(tempfile.mkdtemp(prefix="deep_gemm-read-only-"))
    code = (
        COMPILE
        + f"""
compile(factor="2.0f")
for folder, _, _ in os.walk({str(cache)!r}):
    os.chmod(folder, 0o555)
{os.geteuid() == 0} and os.seteuid(65534)  # permissions mean nothing to root
before = jit.statistics()["compiled"]
compile(factor="2.0f")
between = jit.statistics()["compiled"]
compile(factor="3.0f")
compile(factor="3.0f")
after = jit.statistics()["compiled"]
{os.geteuid() == 0} and os.seteuid(0)
result = [before, between, after]
"""
    )
    try:
        outcome = check(code, DG_JIT_CACHE_DIR=cache)
        assert outcome.result == [1, 1, 2]
        assert outcome.stderr.count("kept in memory only") == 1
        assert "Permission denied" in outcome.stderr
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(cache)], check=True)
        shutil.rmtree(cache)
