"""The CUDA path without a GPU: a driver that launches nothing, and tensors in host memory that say they lie on one.

Nothing is computed. What a call takes is then our part and tvm-ffi's; what the driver is asked for can be read.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import fresh
import torch
import tvm_ffi

from deep_gemm._targets import HOPPER_SMS

ROOT = Path(__file__).resolve().parents[2]
CUDA = 2  # DLPack's number of the device type
CODES = {torch.float8_e4m3fn: 10, torch.float32: 2, torch.bfloat16: 4, torch.int32: 0}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_kept: list[object] = []  # nothing here frees: a benchmark's tensors live as long as it does


class _Capsule:
    """What `tvm_ffi.from_dlpack` takes."""

    def __init__(self, tensor: torch.Tensor, index: int) -> None:
        extents = ctypes.c_int64 * tensor.dim()
        shape, strides = extents(*tensor.shape), extents(*tensor.stride())
        self.device = (CUDA, index)
        self.managed = _Managed(
            _DLTensor(
                tensor.data_ptr(),
                *self.device,
                tensor.dim(),
                CODES[tensor.dtype],
                tensor.element_size() * 8,
                1,
                ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
                ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)),
                0,
            )
        )
        _kept.append((tensor, shape, strides, self.managed))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), b"dltensor", None)


def pose_as_cuda(tensor: torch.Tensor, index: int = 0) -> tvm_ffi.Tensor:
    """The same memory, said to lie on a GPU."""
    return tvm_ffi.from_dlpack(_Capsule(tensor, index))


def running_backwards(tensor: torch.Tensor) -> tvm_ffi.Tensor:
    """A matrix's rows from the last to the first, which torch's strides cannot say."""
    capsule = _Capsule(tensor, 0)
    lent = capsule.managed.tensor
    capsule.device = (lent.device_type, lent.device_id) = (1, 0)
    lent.data += (tensor.shape[0] - 1) * tensor.stride(0) * tensor.element_size()
    lent.strides[0] = -tensor.stride(0)
    return tvm_ffi.from_dlpack(capsule)


@functools.cache
def built_driver() -> Path:
    """tests/support/driver/fake_libcuda.cpp as a library."""
    folder = Path(tempfile.mkdtemp(prefix="deep_gemm_driver_"))
    atexit.register(shutil.rmtree, folder)
    library = folder / "libcuda.so.1"
    source = Path(__file__).resolve().parent / "driver" / "fake_libcuda.cpp"
    command = [
        "g++",
        "-std=c++20",
        "-O2",
        "-shared",
        "-fPIC",
        f"-I{ROOT / 'csrc'}",
        f"-I{ROOT / 'deep_gemm' / 'include'}",
        "-Wl,-soname,libcuda.so.1",
    ]
    subprocess.run([*command, f"-DDEVICE_SMS={HOPPER_SMS}", str(source), "-o", str(library)], check=True)
    return library


def load_fake_driver(library: Path | str, silent: bool) -> None:
    """Make `built_driver()` this process's libcuda.so.1, before anything looks for that.

    It takes kernels of any parameters, and unless `silent` prints a line for each call of the driver.
    """
    # A later dlopen("libcuda.so.1") finds a library of that name already loaded.
    fake = ctypes.CDLL(str(library))
    fake.fake_take_any_parameters()
    if silent:
        fake.fake_be_silent()


# For the code below: products on a fake GPU. What the code says itself starts with "here ".
PRODUCTS = """
def fp8(*shape): return torch.zeros(*shape).to(torch.float8_e4m3fn)
def operands(index):
    tensors = fp8(64, 256), torch.ones(2, 64).T, fp8(128, 256), torch.ones(1, 2), torch.zeros(64, 128).bfloat16()
    return [pose_as_cuda(tensor, index) for tensor in tensors]
kept = {}
def product(index=0):
    a, sfa, b, sfb, d = kept.setdefault(index, operands(index))
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
def say(*words): print("here", *words, flush=True)
def rejection(call):
    try: call()
    except (ValueError, RuntimeError) as error: return str(error)
    return "nothing refused"
"""


def lines_of(code: str, capabilities: str, **environment: str) -> list[str]:
    """What code that uses `PRODUCTS` says, loads and launches on GPUs of these capabilities ("8.6 9.0")."""
    starts = ("here ", "load", "entry ", "launch ")
    return driver_lines(PRODUCTS + code, starts, FAKE_CAPABILITIES=capabilities, **environment)


def archs(lines: list[str]) -> set[str]:
    """Of the products' kernels that were loaded."""
    return {part for line in lines if line.startswith("entry ") for part in line.split("_") if part.startswith("sm")}


def launches(code: str) -> list[str]:
    """The driver's lines of what `code` launches."""
    return driver_lines(code, "launch ")


def driver_lines(code: str, start: str | tuple[str, ...], **environment: str) -> list[str]:
    """The driver's lines that start so (or with any of these), of `code` run in a process of its own. It has `torch`,
    `deep_gemm` and `pose_as_cuda`."""
    head = f"""
import deep_gemm
from fake_driver import load_fake_driver, pose_as_cuda
load_fake_driver({str(built_driver())!r}, silent=False)
"""
    done = fresh.check(head + code, **{"DG_JIT_CACHE_DIR": os.environ.get("DG_JIT_CACHE_DIR"), **environment})
    return [line for line in done.stderr.splitlines() if line.startswith(start)]
