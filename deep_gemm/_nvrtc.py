"""Where NVRTC, the compiler library, may lie on this machine. As a script: prints the places, fails where none is."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def nvrtc_directories() -> list[str]:
    """Directories that hold NVRTC, the likeliest first.

    Torch's CUDA build and the PyPI packages put it under `nvidia/` in site-packages (CUDA 13: `cu13/lib`, CUDA 12:
    `cuda_nvrtc/lib`), older torch wheels under `torch/lib`, a toolkit under its own `lib64`.
    """
    import torch

    packages = ["cu13", "cuda_nvrtc"]
    # A cubin of a newer major version than the driver's does not load: keep to the version that torch was built for.
    if (torch.version.cuda or "").startswith("12"):
        packages.reverse()
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    candidates = [root / package / "lib" for package in packages for root in roots]
    candidates.append(Path(torch.__file__).parent / "lib")
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            candidates += [Path(home) / "lib64", Path(home) / "targets" / "x86_64-linux" / "lib"]
    return list(dict.fromkeys(str(path) for path in candidates if any(path.glob("libnvrtc.so*"))))


if __name__ == "__main__":
    places = nvrtc_directories()
    print("\n".join(places) or "no NVRTC found")
    sys.exit(not places)
