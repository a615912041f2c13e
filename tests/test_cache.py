"""The cache of compiled kernels on disk: made once, never believed when damaged, never in the way when it cannot be."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh import check, run, start

TEXT = """
struct Params { float* x; long long count; };
extern "C" __global__ void deep_gemm_kernel(const __grid_constant__ Params params) {
    if (threadIdx.x < params.count) params.x[threadIdx.x] *= %s;
}
"""

COMPILE = f"""
TEXT = {TEXT!r}
def compile(name="doubler", factor="2.0f", target="sm_90a", output="cubin"):
    return bytes(C.jit_compile(name, TEXT % factor, target, output)).hex()
"""


def compile_once(**environment) -> str:
    """Compile in a new process. Returns the image (in hexadecimal); the caller checks what the process did."""
    return check(COMPILE + "result = compile()", **environment).result


def counts(cache, code: str = "compile()", **environment) -> tuple[dict, str]:
    """What a new process did, and what it printed."""
    outcome = check(COMPILE + f"{code}\nresult = jit.statistics()", DG_JIT_CACHE_DIR=cache, **environment)
    return outcome.result, outcome.stderr


def entry(cache) -> Path:
    """The only entry of a cache."""
    (path,) = (Path(cache) / "cache").iterdir()
    return path


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache directory"


@pytest.fixture
def filled(cache) -> tuple[Path, str]:
    return cache, compile_once(DG_JIT_CACHE_DIR=cache)


def test_second_process_compiles_nothing(filled):
    cache, image = filled
    outcome = check(COMPILE + "result = [compile(), jit.statistics()]", DG_JIT_CACHE_DIR=cache)
    assert outcome.result[0] == image
    assert outcome.result[1]["compiled"] == 0
    assert outcome.result[1]["found_on_disk"] == 1
    assert outcome.stderr == ""


def test_entry_holds_source_image_and_facts(filled):
    cache, image = filled
    path = entry(cache)
    facts = json.loads((path / "kernel.json").read_text())
    assert path.name == f"doubler.{facts['key']}"
    assert (path / "kernel.cu").read_text() == TEXT % "2.0f"
    assert (path / "kernel.cubin").read_bytes().hex() == image
    assert facts["image_sha256"] == hashlib.sha256(bytes.fromhex(image)).hexdigest()
    assert facts["target"] == "sm_90a"
    assert "nvrtc" in facts["compiler"]
    assert facts["registers"] > 0
    assert facts["spill_bytes"] == 0
    assert facts["serialised_wgmma"] == ""


def test_sixteen_processes_compile_once(cache):
    together = time.time() + 1.0
    code = (
        COMPILE + f"import time\ntime.sleep(max(0, {together} - time.time()))\nresult = [compile(), jit.statistics()]"
    )
    running = [start(code, DG_JIT_CACHE_DIR=cache) for _ in range(16)]
    outcomes = [process.wait() for process in running]
    assert [outcome.status for outcome in outcomes] == [0] * 16, outcomes
    assert sum(outcome.result[1]["compiled"] for outcome in outcomes) == 1
    assert len({outcome.result[0] for outcome in outcomes}) == 1
    assert {outcome.stderr for outcome in outcomes} == {""}


def test_threads_compile_once_and_keys_do_not_block_each_other(cache):
    # Threads of two processes ask for two keys in opposite orders: locks that waited for each other would hang.
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda factor: compile(factor=factor), {order} * 4))
"""
    running = [
        start(COMPILE + code.format(order=order) + "result = jit.statistics()", DG_JIT_CACHE_DIR=cache)
        for order in (["2.0f", "3.0f"], ["3.0f", "2.0f"])
    ]
    outcomes = [process.wait() for process in running]
    assert [outcome.status for outcome in outcomes] == [0, 0], outcomes
    assert sum(outcome.result["compiled"] for outcome in outcomes) == 2


def flip_bit(path: Path) -> None:
    image = bytearray((path / "kernel.cubin").read_bytes())
    image[len(image) // 2] ^= 1
    (path / "kernel.cubin").write_bytes(image)


def truncate_image(path: Path) -> None:
    os.truncate(path / "kernel.cubin", 100)


def truncate_facts(path: Path) -> None:
    os.truncate(path / "kernel.json", 40)


def remove_image(path: Path) -> None:
    (path / "kernel.cubin").unlink()


def remove_facts(path: Path) -> None:
    (path / "kernel.json").unlink()


def image_of_another_kernel(path: Path) -> None:
    (path / "kernel.cubin").write_bytes(b"\x7fELF and whatever else")


def entry_of_another_key(path: Path) -> None:
    facts = json.loads((path / "kernel.json").read_text())
    facts["key"] = "0" * 32
    (path / "kernel.json").write_text(json.dumps(facts, indent=2))


@pytest.mark.parametrize(
    "damage",
    [
        flip_bit,
        truncate_image,
        truncate_facts,
        remove_image,
        remove_facts,
        image_of_another_kernel,
        entry_of_another_key,
    ],
)
def test_damaged_entry_is_reported_and_compiled_again(filled, damage):
    cache, image = filled
    damage(entry(cache))
    outcome = check(COMPILE + "result = [compile(), jit.statistics()]", DG_JIT_CACHE_DIR=cache)
    assert outcome.result[0] == image
    assert outcome.result[1]["compiled"] == 1
    assert outcome.stderr.count("damaged cache entry") == 1
    assert str(entry(cache)) in outcome.stderr
    did, printed = counts(cache)
    assert (did["compiled"], printed) == (0, "")


def test_entry_of_another_kernel_under_this_name(cache):
    """A whole, intact entry of another kernel, renamed: its digest is right, but it is not what the key says."""
    counts(cache, "compile(factor='2.0f')")
    first = entry(cache)
    counts(cache, "compile(factor='3.0f')")
    (second,) = set((cache / "cache").iterdir()) - {first}
    shutil.rmtree(first)
    shutil.copytree(second, first)
    did, printed = counts(cache, "compile(factor='2.0f')")
    assert did["compiled"] == 1
    assert "belongs to something else" in printed


def test_copied_cache_works(filled, tmp_path):
    cache, image = filled
    shutil.copytree(cache, tmp_path / "elsewhere")
    shutil.rmtree(cache)
    outcome = check(COMPILE + "result = [compile(), jit.statistics()]", DG_JIT_CACHE_DIR=tmp_path / "elsewhere")
    assert outcome.result[0] == image
    assert outcome.result[1]["compiled"] == 0


def copied_package(target: Path) -> str:
    """Code that makes the runtime use a copy of the device headers."""
    return f"""
import shutil
shutil.copytree(jit.__file__.replace("jit.py", "include"), {str(target / "include")!r})
from deep_gemm._nvrtc import nvrtc_directories
C.initialize({str(target)!r}, nvrtc_directories())
"""


KEY = COMPILE + "result = C.jit_cache_key('doubler', TEXT % '2.0f', 'sm_90a', 'cubin')"


def test_key_holds_no_path(cache, tmp_path):
    here = check(KEY, DG_JIT_CACHE_DIR=cache).result
    there = check(copied_package(tmp_path / "package") + KEY, DG_JIT_CACHE_DIR=tmp_path / "other").result
    assert here == there


def test_key_holds_the_device_headers(cache, tmp_path):
    package = tmp_path / "package"
    edit = f"open({str(package / 'include' / 'new.cuh')!r}, 'w').write('// a new header')\n"
    assert check(KEY, DG_JIT_CACHE_DIR=cache).result != check(copied_package(package) + edit + KEY).result


@pytest.mark.parametrize(
    "arguments",
    [
        "'other', TEXT % '2.0f', 'sm_90a', 'cubin'",
        "'doubler', TEXT % '3.0f', 'sm_90a', 'cubin'",
        "'doubler', TEXT % '2.0f', 'sm_100a', 'cubin'",
        "'doubler', TEXT % '2.0f', 'sm_90a', 'ptx'",
    ],
)
def test_key_holds(arguments):
    assert check(KEY).result != check(COMPILE + f"result = C.jit_cache_key({arguments})").result


def test_key_holds_the_options():
    assert check(KEY).result != check(KEY, DG_JIT_WITH_LINEINFO=1).result


# ---- where the disk cannot be used ----

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
    outcome = run(TWO_KERNELS_TWICE, HOME=None)
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


# ---- processes that die ----


def fake_nvcc(folder: Path, body: str) -> Path:
    """A compiler that does what `body` says. Its version is the same whatever it does, and so are its keys."""
    path = folder / "nvcc"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "tools, release 99.0, V99.0.1" && exit 0\n{body}\n')
    path.chmod(0o755)
    return path


# Writes what stands for an image to the file that --output-file= names.
WRITE_IMAGE = 'for a in "$@"; do case "$a" in --output-file=*) echo image > "${a#--output-file=}";; esac; done'


def test_killed_compiler(cache, tmp_path):
    compiler = fake_nvcc(tmp_path, "kill -9 $$")
    code = (
        COMPILE
        + f"""
try:
    compile()
    result = "compiled"
except RuntimeError as error:
    result = str(error)
    open({str(compiler)!r}, "w").write({fake_nvcc(tmp_path, WRITE_IMAGE).read_text()!r})
    assert bytes.fromhex(compile()) == b"image\\n"  # a failure is not remembered
"""
    )
    fake_nvcc(tmp_path, "kill -9 $$")
    outcome = check(code, DG_JIT_CACHE_DIR=cache, DG_JIT_USE_NVRTC=0, DG_JIT_NVCC_COMPILER=compiler)
    assert "was killed by signal 9" in outcome.result
    assert "ran out of memory" in outcome.result
    kept = outcome.result.split("The source is kept in ")[1].strip()
    assert Path(kept).read_text() == TEXT % "2.0f"


def test_killed_process_gives_its_lock_back(cache, tmp_path):
    """The process that compiles is killed; one that waited for it compiles at once."""
    started = tmp_path / "started"
    # The first compilation lasts as long as its process.
    hang = f"[ -e {started} ] || {{ touch {started}; while kill -0 $PPID; do sleep 0.1; done; exit 1; }}"
    compiler = fake_nvcc(tmp_path, f"{hang}\n{WRITE_IMAGE}")
    environment = {"DG_JIT_CACHE_DIR": cache, "DG_JIT_USE_NVRTC": 0, "DG_JIT_NVCC_COMPILER": compiler}
    holder = start(COMPILE + "compile()", **environment)
    while not started.exists():
        time.sleep(0.01)
    waiter = start(COMPILE + "compile()\nresult = jit.statistics()", **environment)
    time.sleep(0.3)
    os.kill(holder.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    outcome = waiter.wait()
    assert holder.wait().status == -signal.SIGKILL
    assert outcome.status == 0, outcome.stderr
    assert outcome.result["compiled"] == 1
    assert time.monotonic() - killed_at < 20  # far below the patience of 120 s


def test_leftovers_of_killed_processes_are_removed(cache):
    old, new = cache / "drafts" / "old", cache / "drafts" / "new"
    for draft in (old, new):
        draft.mkdir(parents=True)
        (draft / "kernel.cu").write_text("half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    counts(cache)
    assert not old.exists()
    assert new.exists()


def test_deleted_cache_directory_is_made_again(cache):
    did, printed = counts(cache, f"compile()\nimport shutil\nshutil.rmtree({str(cache)!r})\ncompile(factor='3.0f')")
    assert (did["compiled"], printed) == (2, "")
    assert counts(cache, "compile(factor='3.0f')")[0]["compiled"] == 0


# ---- deep_gemm.jit ----


def test_list_and_clear(cache):
    (cache / "mine").mkdir(parents=True)
    code = (
        COMPILE
        + """
compile()
compile(output="ptx")
entries = jit.list_cache()
result = {"entries": [[e.name, e.target, e.output, e.path.is_dir()] for e in entries], "cleared": jit.clear_cache(),
          "left": len(jit.list_cache()), "directory": str(jit.cache_dir())}
compile(target="sm_100a")
result["after"] = len(jit.list_cache())
"""
    )
    result = check(code, DG_JIT_CACHE_DIR=cache).result
    assert sorted(result["entries"]) == [["doubler", "sm_90a", "cubin", True], ["doubler", "sm_90a", "ptx", True]]
    assert (result["cleared"], result["left"], result["after"]) == (2, 0, 1)
    assert result["directory"] == str(cache)
    assert (cache / "mine").exists()


def test_listing_leaves_out_what_is_damaged(filled):
    cache, _ = filled
    (entry(cache) / "kernel.json").write_text("{")
    assert check("result = len(jit.list_cache())", DG_JIT_CACHE_DIR=cache).result == 0


def test_compile_many(cache):
    code = (
        COMPILE
        + """
kernels = [(f"kernel_{i}", TEXT % f"{i}.0f") for i in range(6)] + [("broken", "this is no kernel")]
results = jit.compile_many(kernels, "sm_90a", workers=3)
result = {"names": [r.name for r in results], "errors": [r.name for r in results if r.error], **jit.statistics()}
"""
    )
    outcome = check(code, DG_JIT_CACHE_DIR=cache)
    assert outcome.result["names"] == [f"kernel_{i}" for i in range(6)] + ["broken"]
    assert outcome.result["errors"] == ["broken"]
    assert outcome.result["compiled"] == 6
    assert "7/7" in outcome.stderr
    assert "1 failed" in outcome.stderr


def test_relative_directory_does_not_move(tmp_path):
    code = COMPILE + f"os.chdir({str(tmp_path)!r})\njit.settings()\nos.chdir('/')\ncompile()"
    check(code, DG_JIT_CACHE_DIR="here")
    assert len(list((tmp_path / "here" / "cache").iterdir())) == 1


def test_calls_on_the_simulator_get_kernels_of_its_target(cache):
    """Also where a call of the same shape came before, for another target."""
    code = """
import deep_gemm
from deep_gemm import simulator
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8

def multiply():
    a, b = (torch.ones(rows, 256, dtype=torch.bfloat16) for rows in (16, 64))
    d = torch.empty(16, 64, dtype=torch.bfloat16)
    # Two kernels: the product, and its scales' layout.
    deep_gemm.fp8_gemm_nt(per_token_cast_to_fp8(a, use_ue8m0=False), per_block_cast_to_fp8(b, use_ue8m0=False), d)
    assert (d == 256).all()

result = []
for target in ("sm_90a", "sm_90", "sm_90a"):
    with simulator.options(target=target):
        multiply()
    result.append(jit.statistics()["loaded"])
"""
    first, second, third = check(code, DG_JIT_CACHE_DIR=cache).result
    assert second == 2 * first
    assert third == second
