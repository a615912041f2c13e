"""The way in from Python: tensors lent, not shared (csrc/borrowed_tensors_api.cpp), and all else as tvm-ffi has it."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import threading
import time
from types import BuiltinFunctionType

import pytest
import torch
import tvm_ffi
from fake_driver import launches
from inputs import random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import _extension
from deep_gemm._extension import C

SHARING = tvm_ffi.load_module(str(_extension.LIBRARY))
CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


class OtherTensor(torch.Tensor):
    """Lent like any other: what says so is inherited."""


def problem(m: int = 24, n: int = 136, k: int = 256):
    return random_rows((m, k), CPU, 0), random_blocks((n, k), CPU, 1), torch.empty(m, n, dtype=torch.bfloat16)


@pytest.mark.parametrize("name", _extension.BORROWING)
def test_calls_of_every_layer_borrow(name) -> None:
    assert isinstance(getattr(C, name), BuiltinFunctionType)
    assert getattr(C, name).__name__ == name
    assert isinstance(getattr(SHARING, name), tvm_ffi.Function)


@pytest.mark.parametrize(
    "given",
    [
        lambda tensor: tensor,
        lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
        lambda tensor: tensor.as_subclass(OtherTensor),
        tvm_ffi.from_dlpack,
    ],
    ids=["tensor", "parameter", "subclass", "somebody else's"],
)
@pytest.mark.parametrize("recipe", [None, (1, 128, 128), [1, 128, 128]])
def test_all_kinds_of_tensors_and_recipes(given, recipe) -> None:
    a, b, d = problem()
    d.fill_(float("nan"))
    deep_gemm.fp8_gemm_nt(a, tuple(map(given, b)), given(d), recipe=recipe)
    assert_matches(d, product_nt(a, b))


FIELDS = C.product_fields().split()


def record(a, b, d) -> dict[str, object]:
    return {"a": a[0], "a_scales": a[1], "b": b[0], "b_scales": b[1], "d": d, "layout": 0}


def shared(**fields: object) -> object:
    """What tvm-ffi makes of the same."""
    d = fields["d"]
    if isinstance(d, tuple) and len(d) == 2:
        fields |= {"d": d[0], "d_scales": d[1]}
    return SHARING.product(*[fields.get(name) for name in FIELDS])


BAD = {
    "shape": lambda x: x | {"d": x["d"][:, :3]},
    "dtype": lambda x: x | {"a": x["a_scales"], "a_scales": x["a"]},
    "device": lambda x: x | {"d": x["d"].to("meta")},
    "too few": lambda x: {name: x[name] for name in ("a", "d")},
    "no tensor": lambda x: x | {"d": "d"},
    "an integer for a tensor": lambda x: x | {"d": 5},
    "a tensor for an integer": lambda x: x | {"layout": x["d"]},
    "an integer that is too large": lambda x: x | {"layout": 1 << 64},
    "recipe of text": lambda x: x | {"recipe": ("1", 128, 128)},
    "recipe of a large number": lambda x: x | {"recipe": (1, 1 << 70, 128)},
    "recipe for 1000003 of K": lambda x: x | {"recipe": (1, 128, 1000003)},
    "short recipe": lambda x: x | {"recipe": (1, 128)},
    "a pair with text": lambda x: x | {"d": (x["d"], "s")},
    "four tensors to write": lambda x: x | {"d": (x["d"],) * 4},
}


def error_of(function, fields) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:
        function(**fields)
    # Below the first line torch prints where it is, and a tensor's kind has two names.
    return caught.type, str(caught.value).splitlines()[0].replace("ffi.Tensor", "DLTensor*")


@pytest.mark.parametrize("case", BAD)
def test_errors_are_those_of_tvm_ffi(case) -> None:
    fields = BAD[case](record(*problem()))
    assert error_of(C.product, fields) == error_of(shared, fields)


@pytest.mark.parametrize("case", ["right", "a list", *BAD])
def test_nothing_is_kept(case) -> None:
    a, b, d = problem()
    right = record((a.data[:0], a.scales[:0]), b, d[:0]) | {"recipe": [1, 128, 128]}
    written = [d[:0].to(torch.float8_e4m3fn), torch.empty(2, 0).T]
    fields = BAD[case](record(a, b, d)) if case in BAD else right | ({"d": written} if case == "a list" else {})
    items = [item for field in fields.values() if isinstance(field, tuple | list) for item in field]
    # Not None and numbers, which are everybody's: other threads and the collector move their counts.
    own = [item for item in (*fields.values(), *items) if item is not None and not isinstance(item, int)]
    objects = [*own, *fields, torch.Tensor, torch.nn.Parameter, C.product]

    def call(times: int) -> None:
        for _ in range(times):
            try:
                C.product(**fields)
            except Exception as error:
                del error
        gc.collect()

    call(3)
    before = [sys.getrefcount(item) for item in objects]
    call(100)
    after = [sys.getrefcount(item) for item in objects]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), list(zip(before, after, strict=True))


def test_other_threads_run_meanwhile() -> None:
    """A launch may wait for a queue that only another thread's Python can empty."""
    a, b, d = problem(256, 1024, 4096)
    seen, done = [], threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(time.perf_counter())
            time.sleep(0.001)

    deep_gemm.fp8_gemm_nt(a, b, d)  # compiled
    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    deep_gemm.fp8_gemm_nt(a, b, d)
    end = time.perf_counter()
    done.set()
    watcher.join()
    middle = (end - begin) / 4  # what happens around the call itself does not count
    during = [moment for moment in seen if begin + middle < moment < end - middle]
    assert len(during) > 2, (len(during), end - begin)


def test_torch_that_cannot_lend(monkeypatch) -> None:
    module = tvm_ffi.load_module(str(_extension.LIBRARY))
    with monkeypatch.context() as older:
        older.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
        _extension._lend(module)
    (a, sfa), (b, sfb), d = problem()
    version = d._version
    assert not isinstance(module.product, BuiltinFunctionType)
    assert module.product(a=a, a_scales=sfa, b=b, b_scales=sfb, d=d, layout=0) is True
    assert_matches(d, product_nt((a, sfa), (b, sfb)))
    assert d._version == version + 1
    q = d.to(torch.float8_e4m3fn), torch.empty(2, 24).T
    versions = [x._version for x in q]
    assert module.product(a=a, a_scales=sfa, b=b, b_scales=sfb, d=q, layout=0) is True
    assert [x._version for x in q] == [version + 1 for version in versions]


# A library other than torch, that lends "tensors" on two GPUs, each with a stream of its own, and has no memory.
OTHER_LIBRARY = """
import ctypes
from fake_driver import CUDA, _Capsule, _DLTensor
from deep_gemm._extension import C, LIBRARY, borrowing
import tvm_ffi

class Lent:
    def __init__(self, tensor, index):
        self.capsule = _Capsule(tensor, index)

    def pointer(self):
        return ctypes.addressof(self.capsule.managed.tensor)

@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DLTensor))
def lend(item, out):
    ctypes.memmove(out, item.pointer(), ctypes.sizeof(_DLTensor))
    return 0

@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def stream(device_type, index, out):
    assert device_type == CUDA
    out[0] = 0xabc0 + index
    return 0

SAY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, SAY)
def allocate(prototype, out, context, say):
    say(context, b"MemoryError", b"the other library has none")
    return -1

class ExchangeApi(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32 * 2), ("previous", ctypes.c_void_p), ("allocator", type(allocate)),
                ("managed", ctypes.c_void_p), ("to_object", ctypes.c_void_p), ("lend", type(lend)),
                ("stream", type(stream)))

api = ExchangeApi((1, 3), None, allocate, None, None, lend, stream)
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
Lent.__dlpack_c_exchange_api__ = new(ctypes.addressof(api), b"dlpack_exchange_api", None)
module = tvm_ffi.load_module(str(LIBRARY))
product = borrowing(module, "product", Lent.__dlpack_c_exchange_api__)

environment = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
environment.TVMFFIEnvGetStream.restype = ctypes.c_void_p
environment.TVMFFIEnvGetDLPackManagedTensorAllocator.restype = ctypes.c_void_p
def state():
    streams = [environment.TVMFFIEnvGetStream(CUDA, index) for index in (0, 3)]
    return streams, environment.TVMFFIEnvGetDLPackManagedTensorAllocator()
environment.TVMFFIEnvSetStream(CUDA, 3, ctypes.c_void_p(0x77), None)
before = state()

def fp8(*shape): return torch.zeros(*shape).to(torch.float8_e4m3fn)
def call(index, scales):
    tensors = fp8(64, 256), scales, fp8(128, 256), torch.ones(1, 2), torch.zeros(64, 128).bfloat16()
    lent = [Lent(tensor, index) for tensor in tensors]
    for _ in range(3):
        a, a_scales, b, b_scales, d = lent
        assert product(a=a, a_scales=a_scales, b=b, b_scales=b_scales, d=d, layout=0) is True
for index in (0, 3):
    call(index, torch.ones(2, 64).T)
    assert state() == before, (state(), before)
try:
    call(3, torch.ones(64, 2))
except MemoryError as error:
    assert "the other library has none" in str(error), error
else:
    raise AssertionError("a workspace came from elsewhere")
assert state() == before, (state(), before)
"""


@needs_compiler
def test_stream_and_allocator_of_who_lends() -> None:
    streams = [line.split("stream ")[1].split()[0] for line in launches(OTHER_LIBRARY)]
    assert streams == ["abc0"] * 3 + ["abc3"] * 3


@needs_compiler
def test_a_process_without_python(tmp_path) -> None:
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text("""
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** paths) {
    for (int i = 1; i < count; ++i)
        if (!dlopen(paths[i], RTLD_NOW | RTLD_GLOBAL)) return puts(dlerror()), 1;
    return dlsym(RTLD_DEFAULT, "__tvm_ffi_product") == NULL;
}
""")
    subprocess.run(["g++", "-x", "c", source, "-o", program, "-ldl"], check=True)
    libraries = [tvm_ffi.libinfo.find_libtvm_ffi(), str(_extension.LIBRARY)]
    done = subprocess.run([program, *libraries], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
