"""Loads the native runtime, `_C.so`, and hands it as `C` to the rest of the package.

Nothing here touches CUDA: the runtime opens the driver at the first call that needs it, so that importing works in a
process that will fork, and on a machine without a driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._version import __version__

__all__ = ["C"]

PACKAGE_DIRECTORY = Path(__file__).resolve().parent
LIBRARY = PACKAGE_DIRECTORY / "_C.so"
# Called in every layer of every step: these borrow their tensors (csrc/borrowed_tensors_api.cpp).
# They take records by named fields (`NAME_fields`), and write those that stand here.
BORROWING = {
    "combine_results": ("out",),
    "combine_rows": ("out",),
    "exchange_choices": ("ids", "row_weights"),
    "gather_rows": ("out", "out_scales"),
    "moe_layer": ("inner", "inner_scales", "out"),
    "moe_layer_of_ranks": ("rows", "row_scales", "inner", "inner_scales"),
    "mqa_logits": ("logits",),
    "paged_mqa_logits": ("logits",),
    "pre_dispatch": ("q", "s", "out_ids", "out_weights"),
    "product": ("d", "d_scales", "d_count"),
    "pull_rows": ("out", "out_scales"),
    "push_rows": (),  # other ranks' memory
    "quantize": ("q", "s", "zeros", "sums"),
    "route": ("row_of", "source", "ends", "counts", "indices", "row_weights"),
}
# Those that an operator of torch serves where torch watches operators. The others have none, and run as ever.
WITH_OPERATORS = (
    "combine_rows",
    "gather_rows",
    "mqa_logits",
    "paged_mqa_logits",
    "product",
    "quantize",
    "route",
)


@contextlib.contextmanager
def _without_cuda_runtime() -> Iterator[None]:
    """Torch answers `torch.cuda.is_available()`, which tvm-ffi asks when imported, from NVML.

    The CUDA runtime, which it would ask otherwise, starts the driver, and a child of a later fork could not use CUDA.
    """
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def load() -> Any:
    """Load `_C.so` and tell it where the device headers and NVRTC are."""
    try:
        with _without_cuda_runtime():
            import tvm_ffi
    except ImportError as error:
        raise ImportError(
            f"deep_gemm needs apache-tvm-ffi ({error}). Run ./develop.sh, or: pip install 'apache-tvm-ffi>=0.1.15,<0.2'"
        ) from error
    if not LIBRARY.is_file():
        raise ImportError(
            f"{LIBRARY} does not exist: the native runtime is not built. In a clone of the repository run ./develop.sh "
            "(builds in place) or ./install.sh (builds and installs a wheel)."
        )
    from ._nvrtc import nvrtc_directories

    module = tvm_ffi.load_module(str(LIBRARY))
    _require_one_build(module)
    module.initialize(str(PACKAGE_DIRECTORY), nvrtc_directories())
    _lend(module)
    return module


def _require_one_build(module: Any) -> None:
    """Refuse a library that other Python files go with: an old one in a clone, or one of another distribution."""
    interface = hashlib.sha256((PACKAGE_DIRECTORY / "_C.pyi").read_bytes()).hexdigest()[:16]
    wanted = f"{__version__.partition('+')[0]} {interface}"
    try:
        found = str(module.build_id())
    except AttributeError:
        found = "unknown"
    if found != wanted:
        raise ImportError(
            f"{LIBRARY} is of build {found}, the Python files beside it are of build {wanted}: in a clone run "
            "./develop.sh; else another distribution has written into deep_gemm/ (python -m deep_gemm doctor names "
            "it): uninstall both, and install one"
        )


def _lend(module: Any) -> None:
    """Put functions that borrow torch's tensors in the place of tvm-ffi's, where torch can lend them (2.10 on).

    Either way a call moves the version counter of the tensor that it writes, as torch's own operators do: a backward
    pass that saved it then refuses instead of computing with what was overwritten.
    """
    import torch

    exchange_api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    count_writes = _write_counter()
    for name in BORROWING:
        function = getattr(module, name)
        if exchange_api is not None:
            setattr(module, name, borrowing(module, name, exchange_api, count_writes))
        else:
            setattr(module, name, _counting(function, name, _fields(module, name), count_writes))


def _fields(module: Any, name: str) -> tuple[str, ...]:
    """Names of the function's arguments."""
    return tuple(map(sys.intern, getattr(module, f"{name}_fields")().split()))


def _written(name: str, fields: tuple[str, ...]) -> slice:
    """Where among the fields those are that it writes."""
    count = len(BORROWING[name])
    first = fields.index(BORROWING[name][0]) if count > 0 else len(fields)
    assert fields[first : first + count] == BORROWING[name], name
    return slice(first, first + count)


def _write_counter() -> Callable[[Any], None]:
    """torch.autograd.graph.increment_version of a tuple of tensors, without the 50 ns that it adds."""
    import torch

    count = torch._C._increment_version
    try:
        count(())
    except RuntimeError:  # torch before 2.6, whose function takes one tensor

        def count_each(tensors: Any) -> None:
            for tensor in tensors:
                count(tensor)

        return count_each
    return count


def _counting(function: Any, name: str, fields: tuple[str, ...], count_writes: Callable[[Any], None]) -> Any:
    import torch

    written = _written(name, fields)

    def call(**record: Any) -> bool:
        unknown = [field for field in record if field not in fields]
        if unknown:
            raise TypeError(f"{name} takes no argument {unknown[0]!r}")
        given = [record.get(field) for field in fields]
        for first in given[written][:1]:
            if isinstance(first, (tuple, list)):
                given[written] = (*first, None)[: written.stop - written.start]
        if torch.is_grad_enabled() and any(getattr(argument, "requires_grad", False) for argument in given):
            raise RuntimeError("an argument asks for a gradient, which d would not have")
        done: bool = function(*given)
        count_writes(tuple(tensor for tensor in given[written] if isinstance(tensor, torch.Tensor)))
        return done

    return call


def borrowing(module: Any, name: str, exchange_api: object, count_writes: Callable[..., None] | None = None) -> Any:
    """The module's function `name`, borrowing the tensors of whom this capsule is, a DLPackExchangeAPI.

    `count_writes` is called with a tuple of the tensors that a call has written.
    """
    import torch

    library = ctypes.PyDLL(str(LIBRARY))
    make = library.deep_gemm_borrowing_function
    objects = [ctypes.py_object] * 9
    places = [ctypes.c_ssize_t] * 2
    make.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.py_object, *places, ctypes.py_object, *objects]
    make.restype = ctypes.py_object
    fields = _fields(module, name)
    written = _written(name, fields)
    return make(
        name.encode(),
        ctypes.cast(library[f"__tvm_ffi_{name}"], ctypes.c_void_p),
        fields,
        written.start,
        written.stop - written.start,
        getattr(module, name),
        exchange_api,
        module.raise_last_error,
        torch._C._len_torch_dispatch_stack if name in WITH_OPERATORS else int,  # which answers 0: no modes
        torch.Tensor.is_neg,
        count_writes,
        torch.is_grad_enabled,
        sys.intern("requires_grad"),
        TypeError,
        RuntimeError,
    )


if TYPE_CHECKING:
    from . import _C as C  # the stub, _C.pyi
else:
    C = load()
