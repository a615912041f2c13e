"""DG_JIT_PTXAS_CHECK: kernels that spill, or wait for wgmma where their source does not, are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compilers import COMPILERS, KERNEL, compile_code
from fresh import check, run

# 200 values live at once, and 32 registers to hold them.
SPILLS = """
struct Params { float* x; };
extern "C" __global__ void __launch_bounds__(1024, 2) sample(const __grid_constant__ Params params) {
    float values[200];
#pragma unroll
    for (int i = 0; i < 200; ++i) values[i] = params.x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 200; ++i) params.x[(199 - i) * 1024 + threadIdx.x] = values[i] * values[199 - i];
}
"""

# An array that is indexed at run time cannot be in registers: no spill, but local memory all the same.
LOCAL_ARRAY = """
struct Params { int* x; };
extern "C" __global__ void sample(const __grid_constant__ Params params) {
    int values[32] = {};
    for (int i = 0; i < 1000; ++i) values[params.x[i] & 31] += i;
    params.x[threadIdx.x] = values[threadIdx.x & 31];
}
"""

# The second wgmma continues what the first one is still summing, and the sum is read in between.
SERIALISED = """
struct Params { float* x; unsigned long long a; unsigned long long b; };
__device__ void multiply(float (&d)[4], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
extern "C" __global__ void __launch_bounds__(128) sample(const __grid_constant__ Params params) {
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;");
    multiply(d, params.a, params.b);
    params.x[threadIdx.x] = d[0];
    multiply(d, params.a + 2, params.b + 2);
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    for (int i = 0; i < 4; ++i) params.x[threadIdx.x * 4 + i] = d[i];
}
"""
PIPELINED = SERIALISED.replace("    params.x[threadIdx.x] = d[0];\n", "")

# A loop that is left with no wgmma under way, which ptxas cannot know: it waits at the end of each round, unless the
# source waits behind the loop.
INJECTED = """
#include <deep_gemm/ptx/wgmma.cuh>
using namespace deep_gemm;
struct Params { float* x; uint64_t a; int n; };
__device__ __forceinline__ void multiply(float (&d)[4], uint64_t a) {
    for (int i = 0; i < 4; ++i) ptx::pin(d[i]);
    ptx::wgmma_fence();
    ptx::Wgmma<8>::e4m3(d, a, a, 0);
    ptx::wgmma_commit();
    for (int i = 0; i < 4; ++i) ptx::pin(d[i]);
}
__device__ __forceinline__ void wait(float (&d)[4]) {
    ptx::wgmma_wait<0>();
    for (int i = 0; i < 4; ++i) ptx::pin(d[i]);
}
extern "C" __global__ void __launch_bounds__(128) sample(const __grid_constant__ Params params) {
    float d[4], total[4] = {};
    for (int tile = 0; tile < params.n; ++tile) {
        multiply(d, params.a);
#pragma unroll 1
        for (int left = params.n;; --left) {
            params.x[left] = 1.0f;
            wait(d);
            for (int i = 0; i < 4; ++i) total[i] += d[i];
            if (left > 1) multiply(d, params.a + left);
            params.x[left + 512] = 1.0f;
            if (left == 1) break;
        }
    }
    for (int i = 0; i < 4; ++i) params.x[threadIdx.x * 4 + i] = total[i];
}
"""
WAITS_BEHIND = INJECTED.replace("break;\n        }\n", "break;\n        }\n        wait(d);\n")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param(SPILLS, "bytes of spills", id="spills"),
        pytest.param(LOCAL_ARRAY, "and 128 bytes of stack", id="local array"),
    ],
)
def test_spills_are_refused_by_ptxas_check(compiler, text, what, fresh_cache):
    environment = {"DG_JIT_CACHE_DIR": fresh_cache, **compiler}
    outcome = run(compile_code(text), DG_JIT_PTXAS_CHECK=1, **environment)
    assert outcome.status != 0
    assert "kernel sample spills" in outcome.stderr
    assert what in outcome.stderr
    # Without the check it compiles; with it, it is refused although the cache has it now.
    check(compile_code(text), **environment)
    assert "kernel sample spills" in run(compile_code(text), DG_JIT_PTXAS_CHECK=1, **environment).stderr


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(SERIALISED, "non wgmma instructions reading accumulator registers", id="one by one"),
        pytest.param(INJECTED, "warpgroup.wait is injected", id="injected"),
    ],
)
def test_waits_for_wgmma_are_refused_by_ptxas_check(compiler, text, reason, fresh_cache):
    environment = {"DG_JIT_CACHE_DIR": fresh_cache, **compiler}
    rejection = "kernel sample waits where its source does not, which DG_JIT_PTXAS_CHECK=1 refuses. ptxas says: (C75"
    assert rejection in run(compile_code(text), DG_JIT_PTXAS_CHECK=1, **environment).stderr
    # Without the check it compiles, and the cache knows it; with it, what the cache has is refused as well.
    assert check(compile_code(text), **environment).stderr == ""
    (path,) = Path(fresh_cache).glob("kernels/*/kernel.json")
    assert reason in json.loads(path.read_text())["hidden_waits"]
    outcome = run(compile_code(text), DG_JIT_PTXAS_CHECK=1, **environment)
    assert outcome.status != 0
    assert "RuntimeError" in outcome.stderr
    assert rejection in outcome.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_debug_tells_waits_for_wgmma(compiler, fresh_cache):
    environment = {"DG_JIT_CACHE_DIR": fresh_cache, "DG_JIT_DEBUG": 1, **compiler}
    for _ in ("compiled", "read from disk"):
        stderr = check(compile_code(SERIALISED), **environment).stderr
        assert "deep_gemm: sample waits where its source does not: (C75" in stderr


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "text", [KERNEL, PIPELINED, WAITS_BEHIND], ids=["plain", "pipelined wgmma", "waits behind the loop"]
)
def test_ptxas_check_lets_good_kernels_pass(compiler, text, fresh_cache):
    check(compile_code(text), DG_JIT_CACHE_DIR=fresh_cache, DG_JIT_PTXAS_CHECK=1, **compiler)
