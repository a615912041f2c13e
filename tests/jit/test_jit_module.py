"""deep_gemm.jit: what the cache holds, and compiling ahead."""

from __future__ import annotations

import pytest
from cached import COMPILE, entry
from fresh import check

from deep_gemm._targets import HOPPER_TARGET


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
    assert sorted(result["entries"]) == [["doubler", HOPPER_TARGET, output, True] for output in ("cubin", "ptx")]
    assert (result["cleared"], result["left"], result["after"]) == (2, 0, 1)
    assert result["directory"] == str(cache)
    assert (cache / "mine").exists()


@pytest.mark.parametrize("damage", ["{", "[" * 1_000_000], ids=["cut", "nested"])
def test_listing_leaves_out_what_is_damaged(filled, damage):
    cache, _ = filled
    (entry(cache) / "kernel.json").write_text(damage)
    assert check("result = len(jit.list_cache())", DG_JIT_CACHE_DIR=cache).result == 0


def test_compile_many(cache):
    code = (
        COMPILE
        + """
kernels = [(f"kernel_{i}", TEXT % f"{i}.0f") for i in range(6)] + [("broken", "this is no kernel")]
results = jit.compile_many(kernels, HOPPER_TARGET, workers=3)
result = {"names": [r.name for r in results], "errors": [r.name for r in results if r.error], **jit.statistics()}
"""
    )
    outcome = check(code, DG_JIT_CACHE_DIR=cache)
    assert outcome.result["names"] == [f"kernel_{i}" for i in range(6)] + ["broken"]
    assert outcome.result["errors"] == ["broken"]
    assert outcome.result["compiled"] == 6
    assert outcome.stderr == ""  # no progress where nobody watches it


def test_progress_is_shown_on_a_terminal(cache):
    code = (
        COMPILE
        + """
import contextlib, fcntl, pty, struct, termios
terminal, other_end = pty.openpty()
fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
os.set_blocking(terminal, False)
os.dup2(other_end, 2)
jit.compile_many([("kernel", TEXT % "2.0f"), ("broken", "this is no kernel")], HOPPER_TARGET)
jit.verify_cache(progress=True)
result = ""
with contextlib.suppress(BlockingIOError):  # a read brings no more than a page
    while True:
        result += os.read(terminal, 65536).decode(errors="replace")
"""
    )
    shown = check(code, DG_JIT_CACHE_DIR=cache).result
    assert f"compiling for {HOPPER_TARGET}" in shown
    assert "0/2" in shown
    assert "kernels/s" in shown
    assert "1 failed" in shown
    assert "verifying" in shown


def test_relative_directory_does_not_move(tmp_path):
    code = COMPILE + f"os.chdir({str(tmp_path)!r})\njit.settings()\nos.chdir('/')\ncompile()"
    check(code, DG_JIT_CACHE_DIR="here")
    assert len(list((tmp_path / "here" / "kernels").iterdir())) == 1


def test_calls_on_the_simulator_get_kernels_of_its_target(cache):
    """Also where a call of the same shape came before, for another target."""
    code = """
import deep_gemm
from deep_gemm import simulator
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8

def multiply():
    a, b = (torch.ones(rows, 256, dtype=torch.bfloat16) for rows in (16, 64))
    d = torch.empty(16, 64, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt(per_token_cast_to_fp8(a, use_ue8m0=True), per_block_cast_to_fp8(b, use_ue8m0=True), d)
    assert (d == 256).all()

result = []
for target in ("sm_100a", "sm_100f", "sm_100a"):
    with simulator.options(target=target):
        multiply()
    result.append(jit.statistics()["loaded"])
"""
    first, second, third = check(code, DG_JIT_CACHE_DIR=cache).result
    assert second == 2 * first
    assert third == second
