"""What somebody else could have put into the kernel cache is not loaded: it would run as this user."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cached import COMPILE, entry
from fresh import check

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
STRANGER = 4711


def writable_by_all(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def writable_by_a_group(path: Path) -> None:
    os.chown(path, -1, STRANGER)
    path.chmod(path.stat().st_mode | 0o020)


def of_another_user(path: Path) -> None:
    os.chown(path, STRANGER, -1)


WAYS = [
    pytest.param(writable_by_all, "every user may write {}"),
    pytest.param(writable_by_a_group, f"group {STRANGER} may write {{}}", marks=needs_root),
    pytest.param(of_another_user, f"{{}} belongs to user {STRANGER}", marks=needs_root),
]
TWICE = COMPILE + "images = {compile() for _ in range(2)}\nresult = [*images, jit.statistics()]"


@pytest.mark.parametrize(("expose", "said"), WAYS)
@pytest.mark.parametrize("file", ["", "kernel.cubin", "kernel.json"])
def test_an_entry_that_others_can_change_is_compiled_again(filled, file: str, expose: Callable, said: str) -> None:
    """Once, and what is kept then is trusted."""
    cache, image = filled
    path = entry(cache) / file
    expose(path)
    outcome = check(TWICE, DG_JIT_CACHE_DIR=cache)
    assert outcome.result[0] == image
    assert outcome.result[1]["compiled"] == 1
    (warning,) = outcome.stderr.splitlines()
    assert f"untrusted cache entry {entry(cache)}: {said.format(path)}" in warning
    later = check(TWICE, DG_JIT_CACHE_DIR=cache)
    assert (later.result[1]["compiled"], later.stderr) == (0, "")


@pytest.mark.parametrize(("expose", "said"), WAYS)
@pytest.mark.parametrize("folder", ["", "kernels", "drafts"])
def test_a_cache_that_others_can_change_is_not_used(filled, folder: str, expose: Callable, said: str) -> None:
    """Kernels stay in memory, and nothing is written either. Where only drafts are open, entries are still read."""
    cache, image = filled
    path = cache / folder
    expose(path)
    before = sorted(cache.rglob("*"))
    outcome = check(TWICE.replace("range(2)", "range(2)} | {compile(factor='3.0f')"), DG_JIT_CACHE_DIR=cache)
    assert image in outcome.result[:2]
    assert outcome.result[2]["compiled"] == (1 if folder == "drafts" else 2)
    (warning,) = outcome.stderr.splitlines()
    assert "kept in memory only: " + said.format(path) in warning
    assert sorted(cache.rglob("*")) == before


@needs_root
def test_what_root_made_is_trusted(filled) -> None:
    """A cache that was baked into an image. Everybody may read it, and nobody is asked to own it."""
    cache, _ = filled
    for folder in [cache, *cache.parents]:
        if folder != Path("/tmp") and Path("/tmp") in folder.parents:
            folder.chmod(folder.stat().st_mode | 0o755)
    compiler = "C.jit_cache_key('x', 'x', HOPPER_TARGET, 'cubin')  # which the other user may not be able to read\n"
    code = f"{compiler}os.setegid({STRANGER}); os.seteuid({STRANGER})\n{TWICE}\nos.seteuid(0)"
    outcome = check(code, DG_JIT_CACHE_DIR=cache)
    assert (outcome.result[1]["compiled"], outcome.stderr) == (0, "")


def test_a_directory_like_tmp_serves(tmp_path) -> None:
    """Its sticky bit keeps others from what is ours."""
    cache = tmp_path / "like tmp"
    cache.mkdir()
    cache.chmod(0o1777)
    for compiled in (1, 0):
        outcome = check(TWICE, DG_JIT_CACHE_DIR=cache)
        assert (outcome.result[1]["compiled"], outcome.stderr) == (compiled, "")
    (cache / "kernels").chmod(0o1777)
    assert check(TWICE, DG_JIT_CACHE_DIR=cache).result[1]["compiled"] == 1


@pytest.mark.skipif(os.getuid() != os.getgid(), reason="this user has no private group")
def test_the_users_private_group_may_write(filled) -> None:
    """The umask 002 of systems that give each user such a group."""
    cache, _ = filled
    for path in [cache, *cache.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o020)
    outcome = check(TWICE, DG_JIT_CACHE_DIR=cache)
    assert (outcome.result[1]["compiled"], outcome.stderr) == (0, "")


def test_nobody_else_may_write_what_is_made(cache) -> None:
    """Whatever the umask."""
    code = "os.umask(0)\n" + COMPILE + "compile()\ntry: C.jit_compile('bad', 'int x = y;', HOPPER_TARGET, 'cubin')\n"
    check(code + "except RuntimeError: pass", DG_JIT_CACHE_DIR=cache)
    made = [cache, *cache.rglob("*")]
    assert {"kernel.cubin", "kernel.json", "lock", "failed"} <= {path.name for path in made}
    assert not [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o022]


def test_a_winner_that_others_can_change_is_measured_again(cache) -> None:
    """What DG_AUTOTUNE kept."""
    code = """
import deep_gemm
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8
measured = []
C.set_autotune(True, 0, True, lambda config: measured.append(config) or 1.0 * len(measured))
a, b = per_token_cast_to_fp8(torch.ones(16, 256), False), per_block_cast_to_fp8(torch.ones(128, 256), False)
deep_gemm.fp8_gemm_nt(a, b, torch.empty(16, 128, dtype=torch.bfloat16))
result = len(measured) > 0
"""
    assert check(code, DG_JIT_CACHE_DIR=cache).result
    (winner,) = (cache / "tuned").iterdir()
    for path in (winner, cache / "tuned"):
        outcome = check(code, DG_JIT_CACHE_DIR=cache)
        assert (outcome.result, outcome.stderr) == (False, "")
        writable_by_all(path)
        outcome = check(code, DG_JIT_CACHE_DIR=cache)
        assert outcome.result
        assert outcome.stderr.count("what DG_AUTOTUNE measures is kept in memory only") == 1
        assert f"every user may write {path}" in outcome.stderr
