"""Loads the native runtime, `_C.so`, and hands it as `C` to the rest of the package.

Nothing here touches CUDA: the runtime opens the driver at the first call that needs it, so that importing works in a
process that will fork, and on a machine without a driver.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = ["C"]

PACKAGE_DIRECTORY = Path(__file__).resolve().parent
LIBRARY = PACKAGE_DIRECTORY / "_C.so"
# Called in every layer of every step: these borrow their tensors (csrc/lending_api.cpp).
LENDING = (
    "bf16_gemm",
    "fp8_gemm",
    "k_grouped_bf16_gemm",
    "k_grouped_fp8_gemm",
    "m_grouped_bf16_gemm_contiguous",
    "m_grouped_bf16_gemm_masked",
    "m_grouped_fp8_gemm_contiguous",
    "m_grouped_fp8_gemm_masked",
)


def load() -> Any:
    """Load `_C.so` and tell it where the device headers and NVRTC are."""
    try:
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
    module.initialize(str(PACKAGE_DIRECTORY), nvrtc_directories())
    _lend(module)
    return module


def _lend(module: Any) -> None:
    """Put functions that borrow torch's tensors in the place of tvm-ffi's, where torch can lend them (2.10 on)."""
    import torch

    exchange_api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange_api is None:
        return
    for name in LENDING:
        setattr(module, name, lending(module, name, exchange_api))


def lending(module: Any, name: str, exchange_api: object) -> Any:
    """The module's function `name`, borrowing the tensors of whom this capsule is, a DLPackExchangeAPI."""
    library = ctypes.PyDLL(str(LIBRARY))
    make = library.deep_gemm_lending_function
    make.argtypes = [ctypes.c_char_p, ctypes.c_void_p, *[ctypes.py_object] * 3]
    make.restype = ctypes.py_object
    function = ctypes.cast(library[f"__tvm_ffi_{name}"], ctypes.c_void_p)
    return make(name.encode(), function, getattr(module, name), module.raise_last_error, exchange_api)


if TYPE_CHECKING:
    from . import _C as C  # the stub, _C.pyi
else:
    C = load()
