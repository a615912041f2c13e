"""`python -m deep_gemm doctor`: what was found, what is missing, and the command that mends it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import deep_gemm

from .. import _installations, jit
from .._extension import C
from .._targets import GPUS
from .output import Output, first_line

_NVIDIA, _DISPLAY = "0x10de", "0x03"  # vendor, and class of graphics and compute adapters, of a PCI device


@dataclass(frozen=True)
class Missing:
    """Something without which less works: a sentence, and a command."""

    what: str
    mended_by: str


def usable_gpu() -> tuple[bool, str]:
    """Whether kernels can run on a GPU here, and what there is (or why not)."""
    try:
        driver = C.cuda_driver()
    except RuntimeError as error:
        return False, f"none: {first_line(error)}"
    if not torch.cuda.is_available():
        return (
            False,
            f"torch {torch.__version__} cannot use it (driver {driver['version']}, {driver['device_count']} GPUs)",
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    name = (
        f"{properties.name}, compute capability {properties.major}.{properties.minor}, "
        f"{properties.multi_processor_count} SMs, {properties.total_memory >> 30} GiB"
    )
    try:
        facts = C.device_facts(False, torch.cuda.current_device())
        return True, f"{name}, kernels of {facts['arch']} for {facts['target']}"
    except (RuntimeError, ValueError) as error:
        return False, f"{name}: {first_line(error)}"


def _or_error(ask: Any) -> tuple[dict[str, Any] | None, str]:
    try:
        return dict(ask()), ""
    except (RuntimeError, ValueError) as error:
        return None, first_line(error)


def _has_gpu(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether an NVIDIA GPU is on the bus, with a driver or without."""

    def read(file: Path) -> str:
        try:
            return file.read_text()
        except OSError:
            return ""

    return any(
        read(device / "vendor").startswith(_NVIDIA) and read(device / "class").startswith(_DISPLAY)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def _missing_of_gpu(driver: dict[str, Any] | None, compiler: dict[str, Any] | None) -> list[Missing]:
    if driver is None:
        if not _has_gpu():  # none that could be used: nothing is missing for the simulator
            return []
        if Path("/.dockerenv").exists():
            return [Missing("this container does not see the machine's NVIDIA driver", "docker run --gpus all ...")]
        return [
            Missing(
                "an NVIDIA GPU is here, its driver is not", "sudo apt-get install nvidia-driver-580 (Debian, Ubuntu)"
            )
        ]
    missing = []
    if torch.version.cuda is None:
        cpu_build = f"torch {torch.__version__} was built without CUDA"
        missing.append(Missing(cpu_build, f"{sys.executable} -m pip install --force-reinstall torch"))
    built = re.search(r"nvrtc (\d+)\.", str((compiler or {}).get("identity")))
    if built and int(built[1]) > driver["version"] // 1000:
        newer = f"the driver (CUDA {driver['version'] // 1000}) does not load what NVRTC {built[1]} compiles"
        missing.append(Missing(newer, f"{sys.executable} -m pip install nvidia-cuda-nvrtc-cu12"))
    return missing


def examine() -> dict[str, Any]:
    """What was found. `works`: kernels can be compiled, and no other distribution has files of ours."""
    driver, no_driver = _or_error(C.cuda_driver)
    compiler, no_compiler = _or_error(jit.compiler_info)
    simulator, no_simulator = _or_error(C.simulator_options)
    usable, gpu = usable_gpu()
    missing = _missing_of_gpu(driver, compiler)
    if compiler is None and jit.settings()["use_nvrtc"]:
        install = f"{sys.executable} -m pip install 'nvidia-cuda-nvrtc>=13.0,<14'"
        missing.append(Missing("no compiler: no kernel can be compiled", install))
    elif compiler is None:
        missing.append(Missing("no compiler: DG_JIT_USE_NVRTC=0 asks for an nvcc", "unset DG_JIT_USE_NVRTC"))
    directory = jit.cache_dir()
    if directory is None:
        missing.append(Missing("no directory for compiled kernels", "export DG_JIT_CACHE_DIR=/a/directory"))
    elif not os.access(next(each for each in (directory, *directory.parents) if each.exists()), os.W_OK):
        missing.append(Missing(f"{directory} cannot be written", "export DG_JIT_CACHE_DIR=/a/directory"))
    others = _installations.others()
    if others:
        names = " ".join(name.split()[0] for name in others)
        own = _installations.OWN_NAME
        missing.append(Missing(f"{', '.join(others)} has files in deep_gemm/ too", f"pip uninstall {names} {own}"))
    entries = jit.list_cache() if directory is not None else []
    return {
        "deep_gemm": deep_gemm.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "gpu": {"usable": usable, "what": gpu},
        "driver": driver,
        "driver_error": no_driver or None,
        "compiler": compiler,
        "compiler_error": no_compiler or None,
        "targets": {target: gpu.names for target, gpu in GPUS.items()},
        "simulator": simulator,
        "simulator_error": no_simulator or None,
        "cache": {
            "directory": None if directory is None else str(directory),
            "kernels": len(entries),
            "bytes": sum(entry.image_bytes for entry in entries),
            "max_bytes": int(jit.settings()["cache_max_bytes"]),
        },
        "vllm_copy": _installations.vllm_copy(),
        "other_installations": others,
        "missing": [vars(each) for each in missing],
        "works": compiler is not None and not others,
    }


def doctor(output: Output) -> bool:
    """Tell what was found. Whether kernels can be compiled, and no other distribution has files of ours."""
    found = examine()
    output.facts |= found
    output.line("deep_gemm {deep_gemm}, torch {torch}, Python {python}".format(**found))
    output.say("GPU", found["gpu"]["what"])
    version = found["driver"] and found["driver"]["version"]
    output.say("driver", f"CUDA {version // 1000}.{version % 1000 // 10}" if version else "none")
    compiler = found["compiler"]
    output.say("compiler", "{identity} ({path})".format(**compiler) if compiler else f"none: {found['compiler_error']}")
    for title, served in zip(["targets", *[""] * len(GPUS)], found["targets"].items(), strict=False):
        output.say(title, "{} ({})".format(*served))
    output.say("", "never on hardware of their own: kernels of sm100, which ran on the simulator only,")
    output.say(
        "", "and those of sm80 (sm_80 to sm_89, sm_110 to sm_121), which ran on it and on a Hopper that stands in"
    )
    simulator = found["simulator"]
    said = "{target}, {num_sms} SMs".format(**simulator) if simulator else f"none: {found['simulator_error']}"
    output.say("simulator", said)
    cache = found["cache"]
    if cache["directory"] is None:
        output.say("cache", "in memory only: no directory can be written")
    else:
        most = f"{cache['max_bytes'] / 1e6:.0f} MB at most" if cache["max_bytes"] else "no limit"
        size = f"{cache['kernels']} kernels, {cache['bytes'] / 1e6:.1f} MB ({most})"
        output.say("cache", f"{cache['directory']}: {size}")
    if found["vllm_copy"]:
        output.say("vLLM", f"{found['vllm_copy']} carries a copy of DeepGEMM, which it takes where deep_gemm cannot be")
        output.say("", "imported; names that are not here are served by it with DG_FALLBACK=1")
    if found["other_installations"]:
        output.say("conflict", _installations.conflict(found["other_installations"]))
    for title, each in zip(["missing", *[""] * len(found["missing"])], found["missing"], strict=False):
        output.say(title, f"{each['what']}. Run: {each['mended_by']}")
    return bool(found["works"])
