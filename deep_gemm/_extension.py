"""Loads the native runtime, `_C.so`, and hands it as `C` to the rest of the package.

Nothing here touches CUDA: the runtime opens the driver at the first call that needs it, so that importing works in a
process that will fork, and on a machine without a driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

PACKAGE_DIRECTORY = Path(__file__).resolve().parent
LIBRARY = PACKAGE_DIRECTORY / "_C.so"


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
    return module


if TYPE_CHECKING:
    from . import _C as C  # the stub, _C.pyi
else:
    C = load()
