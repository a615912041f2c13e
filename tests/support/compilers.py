"""What tests of both compilers share: the compilers, a kernel, and the code that compiles one in a fresh process."""

from __future__ import annotations

import shutil

import pytest

from deep_gemm._targets import HOPPER_TARGET

COMPILERS = [
    pytest.param({"DG_JIT_USE_NVRTC": 1}, id="nvrtc"),
    pytest.param(
        {"DG_JIT_USE_NVRTC": 0},
        id="nvcc",
        marks=pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the PATH"),
    ),
]

KERNEL = """
struct Params { float* x; long long count; };
template <int kFactor> __device__ float scaled(float x) { return x * kFactor; }
extern "C" __global__ void sample(const __grid_constant__ Params params) {
    if (threadIdx.x < params.count) params.x[threadIdx.x] = scaled<3>(params.x[threadIdx.x]);
}
"""


def compile_code(text: str, target: str = HOPPER_TARGET, output: str = "cubin", after: str = "") -> str:
    return f"result = bytes(C.jit_compile('sample', {text!r}, {target!r}, {output!r})).hex()\n{after}"
