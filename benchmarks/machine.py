"""What a result was measured on: without this a time means nothing."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import torch
from paths import ROOT

import deep_gemm


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None


def compiler() -> str:
    """What compiles the kernels."""
    from deep_gemm import jit

    try:
        return jit.compiler_info()["identity"]
    except RuntimeError as error:
        return f"none ({error})"


def describe(commit: str | None = None) -> dict:
    facts = {
        "commit": commit or _output("git", "rev-parse", "--short=12", "HEAD") or "unknown",
        "deep_gemm": deep_gemm.__version__,
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "python": platform.python_version(),
        "compiler": compiler(),
        "processor": platform.processor() or platform.machine(),
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        facts["gpu"] = properties.name
        facts["num_sms"] = properties.multi_processor_count
        smi = _output(
            "nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader", "-i", "0"
        )
        facts["driver"], facts["power_limit"], facts["clock_limit"] = [*(smi or "").split(", "), None, None, None][:3]
    return facts


def write_result(path: Path, document: dict) -> None:
    """A benchmark's JSON file, for report.py."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")
