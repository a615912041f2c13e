"""Another package of the name `deep_gemm`, such as DeepGEMM itself, beside ours: to time both in one run on one card.

Nothing of it is part of this project. `folder` holds its package, built, and its wheel's metadata: a wheel unpacked, or
release 2.8.2 (PyPI, deepinfer-gemm), a source distribution that `setup.py build_ext --inplace` builds within 90 s:

    pip download --no-deps sgl-deep-gemm==0.1.2 && python -m zipfile -e sgl_deep_gemm-0.1.2-*.whl /tmp/theirs
    python benchmarks/bench_gemm.py --against-deepgemm /tmp/theirs

Its JIT takes seconds for each kernel, one after the other. `compile_ahead` calls it in several processes first, which
leave what they compiled in its cache on disk: this file, run with cases, is one of them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

NAME = "their_deep_gemm"  # in sys.modules, where `deep_gemm` is ours
PROCESSES = 14  # few cases take more than a twentieth of the memory
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


def compile_ahead(folder: Path, rows: Sequence[dict], seed: int, device: torch.device) -> None:
    """What these cases take of it. Whatever goes wrong is left to the timed call, which says more."""
    parts = [json.dumps([[row["case"], row.get("total")] for row in rows[i::PROCESSES]]) for i in range(PROCESSES)]
    command = [sys.executable, "-W", "ignore", __file__, str(folder), str(seed), str(device)]
    running = [
        subprocess.Popen([*command, part], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for part in parts
    ]
    for process in running:
        process.wait()


def _call_once(folder: Path, seed: int, device: torch.device, cases: list) -> None:
    from problems import build

    theirs = load(folder)
    for case, total in cases:
        try:
            build(case, device, seed, total).call_of(theirs)()
        except Exception as error:
            print(case, error, file=sys.stderr)
        if device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    _call_once(Path(sys.argv[1]), int(sys.argv[2]), torch.device(sys.argv[3]), json.loads(sys.argv[4]))
