"""Importing is light: no driver, no compiler, no setting read; it works before a fork and without a GPU."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fresh import check, run

import deep_gemm
from deep_gemm._targets import HOPPER_TARGET

KERNEL = 'extern "C" __global__ void sample(float* x) { x[threadIdx.x] *= 2; }'


def python(code: str, **environment: str | None) -> str:
    """Run code in a new interpreter (fresh.py imports before it forks; here the import itself is looked at)."""
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


LOOK = """
import json, os, sys, time
start = time.process_time()
import torch
torch_done = time.process_time()
seen = []
def is_available():
    seen.append(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
    return False
torch.cuda.is_available = is_available
torch.cuda.device_count = lambda: seen.append("counted")
def mapped():
    return {line.split("/", 1)[1].strip() for line in open("/proc/self/maps") if "/" in line}
files, modules, began = mapped(), set(sys.modules), time.process_time()
import deep_gemm
share = (time.process_time() - began) / (torch_done - start)
modules, after = set(sys.modules) - modules, os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
import deep_gemm.jit
files = mapped() - files
functions = [deep_gemm.utils.ceil_div(5, 2), deep_gemm.testing.calc_diff.__name__]
functions += [deep_gemm.jit.settings.__name__, deep_gemm.simulator.options.__name__]
started = torch.cuda.is_initialized()
os.environ["DG_JIT_DEBUG"] = "1"
first = deep_gemm.jit.settings()["debug"]
os.environ["DG_JIT_DEBUG"] = "0"
debug = [first, deep_gemm.jit.settings()["debug"]]
print(json.dumps({
    "seen": seen, "after": after, "files": [*files], "modules": [*modules], "share": share, "functions": functions,
    "started": started, "debug": debug, "version": deep_gemm.__version__,
}))
"""


def look() -> dict[str, Any]:
    return json.loads(python(LOOK, PYTORCH_NVML_BASED_CUDA_CHECK=None, DG_JIT_DEBUG=None, HOME=None))


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """What a process saw of its import: one, as each takes seconds."""
    return look()


def test_import_opens_neither_driver_nor_compiler(imported):
    assert [path for path in imported["files"] if any(name in path for name in ("libcuda", "nvrtc", "nvidia"))] == []
    assert any("_C.so" in path for path in imported["files"]), imported["files"]


def test_import_asks_about_gpus_without_the_cuda_runtime(imported):
    """The runtime would start the driver, and children of a later fork could not use CUDA."""
    assert set(imported["seen"]) <= {"1"}
    assert imported["after"] is None
    code = "import os, deep_gemm; print(os.environ.get('PYTORCH_NVML_BASED_CUDA_CHECK'))"
    assert python(code, PYTORCH_NVML_BASED_CUDA_CHECK="0").split() == ["0"]


@pytest.mark.gpu
def test_children_of_a_fork_after_the_import_use_cuda():
    code = """
import os, torch, deep_gemm
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8
def work():
    x = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(128, 256, device="cuda", dtype=torch.bfloat16)
    d = torch.empty(64, 128, device="cuda", dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt(per_token_cast_to_fp8(x, False), per_block_cast_to_fp8(w, False), d)
    return deep_gemm.testing.calc_diff(d, x @ w.T) < 1e-2
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        os._exit(0 if work() else 1)
    children.append(child)
print(*[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], work())
"""
    assert python(code).split() == ["0", "0", "True"]


def test_import_reads_no_setting(imported):
    assert imported["debug"] == [True, True], "read at the first use, and once"


def test_import_brings_the_subpackages_and_nothing_heavy(imported):
    assert imported["functions"] == [3, "calc_diff", "settings", "options"]
    heavy = ("torch._dynamo", "torch._inductor", "triton")
    assert [name for name in imported["modules"] if name.startswith(heavy)] == []
    assert not imported["started"]


def test_import_without_home(imported):
    assert imported["version"]


@pytest.mark.slow
def test_import_takes_a_third_of_torch_at_most(imported):
    """Some 0.18 s beside torch's 0.9 on a quiet core. Both are timed, as a busy machine slows both."""
    assert imported["share"] < 1 / 3 or any(look()["share"] < 1 / 3 for _ in range(2))


DRIVER = """
try:
    C.cuda_driver()
    result = "driver"
except RuntimeError as error:
    result = str(error)
"""


def test_machine_without_a_driver_says_so():
    message = check(DRIVER).result
    if message == "driver":
        pytest.skip("this machine has a driver")
    assert "CUDA" in message
    assert "libcuda.so.1" in message or "No GPU is visible" in message


def test_compiles_without_a_driver(fresh_cache):
    check(f"C.jit_compile('sample', {KERNEL!r}, {HOPPER_TARGET!r}, 'cubin')", DG_JIT_CACHE_DIR=fresh_cache)


def test_forked_process_compiles_what_its_parent_did_not(fresh_cache):
    """Both sides of a fork go on working, also where the parent had compiled before it."""
    code = f"""
def compile(factor):
    return C.jit_compile("sample", {KERNEL!r}.replace("2", factor), {HOPPER_TARGET!r}, "cubin")
compile("2")
child = os.fork()
if child == 0:
    compile("3")
    compile("2")
    os._exit(0 if jit.statistics()["compiled"] == 2 else 1)
compile("4")
result = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), jit.statistics()["compiled"]]
"""
    assert check(code, DG_JIT_CACHE_DIR=fresh_cache).result == [0, 2]


def test_unknown_cuda_device_is_refused():
    outcome = run("C.device_facts(False, 63)")
    assert outcome.status != 0
    assert "CUDA device 63 does not exist" in outcome.stderr or "No CUDA driver" in outcome.stderr


def test_forked_process_launches_though_its_parent_did(fresh_cache):
    """The simulator's worker threads do not survive a fork; a child that counted on them would hang."""
    text = (
        "struct Params { float* x; };"
        'extern "C" __global__ void sample(const __grid_constant__ Params params)'
        "{ params.x[blockIdx.x * 32 + threadIdx.x] *= 2; }"
    )
    code = f"""
import signal
def launch():
    x = torch.ones(128)
    C.jit_launch("sample", {text!r}, 4, 32, 1, 0, False, [x], [])
    return bool((x == 2).all())
first = launch()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if launch() else 1)
result = [first, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
"""
    assert check(code, DG_JIT_CACHE_DIR=fresh_cache).result == [True, 0]


def imported_in(package: Path) -> dict[str, set[str]]:
    """Of each module of a package, those of the package that it imports, for types alone too."""
    modules = {path: path.relative_to(package).with_suffix("").parts for path in package.rglob("*.py")}
    names = {path: ".".join(part for part in parts if part != "__init__") for path, parts in modules.items()}
    found: dict[str, set[str]] = {}
    for path, parts in modules.items():
        name, own = names[path], parts[:-1]
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = [*own[: len(own) - node.level + 1], *(node.module.split(".") if node.module else [])]
            named = {".".join([*base, alias.name]) for alias in node.names}
            named |= {".".join(base)} if node.module else set()
            if node.level <= len(own) + 1:
                found[name] |= named & {*names.values()}
    return found


def test_modules_of_weights_import_each_other_in_no_circle() -> None:
    left = imported_in(Path(deep_gemm.__file__).parent / "weights")
    assert left["formats.gptq"] >= {"matrix", "formats.layer"}
    assert left["checkpoint"] >= {"formats", "packed"}
    while ready := [name for name, needed in left.items() if not needed & left.keys() - {name}]:
        for name in ready:
            del left[name]
    assert sorted(left) == []
