"""python -m deep_gemm cache: what it lists, checks and deletes."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from datetime import datetime
from pathlib import Path

import fresh
import pytest
from cached import COMPILE
from command_line import refuse, run, succeed

from deep_gemm._targets import HOPPER_TARGET


def facts_of(path: Path, **changes: object) -> dict:
    """What an entry's kernel.json says, after changes to it."""
    file = path / "kernel.json"
    facts = json.loads(file.read_text()) | changes
    file.write_text(json.dumps(facts))
    return facts


@pytest.fixture
def kernels(cache: Path) -> dict[str, Path]:
    """The entries of a cache with three kernels, by name."""
    fresh.check(COMPILE + "for name in ('first', 'second', 'third'): compile(name)", DG_JIT_CACHE_DIR=cache)
    return {path.name.split(".")[0]: path for path in (cache / "kernels").iterdir()}


def left_in(cache: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in (cache / "kernels").iterdir())


def test_cache_list_shows_each_kernel(cache, kernels) -> None:
    lines = succeed("cache", "list", DG_JIT_CACHE_DIR=cache).splitlines()
    assert [line.split()[-1] for line in lines] == sorted(path.name for path in kernels.values())
    assert all(f" {HOPPER_TARGET} " in line and " cubin " in line for line in lines)


def test_cache_size_adds_up_files(cache, kernels) -> None:
    (cache / "tuned").mkdir()
    (cache / "tuned" / "answer.json").write_text("x" * 3_000_000)
    printed = succeed("cache", "size", DG_JIT_CACHE_DIR=cache)
    assert re.search(r"kernels +3 kernels +0\.0 MB", printed)
    assert re.search(r"tuned +1 winners +3\.0 MB", printed)
    assert re.search(r"all +3\.0 MB", printed)


def test_cache_verify_finds_nothing_in_an_intact_cache(cache, kernels) -> None:
    assert "3 kernels" in (printed := succeed("cache", "verify", DG_JIT_CACHE_DIR=cache))
    assert "none damaged" in printed


def flip(path: Path) -> None:
    image = bytearray((path / "kernel.cubin").read_bytes())
    image[100] ^= 1
    (path / "kernel.cubin").write_bytes(image)


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "its image is not what was written": flip,
    "its image has another size": lambda path: (path / "kernel.cubin").write_bytes(b"short"),
    "no readable file": lambda path: replace_by_pipe(path / "kernel.json"),
    "kernel.ptx": lambda path: replace_by_pipe(path / "kernel.cubin"),
    "its kernel.json belongs to something else": lambda path: (path / "kernel.json").write_text("{"),
    "its kernel.json belongs to something else  ": lambda path: (path / "kernel.json").write_text("[" * 1_000_000),
    "its kernel.json belongs to something else ": lambda path: facts_of(path, key="0" * 32) and None,
}


@pytest.mark.parametrize("said", DAMAGES)
def test_cache_verify_reports_and_removes_what_is_damaged(cache, kernels, said) -> None:
    DAMAGES[said](kernels["second"])
    status, printed = run("cache", "verify", DG_JIT_CACHE_DIR=cache)
    assert status == 1
    assert f"damaged: {kernels['second']}: " in printed
    assert said.strip() in printed
    assert "1 damaged" in printed
    assert left_in(cache) == ["first", "second", "third"]
    assert "1 damaged, deleted" in succeed("cache", "verify", "--remove", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == ["first", "third"]
    assert "none damaged" in succeed("cache", "verify", DG_JIT_CACHE_DIR=cache)


def test_cache_clear(cache, kernels) -> None:
    (cache / "mine").mkdir()
    assert "deleted 3 kernels; 0 are left" in succeed("cache", "clear", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == []
    assert not list((cache / "drafts").iterdir())
    assert (cache / "mine").exists()


def used(path: Path, year: int) -> None:
    """Let an entry have been used last in a year."""
    seconds = datetime(year, 1, 1).timestamp()
    os.utime(path, (seconds, seconds))


def test_cache_prune_by_age(cache, kernels) -> None:
    (kernels["third"] / "kernel.json").unlink()
    used(kernels["first"], 2020)
    used(kernels["third"], 1980)
    assert "deleted 2 kernels; 1 are left" in succeed("cache", "prune", "--older-than", "30", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == ["second"]


def grow(kernels: dict[str, Path]) -> None:
    """A megabyte each, used last in the order second, third, first."""
    for year, name in enumerate(("second", "third", "first"), start=2020):
        (kernels[name] / "kernel.sass").write_bytes(bytes(1_000_000))
        used(kernels[name], year)


def test_cache_prune_by_size_deletes_what_was_unused_for_longest(cache, kernels) -> None:
    grow(kernels)
    assert "deleted 0 kernels" in succeed("cache", "prune", "--max-mb", "4", DG_JIT_CACHE_DIR=cache)
    assert "deleted 1 kernels; 2 are left" in succeed("cache", "prune", "--max-mb", "2.5", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == ["first", "third"]


def test_cache_prune_by_both(cache, kernels) -> None:
    grow(kernels)
    used(kernels["first"], 2100)
    printed = succeed("cache", "prune", "--max-mb", "1.5", "--older-than", "30", DG_JIT_CACHE_DIR=cache)
    assert "deleted 2 kernels; 1 are left" in printed
    assert left_in(cache) == ["first"]
    succeed("cache", "prune", "--max-mb", "0", "--older-than", "30", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prune",), "--max-mb, --older-than DAYS, or both"),
        (("prune", "--max-mb", "-1"), "a number from 0 up is wanted, not '-1'"),
        (("prune", "--older-than", "week"), "a number from 0 up is wanted, not 'week'"),
        (("list", "--remove"), "unrecognized arguments: --remove"),
        ((), "required: action"),
    ],
)
def test_cache_says_what_is_wrong(cache, kernels, arguments, said) -> None:
    assert said in refuse("cache", *arguments, DG_JIT_CACHE_DIR=cache)
    assert len(left_in(cache)) == 3


@pytest.mark.parametrize("action", ["list", "size", "verify", "clear"])
def test_cache_without_a_directory_says_so(action) -> None:
    assert "there is no cache directory" in refuse("cache", action, DG_JIT_CACHE_DIR=None, HOME=None)


@pytest.mark.parametrize("action", ["list", "size", "verify", "clear"])
def test_an_empty_cache_is_no_error(cache, action) -> None:
    succeed("cache", action, DG_JIT_CACHE_DIR=cache)


def test_a_packed_cache_is_found_elsewhere(cache, kernels, tmp_path) -> None:
    file, other = tmp_path / "kernels.tar.xz", tmp_path / "other"
    assert "3 kernels of" in succeed("cache", "pack", str(file), DG_JIT_CACHE_DIR=cache)
    again = tmp_path / "again.tar.xz"
    succeed("cache", "pack", str(again), DG_JIT_CACHE_DIR=cache)
    assert file.read_bytes() == again.read_bytes()
    assert "3 new kernels in" in succeed("cache", "unpack", str(file), DG_JIT_CACHE_DIR=other)
    assert "0 new kernels in" in succeed("cache", "unpack", str(file), DG_JIT_CACHE_DIR=other)
    assert "none damaged" in succeed("cache", "verify", DG_JIT_CACHE_DIR=other)
    assert not list((other / "drafts").iterdir())
    code = COMPILE + "compile('first'); result = jit.statistics()"
    counts = fresh.check(code, DG_JIT_CACHE_DIR=other).result
    assert (counts["compiled"], counts["found_on_disk"]) == (0, 1)


def test_a_cache_is_packed_without_what_is_damaged_or_for_other_targets(cache, kernels, tmp_path) -> None:
    file = tmp_path / "kernels.tar.xz"
    flip(kernels["second"])
    assert "2 kernels of" in succeed("cache", "pack", str(file), DG_JIT_CACHE_DIR=cache)
    assert "0 kernels of" in succeed("cache", "pack", str(file), "--target", "sm_80", DG_JIT_CACHE_DIR=cache)


@pytest.mark.parametrize("member", ["../escaped", "kernels/first.12/kernel.cu", "kernels/first.{key}/run.sh", "link"])
def test_unpacking_refuses_what_is_no_cache(cache, kernels, tmp_path, member) -> None:
    file, other = tmp_path / "kernels.tar", tmp_path / "other"
    with tarfile.open(file, "w") as archive:
        entry = tarfile.TarInfo(f"kernels/{kernels['first'].name}/kernel.json")
        archive.addfile(entry)
        entry = tarfile.TarInfo(member.format(key="0" * 32))
        if member == "link":
            entry.name, entry.type, entry.linkname = (
                f"kernels/{kernels['first'].name}/kernel.cu",
                tarfile.SYMTYPE,
                "/etc",
            )
        archive.addfile(entry)
    assert "is no file of a kernel" in refuse("cache", "unpack", str(file), DG_JIT_CACHE_DIR=other)
    assert not list((other / "kernels").iterdir())
    assert not (tmp_path / "escaped").exists()
    file.write_text("text")
    assert "must be a file of pack_cache" in refuse("cache", "unpack", str(file), DG_JIT_CACHE_DIR=other)
    assert "No such file" in refuse("cache", "unpack", str(tmp_path / "none"), DG_JIT_CACHE_DIR=other)


def test_unpacking_leaves_out_what_was_changed(cache, kernels, tmp_path) -> None:
    file, changed, other = tmp_path / "kernels.tar", tmp_path / "changed.tar", tmp_path / "other"
    succeed("cache", "pack", str(file), DG_JIT_CACHE_DIR=cache)
    name = kernels["second"].name
    with tarfile.open(file) as source, tarfile.open(changed, "w") as archive:
        for member in source:
            content = source.extractfile(member).read()
            if member.name == f"kernels/{name}/kernel.cubin":
                content = content[:100] + bytes([content[100] ^ 1]) + content[101:]
            archive.addfile(member, io.BytesIO(content))
    said = refuse("cache", "unpack", str(changed), DG_JIT_CACHE_DIR=other)
    assert f"but {name} is damaged, and was left out" in said
    assert left_in(other) == ["first", "third"]


REFUSED = """
import deep_gemm
a, b, d = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((16, 64), (32, 64), (16, 32)))
try:
    deep_gemm.bf16_gemm_nt(a, b, d)
    result = float(d[0, 0])
except RuntimeError as error:
    result = str(error)
"""


def test_a_process_that_refuses_to_compile_names_what_to_compile(cache) -> None:
    said = fresh.check(REFUSED, DG_JIT_CACHE_DIR=cache, DG_JIT_REFUSE=1).result
    assert re.match(
        r"bf16_gemm_sm90_dense\w* for sm_90a is not in the cache \(.*\), and DG_JIT_REFUSE=1 says not to", said
    )
    assert said.endswith("; the call has M=16 N=32 K=64 groups=1")
    beforehand = COMPILE + "compile(); result = jit.statistics()['compiled']"
    assert fresh.check(beforehand, DG_JIT_CACHE_DIR=cache, DG_JIT_REFUSE=1).result == 1
    assert fresh.check(REFUSED, DG_JIT_CACHE_DIR=cache).result == 64
    assert fresh.check(REFUSED, DG_JIT_CACHE_DIR=cache, DG_JIT_REFUSE=1).result == 64
