"""One small kernel, compiled into a cache in processes of their own."""

from __future__ import annotations

from pathlib import Path

from fresh import check

TEXT = """
struct Params { float* x; long long count; };
extern "C" __global__ void doubler(const __grid_constant__ Params params) {
    if (threadIdx.x < params.count) params.x[threadIdx.x] *= %s;
}
"""

COMPILE = f"""
TEXT = {TEXT!r}
def compile(name="doubler", factor="2.0f", target=HOPPER_TARGET, output="cubin"):
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
    (path,) = (Path(cache) / "kernels").iterdir()
    return path
