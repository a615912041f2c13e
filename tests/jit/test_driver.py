"""The CUDA side of the runtime, call by call, against a stand-in for the driver: needs no GPU.

What it cannot show (that kernels run) the tests marked `gpu` do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deep_gemm._targets import HOPPER_SMS

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "support" / "driver"
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def build(output: Path, *arguments: object) -> None:
    command = [
        "g++",
        "-std=c++20",
        f"-I{ROOT / 'csrc'}",
        f"-I{ROOT / 'deep_gemm' / 'include'}",
        "-o",
        str(output),
        *map(str, arguments),
        "-ldl",
        "-pthread",
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    build(folder / "libcuda.so.1", "-shared", "-fPIC", f"-DDEVICE_SMS={HOPPER_SMS}", HERE / "fake_libcuda.cpp")
    device = ROOT / "csrc" / "device"
    sources = [
        device / "cuda.cpp",
        device / "driver_api.cpp",
        device / "target_choice.cpp",
        device / "tensor_map.cpp",
        device.parent / "api/call/target_choice.cpp",
        device.parent / "jit/settings.cpp",
        device.parent / "util/files.cpp",
        device.parent / "util/require.cpp",
    ]
    build(folder / "use_driver", HERE / "use_driver.cpp", *sources)
    return folder / "use_driver"


def run(program: Path, **environment: str) -> list[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent), **environment}
    done = subprocess.run([program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def lines(program) -> list[str]:
    return run(program)


def test_calls(lines):
    assert lines[:13] == [
        "Fake 0 sm_90a, Fake 1 sm_100f",
        "load on context 0, capture mode 2",
        "entry some_kernel",
        "kernel attribute 8 = 100000 on device 0",
        "kernel attribute 14 = 1 on device 0",
        "current 1, capture mode 0",
        "launch 1000 on context 0: grid 6 1 1 block 384 1 1 smem 99999 stream abc params 7 8 cluster 2 1 1 dependent 1",
        "current 1",
        "launch 1000 on context 0: grid 1 1 1 block 128 1 1 smem 0 stream abc params 7 8",
        "launch 1000 on context 0: grid 1 1 1 block 128 1 1 smem 0 stream abc params 7 8",
        "current 0",
        f"clusters {HOPPER_SMS} {HOPPER_SMS // 4}",
        "a grid of 3 blocks cannot be divided into clusters of 2",
    ]


def test_old_drivers_start_nothing_early(program, lines):
    """They may refuse dependent launches while a graph is captured."""

    def launches(found: list[str]) -> list[str]:
        return [line for line in found if line.startswith("launch ")]

    old = launches(run(program, FAKE_DRIVER_VERSION="12020"))
    assert old == [line.replace(" dependent 1", "") for line in launches(lines)] != launches(lines)


@pytest.mark.parametrize(
    "message",
    [
        "a grid of 0 blocks cannot be divided into clusters of 1",
        "a launch asks for 100001 bytes of shared memory, but the kernel was loaded for 100000",
        "the kernel takes 16 bytes of parameters, but 8 came",
        "a kernel loaded on another device was launched on Fake 1 1",
        "cuLibraryGetKernel failed: CUDA_ERROR_X (500, what the driver says). The kernel's entry is not in the image",
        "kernel some_kernel needs 1048576 bytes of shared memory, but Fake 0 offers 232448 to a block",
        "CUDA device 4 does not exist: the driver shows 4",
        "cuLaunchKernelEx failed: CUDA_ERROR_ILLEGAL_ADDRESS (700, what the driver says). A kernel launched earlier",
        "current 0, capture mode 0",
        "encode type 9 rank 2 sizes 100 50 stride 208 box 64 128 steps 1 1 interleave 0 swizzle 3 promotion 3 fill 0",
        "a tensor map has 1 to 5 dimensions, not 6",
        "a tensor map needs an address",
        "a tensor read by TMA must start at a multiple of 16 bytes",
        "dimension 1 of a tensor map must have 1 to 2^32 elements, not 0",
        "dimension 1 of a tensor map must have 1 to 2^32 elements, not 4294967297",
        "dimension 1 of a tensor map's box must have 1 to 256 elements, not 257",
        "must lie a multiple of 16 bytes (below 2^40) apart, not 200 bytes",
        "a row of a tensor map's box must be a multiple of 16 bytes, not 8 (4 of bf16)",
        "a row of a tensor map's box has 128 bytes, more than its swizzle of 64B spans",
    ],
)
def test_rejections(lines, message):
    assert any(message in line for line in lines), "\n".join(lines)


def test_nothing_passed_that_should_not(lines):
    assert "no error" not in lines


def test_timing(lines):
    start = lines.index("wait on context 0, capture mode 2")  # once, with this thread free to wait during captures
    assert lines[start + 1 : start + 7] == [
        "median 3000 us",
        "median 6000 us",
        "capture status 0: free",
        "capture status 1: capturing",
        "capture status 3: capturing",
        "current 0, capture mode 0",
    ]
