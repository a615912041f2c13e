"""The cache of compiled kernels on disk: made once, found again, never believed when damaged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from cached import COMPILE, TEXT, counts, entry
from fresh import check, copied_package, start

from deep_gemm._targets import HOPPER_TARGET


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
    assert facts["target"] == HOPPER_TARGET
    assert "nvrtc" in facts["compiler"]
    assert facts["registers"] > 0
    assert facts["spill_bytes"] == 0
    assert facts["hidden_waits"] == ""


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


def nest_facts(path: Path) -> None:
    (path / "kernel.json").write_text("[" * 1_000_000)


def change_type_of_a_fact(path: Path) -> None:
    facts = json.loads((path / "kernel.json").read_text())
    facts["image_bytes"] = [facts["image_bytes"]]
    (path / "kernel.json").write_text(json.dumps(facts, indent=2))


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
        nest_facts,
        change_type_of_a_fact,
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
    (second,) = set((cache / "kernels").iterdir()) - {first}
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


KEY = COMPILE + "result = C.jit_cache_key('doubler', TEXT % '2.0f', HOPPER_TARGET, 'cubin')"


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
        "'other', TEXT % '2.0f', HOPPER_TARGET, 'cubin'",
        "'doubler', TEXT % '3.0f', HOPPER_TARGET, 'cubin'",
        "'doubler', TEXT % '2.0f', 'sm_100a', 'cubin'",
        "'doubler', TEXT % '2.0f', HOPPER_TARGET, 'ptx'",
    ],
)
def test_key_holds(arguments):
    assert check(KEY).result != check(COMPILE + f"result = C.jit_cache_key({arguments})").result


def test_key_holds_the_options():
    assert check(KEY).result != check(KEY, DG_JIT_WITH_LINEINFO=1).result


def test_kernels_are_read_from_every_directory_and_kept_in_the_first(cache, tmp_path) -> None:
    counts(cache)
    first = tmp_path / "first"
    did, printed = counts(f"{first}:{cache}")
    assert (did["compiled"], did["found_on_disk"], printed) == (0, 1, "")
    assert not (first / "kernels").exists()
    did, _ = counts(f"{first}:{tmp_path / 'nowhere'}")
    assert did["compiled"] == 1
    assert entry(first).is_dir()


def test_entries_of_other_libraries_are_left_alone(cache) -> None:
    """DeepGEMM keeps its own in cache/ of the same directory."""
    others = cache / "cache" / "kernel.sm90_fp8_gemm_1d2d.0123456789abcdef"
    others.mkdir(parents=True)
    (others / "kernel.cubin").write_bytes(b"not ours")
    assert counts(cache)[1] == ""
    outcome = check(
        "result = [len(jit.list_cache()), jit.verify_cache(), jit.clear_cache()]",
        DG_JIT_CACHE_DIR=cache,
    )
    assert outcome.result == [1, [], 1]
    assert (others / "kernel.cubin").read_bytes() == b"not ours"


def test_the_cache_has_a_limit_by_default() -> None:
    assert check("result = C.jit_settings()['cache_max_bytes']", DG_JIT_CACHE_MAX_MB=None).result == 2_000_000_000
    assert check("result = C.jit_settings()['cache_max_bytes']", DG_JIT_CACHE_MAX_MB="0").result == 0
