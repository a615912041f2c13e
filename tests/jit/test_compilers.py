"""NVRTC and nvcc make every target, failures say what happened."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from compilers import COMPILERS, KERNEL, compile_code
from fresh import check, run

from deep_gemm._targets import HOPPER_TARGET

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_120a", "sm_120f", "sm_121a"])
def test_cubin(compiler, target, fresh_cache):
    image = bytes.fromhex(check(compile_code(KERNEL, target), DG_JIT_CACHE_DIR=fresh_cache, **compiler).result)
    assert image.startswith(b"\x7fELF")
    assert b".text.sample" in image


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_100f", "sm_120a", "sm_120f", "sm_121a"])
def test_ptx(compiler, target, fresh_cache):
    code = compile_code(KERNEL, target, "ptx")
    text = bytes.fromhex(check(code, DG_JIT_CACHE_DIR=fresh_cache, **compiler).result).decode()
    assert f".target {target}" in text
    assert ".entry sample(" in text
    assert "\t.loc" in text or ".loc\t" in text  # the simulator's reports name source lines
    assert not text.endswith("\0")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_identity_names_version_and_path(compiler):
    info = check("result = jit.compiler_info()", **compiler).result
    assert info["identity"].split()[0] == ("nvrtc" if compiler["DG_JIT_USE_NVRTC"] else "nvcc")
    assert Path(info["path"]).exists()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_error_shows_log_and_keeps_source(compiler, fresh_cache):
    text = "int x = undeclared_name;"
    code = f"""
try:
    C.jit_compile("sample", {text!r}, HOPPER_TARGET, "cubin")
except RuntimeError as error:
    result = str(error)
"""
    message = check(code, DG_JIT_CACHE_DIR=fresh_cache, **compiler).result
    assert f"kernel sample was not compiled for {HOPPER_TARGET}" in message
    assert "undeclared_name" in message
    kept = Path(message.split("The source is kept in ")[1].splitlines()[0])
    assert kept.read_text() == text
    assert str(kept).startswith(fresh_cache)


def test_unknown_target_is_refused():
    outcome = run(compile_code(KERNEL, "hopper"))
    assert "ValueError" in outcome.stderr
    assert 'one looks like "sm_90a"' in outcome.stderr


@pytest.mark.parametrize(
    ("environment", "advice"),
    [
        ({"DG_JIT_NVRTC_LIBRARY": "/nowhere/libnvrtc.so"}, "pip install nvidia-cuda-nvrtc"),
        ({"DG_JIT_USE_NVRTC": 0, "DG_JIT_NVCC_COMPILER": "/nowhere/nvcc"}, "/nowhere/nvcc could not be started"),
    ],
)
def test_missing_compiler(environment, advice, fresh_cache):
    outcome = run(compile_code(KERNEL), DG_JIT_CACHE_DIR=fresh_cache, **environment)
    assert outcome.status != 0
    assert "RuntimeError" in outcome.stderr
    assert advice in outcome.stderr


# A toolkit in its usual place is out of sight in a mount namespace of this process, which root may have.
HIDE_TOOLKIT = """
import ctypes
hidden = not os.path.exists("/usr/local/cuda/bin/nvcc")
if not hidden:
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private = 0x20000, 0x44000
    hidden = libc.unshare(new_namespace) == 0 and libc.mount(b"none", b"/", None, private, None) == 0
    hidden = hidden and libc.mount(b"none", os.path.realpath("/usr/local/cuda").encode(), b"tmpfs", 0, None) == 0
"""


def test_without_nvcc_nvrtc_compiles(fresh_cache):
    """One serving stack asks for nvcc on every machine."""
    code = f"""
{HIDE_TOOLKIT}
result = "not hidden"
if hidden:
    C.jit_compile("sample", {KERNEL!r}, HOPPER_TARGET, "cubin")
    C.jit_compile("sample", "// another" + {KERNEL!r}, HOPPER_TARGET, "cubin")
    result = [jit.settings()["use_nvrtc"], jit.compiler_info()["identity"].split()[0]]
"""
    environment = {"DG_JIT_USE_NVRTC": 0, "PATH": "/nowhere", "CUDA_HOME": None, "CUDA_PATH": None}
    outcome = check(code, DG_JIT_CACHE_DIR=fresh_cache, **environment)
    if outcome.result == "not hidden":
        pytest.skip("there is an nvcc in /usr/local/cuda, and only root can hide it")
    assert outcome.result == [True, "nvrtc"]
    (warning,) = outcome.stderr.splitlines()
    assert "DG_JIT_USE_NVRTC=0 asks for nvcc, but none was found; using NVRTC" in warning
    assert "DG_JIT_NVCC_COMPILER" in warning


FAKE_NVRTC = """
extern "C" {
int nvrtcVersion(int* major, int* minor) { return *major = 12, *minor = 4, 0; }
const char* nvrtcGetErrorString(int) { return "BUILD"; }
#define CALL(name) int name() { return 1; }
CALL(nvrtcCreateProgram) CALL(nvrtcDestroyProgram) CALL(nvrtcCompileProgram) CALL(nvrtcGetProgramLogSize)
CALL(nvrtcGetProgramLog) CALL(nvrtcGetPTXSize) CALL(nvrtcGetPTX) CALL(nvrtcGetCUBINSize) CALL(nvrtcGetCUBIN)
}
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_builds_of_a_library_without_build_id_are_told_apart(tmp_path):
    """NVRTC 12.4 has none, and kernels of another build must not be found under the same key."""
    identities = []
    for build in ("one", "two", "one"):
        library = tmp_path / f"libnvrtc_{len(identities)}.so"
        (tmp_path / "fake.cpp").write_text(FAKE_NVRTC.replace("BUILD", build))
        command = ["g++", "-shared", "-fPIC", "-Wl,--build-id=none", "-o", str(library), str(tmp_path / "fake.cpp")]
        subprocess.run(command, check=True)
        code = "result = jit.compiler_info()['identity']"
        identities.append(check(code, DG_JIT_NVRTC_LIBRARY=library).result)
    one, two, again = identities
    assert one.startswith("nvrtc 12.4 digest ")
    assert one == again != two


@pytest.mark.parametrize("compiler", COMPILERS)
def test_command_and_ptxas_output_are_printed(compiler, fresh_cache):
    outcome = check(
        compile_code(KERNEL),
        DG_JIT_CACHE_DIR=fresh_cache,
        DG_JIT_PRINT_COMPILER_COMMAND=1,
        DG_JIT_PTXAS_VERBOSE=1,
        **compiler,
    )
    assert f"--gpu-architecture={HOPPER_TARGET}" in outcome.stderr
    assert "ptxas info" in outcome.stderr
    assert "bytes spill stores" in outcome.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_dump_ptx(compiler, fresh_cache):
    check(compile_code(KERNEL), DG_JIT_CACHE_DIR=fresh_cache, **compiler)
    # A kernel that is cached without its PTX is compiled once more.
    for _ in range(2):
        check(compile_code(KERNEL), DG_JIT_CACHE_DIR=fresh_cache, DG_JIT_DUMP_PTX=1, **compiler)
        (path,) = Path(fresh_cache).glob("kernels/*/kernel.ptx")
        assert ".entry sample(" in path.read_text()


def test_dump_sass(fresh_cache):
    outcome = check(compile_code(KERNEL), DG_JIT_CACHE_DIR=fresh_cache, DG_JIT_DUMP_SASS=1)
    if shutil.which("nvdisasm"):
        (path,) = Path(fresh_cache).glob("kernels/*/kernel.sass")
        assert "EXIT" in path.read_text()
    else:
        assert "nvdisasm comes with the CUDA toolkit" in outcome.stderr


def test_debug_says_what_happens(fresh_cache):
    environment = {"DG_JIT_CACHE_DIR": fresh_cache, "DG_JIT_DEBUG": 1}
    assert f"sample for {HOPPER_TARGET} compiled in" in check(compile_code(KERNEL), **environment).stderr
    assert f"sample for {HOPPER_TARGET} read from" in check(compile_code(KERNEL), **environment).stderr


def test_old_language_standard_is_raised(fresh_cache):
    outcome = check(compile_code(KERNEL), DG_JIT_CACHE_DIR=fresh_cache, DG_JIT_CPP_STANDARD=17)
    assert "DG_JIT_CPP_STANDARD=17 is too old" in outcome.stderr


@pytest.mark.parametrize(
    ("value", "on"),
    [*[(no, False) for no in ("0", "false", "False", "OFF", "No", "")], *[(yes, True) for yes in ("1", "true", "ON")]],
)
def test_flags(value, on):
    assert check("result = jit.settings()['debug']", DG_JIT_DEBUG=value).result is on


CUDA_HEADERS = [path for path in sorted(Path("/usr/local").glob("cuda*/include")) if (path / "cuda.h").exists()]


@pytest.mark.skipif(
    not CUDA_HEADERS or not shutil.which("g++"), reason="needs g++ and a toolkit's cuda.h to compare with"
)
def test_driver_declarations_match_cuda_h(tmp_path):
    """csrc/device/driver_api.hpp declares the driver's calls by itself: the compiler compares them with cuda.h."""
    functions = {
        "cuInit": "Init",
        "cuDriverGetVersion": "DriverGetVersion",
        "cuDeviceGetCount": "DeviceGetCount",
        "cuDeviceGet": "DeviceGet",
        "cuDeviceGetName": "DeviceGetName",
        "cuCtxGetCurrent": "CtxGetCurrent",
        "cuLaunchKernelEx": "LaunchKernelEx",
        "cuLibraryLoadData": "LibraryLoadData",
        "cuLibraryGetKernel": "LibraryGetKernel",
        "cuKernelGetFunction": "KernelGetFunction",
        "cuKernelGetAttribute": "KernelGetAttribute",
        "cuKernelSetAttribute": "KernelSetAttribute",
        "cuKernelGetParamInfo": "KernelGetParamInfo",
        "cuOccupancyMaxActiveClusters": "OccupancyMaxActiveClusters",
        "cuTensorMapEncodeTiled": "TensorMapEncodeTiled",
        "cuDevicePrimaryCtxRetain": "DevicePrimaryCtxRetain",
        "cuCtxSetCurrent": "CtxSetCurrent",
        "cuThreadExchangeStreamCaptureMode": "ThreadExchangeStreamCaptureMode",
        "cuDeviceGetAttribute": "DeviceGetAttribute",
        "cuGetErrorName": "GetErrorName",
        "cuGetErrorString": "GetErrorString",
        "cuStreamIsCapturing": "StreamIsCapturing",
        "cuEventCreate": "EventCreate",
        "cuEventRecord": "EventRecord",
        "cuEventSynchronize": "EventSynchronize",
        "cuEventElapsedTime": "EventElapsedTime",
        "cuEventDestroy": "EventDestroy",
        "cuStreamSynchronize": "StreamSynchronize",
        "cuMemcpyDtoHAsync": "MemcpyDtoHAsync",
        "cuMemsetD32Async": "MemsetD32Async",
    }
    constants = {
        "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": "kMultiprocessorCount",
        "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE": "kL2CacheBytes",
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": "kComputeCapabilityMajor",
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": "kComputeCapabilityMinor",
        "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": "kMaxSharedMemoryPerBlockOptIn",
        "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": "kLocalBytes",
        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": "kMaxDynamicSharedMemoryBytes",
        "CU_STREAM_CAPTURE_MODE_RELAXED": "kCaptureModeRelaxed",
        "CU_STREAM_CAPTURE_STATUS_NONE": "kCaptureStatusNone",
        "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION": "kClusterDimension",
        "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": "kProgrammaticStreamSerialization",
        "CU_TENSOR_MAP_DATA_TYPE_UINT8": "kUint8",
        "CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B": "k16U4Align8B",
        "CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B": "k16U4Align16B",
        "CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B": "k16U6Align16B",
        "CU_TENSOR_MAP_DATA_TYPE_INT32": "kInt32",
        "CU_TENSOR_MAP_DATA_TYPE_FLOAT16": "kFloat16",
        "CU_TENSOR_MAP_DATA_TYPE_FLOAT32": "kFloat32",
        "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16": "kBfloat16",
        "CU_TENSOR_MAP_INTERLEAVE_NONE": "kInterleaveNone",
        "CU_TENSOR_MAP_L2_PROMOTION_NONE": "deep_gemm::TensorMapL2Promotion::none",
        "CU_TENSOR_MAP_L2_PROMOTION_L2_64B": "deep_gemm::TensorMapL2Promotion::bytes_64",
        "CU_TENSOR_MAP_L2_PROMOTION_L2_128B": "deep_gemm::TensorMapL2Promotion::bytes_128",
        "CU_TENSOR_MAP_L2_PROMOTION_L2_256B": "deep_gemm::TensorMapL2Promotion::bytes_256",
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE": "kFillZero",
        "CU_TENSOR_MAP_SWIZZLE_NONE": "deep_gemm::TensorMapSwizzle::none",
        "CU_TENSOR_MAP_SWIZZLE_32B": "deep_gemm::TensorMapSwizzle::bytes_32",
        "CU_TENSOR_MAP_SWIZZLE_64B": "deep_gemm::TensorMapSwizzle::bytes_64",
        "CU_TENSOR_MAP_SWIZZLE_128B": "deep_gemm::TensorMapSwizzle::bytes_128",
    }
    offsets = {
        "gridDimX": "grid_x",
        "blockDimX": "block_x",
        "sharedMemBytes": "shared_memory_bytes",
        "hStream": "stream",
        "attrs": "attributes",
        "numAttrs": "attribute_count",
    }
    # Enumerations and handles have other types here: arguments are compared by number, size and being pointers.
    lines = [
        '#include "device/driver_api.hpp"',
        '#include "device/tensor_map.hpp"',
        "#include <cstddef>",
        "#include <cuda.h>",
        "#include <tuple>",
        "using namespace deep_gemm::driver;",
        "template <typename> struct Shape;",
        "template <typename R, typename... A> struct Shape<R (*)(A...)> {",
        "    static constexpr size_t kCount = sizeof...(A);",
        "    static constexpr size_t kSizes[] = {sizeof(R), sizeof(A)...};",
        "    static constexpr bool kPointers[] = {false, std::is_pointer_v<A>...};",
        "};",
        "template <typename X, typename Y> constexpr bool same() {",
        "    if (Shape<X>::kCount != Shape<Y>::kCount) return false;",
        "    for (size_t i = 0; i <= Shape<X>::kCount; ++i)",
        "        if (Shape<X>::kSizes[i] != Shape<Y>::kSizes[i] || Shape<X>::kPointers[i] != Shape<Y>::kPointers[i])",
        "            return false;",
        "    return true;",
        "}",
        "static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));",
        "static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));",
        "static_assert(sizeof(LaunchAttribute::value) == sizeof(CUlaunchAttributeValue));",
        "static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));",
        "static_assert(sizeof(deep_gemm::EncodedTensorMap) == sizeof(CUtensorMap));",
        # The hardware wants 64 bytes, and CUDA 12's header says so; CUDA 13's says 128.
        "static_assert(alignof(deep_gemm::EncodedTensorMap) >= 64);",
        *(
            f"static_assert(offsetof(LaunchConfig, {own}) == offsetof(CUlaunchConfig, {c}));"
            for c, own in offsets.items()
        ),
        *(f"static_assert(static_cast<int>({own}) == {c});" for c, own in constants.items()),
        *(f"static_assert(same<decltype(Api::{own}), decltype(&{c})>());" for c, own in functions.items()),
    ]
    source = tmp_path / "compare.cpp"
    source.write_text("\n".join(lines))
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'deep_gemm' / 'include'}", f"-isystem{CUDA_HEADERS[-1]}"]
    command = ["g++", "-std=c++20", "-fsyntax-only", *include, str(source)]
    compared = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stderr
    # Every call that the runtime looks up was compared.
    known = (ROOT / "csrc" / "device" / "driver_api.cpp").read_text()
    found = {line.split("(")[1].split(")")[0] for line in known.splitlines() if line.startswith("    DEEP_GEMM_FIND(")}
    assert found | {"KernelGetParamInfo", "EventDestroy", "MemcpyDtoHAsync"} == set(functions.values())
