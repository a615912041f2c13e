"""What a result was measured on, without which a time means nothing; and result files, which are kept short."""

from __future__ import annotations

import json
import platform
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from paths import ROOT

import deep_gemm

LINE, SHORT = 150, 30
ABSENT = "-"  # what a row of a packed table does not have


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


def _packed(value: Any) -> Any:
    """Six digits of numbers, and of several dicts in a list each name once."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _packed(item) for name, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) < 3 or not all(isinstance(item, dict) for item in value):
        return [_packed(item) for item in value]
    names = list(dict.fromkeys(name for item in value for name in item))
    rows = [[_packed(item[name]) if name in item else ABSENT for name in names] for item in value]
    return {"columns": names, "rows": rows}


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"columns", "rows"}:
        return {name: _unpacked(item) for name, item in value.items()}
    rows = [zip(value["columns"], row, strict=True) for row in value["rows"]]
    return [{name: _unpacked(item) for name, item in row if item != ABSENT} for row in rows]


def _text(value: Any, indent: str = "") -> str:
    """JSON, broken into lines where one would be long: a row a line."""
    short = json.dumps(value, separators=(",", ":"))
    is_row = isinstance(value, list) and not any(isinstance(item, list | dict) and len(item) > 8 for item in value)
    if len(indent + short) <= LINE or not isinstance(value, list | dict) or (is_row and indent and len(short) < 400):
        return short
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}:{_text(item, indent + ' ')}" for name, item in value.items()]
        return f"{{\n{indent} " + f",\n{indent} ".join(parts) + f"\n{indent}}}"
    texts = [_text(item, indent + " ") for item in value]
    lines = texts[:1]
    for before, text in pairwise(texts):  # short ones side by side
        if max(len(before), len(text)) < SHORT and len(lines[-1]) + len(text) < LINE:
            lines[-1] += f",{text}"
        else:
            lines.append(text)
    return f"[\n{indent} " + f",\n{indent} ".join(lines) + f"\n{indent}]"


def write_result(path: Path, document: dict) -> None:
    """A benchmark's JSON file, for report.py."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(_packed(document)) + "\n")
    print(f"written: {path}")


def read_result(path: Path) -> dict:
    """What write_result was given, up to the digits that it keeps."""
    return _unpacked(json.loads(path.read_text()))


def read_calibration(path: Path) -> dict:
    """What calibrate.py wrote: configs by their numbers, and their times; here rows of each config and its time."""
    document = json.loads(path.read_text())
    for problem in document["problems"]:
        measured = zip(problem.pop("configs"), problem.pop("us"), strict=True)
        problem["rows"] = [[*document["configs"][number], us] for number, us in measured]
    return document
