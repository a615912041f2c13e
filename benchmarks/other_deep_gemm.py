"""Another package of the name `deep_gemm`, such as DeepGEMM itself, beside ours: to time both in one run on one card.

Nothing of it is part of this project. `folder` is where its wheel was unpacked:

    pip download --no-deps sgl-deep-gemm==0.1.2 && python -m zipfile -e sgl_deep_gemm-0.1.2-*.whl /tmp/theirs
    python benchmarks/bench_gemm.py --against-deepgemm /tmp/theirs
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch

NAME = "their_deep_gemm"  # in sys.modules, where `deep_gemm` is ours
NEEDED = ("libcudart", "libnvrtc", "libcublas", "libcublasLt")


def load(folder: Path) -> ModuleType:
    package = folder / "deep_gemm"
    nvidia = Path(torch.__file__).parent.parent / "nvidia"
    for name in NEEDED:  # its extension is linked with them, and torch loads them late
        for library in nvidia.glob(f"*/lib/{name}.so.*"):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    spec = importlib.util.spec_from_file_location(
        NAME, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{package} is no Python package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    for name in dir(module):  # some releases have the older names of only some functions
        older = name.replace("_fp8_fp4_", "_fp8_")
        if not hasattr(module, older):
            setattr(module, older, getattr(module, name))
    return module


def version_of(folder: Path) -> str:
    """Name and version as its wheel gives them."""
    metadata = next(folder.glob("*.dist-info/METADATA"), None)
    if metadata is None:
        return str(folder)
    fields = dict(line.split(": ", 1) for line in metadata.read_text().split("\n\n")[0].splitlines() if ": " in line)
    return f"{fields['Name']} {fields['Version']}"
