"""Kernels of other libraries on the simulator: fetched, compiled to PTX by nvcc, compared with FP64.

    PYTHONPATH=.:tests/support python tests/support/foreign_kernels.py --sources FOLDER [--only pingpong]

FOLDER takes what is fetched and compiled: CUTLASS (`git clone`), DeepGEMM 2.8.2 (its sdist), cuRAND's headers (which a
kernel includes). What stands there already is taken: FOLDER/cutlass with include/ and tools/util/include/,
FOLDER/deep_gemm with deep_gemm/include/ and third-party/, FOLDER/curand with curand_kernel.h somewhere. Nothing of it
belongs in the repository.

Each kernel runs under the schedules eager, lazy and random, by the manual's rules and by the hardware's. The exit
status is the number of kernels with wrong numbers, or with a hazard by the hardware's rules. What the simulator refuses
is listed with its reason.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import foreign_cutlass
import foreign_deep_gemm
import foreign_grouped
import torch
from foreign_launch import Compiled, Kernel, Launch

from deep_gemm import simulator

HERE = Path(__file__).resolve().parent
RUNS = [(rules, schedule) for rules in ("hardware", "manual") for schedule in ("eager", "lazy", "random")]
KERNELS = [*foreign_deep_gemm.KERNELS, *foreign_cutlass.KERNELS, *foreign_grouped.KERNELS]
CUTLASS = "https://github.com/NVIDIA/cutlass.git"
BARRIERS = "\n    barriers:"  # of a hazard, their states
DEEP_GEMM = "deepinfer-gemm==2.8.2"


def call(*command: str | Path, **options: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def fetch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    if not (folder / "cutlass").exists():
        call("git", "clone", "--quiet", "--depth=1", CUTLASS, folder / "cutlass")
    if not (folder / "deep_gemm").exists():
        environment = ["env", "DG_PACKAGE_NAME=deepinfer-gemm", "DG_SKIP_CUDA_BUILD=1"]
        call(*environment, *pip, "--no-build-isolation", "--dest", folder, DEEP_GEMM)
        call("tar", "xf", next(folder.glob("deepinfer*.tar.gz")), "-C", folder)
        next(path for path in folder.glob("deepinfer*") if path.is_dir()).rename(folder / "deep_gemm")
    if not (folder / "curand").exists():
        call(*pip, "--dest", folder, "nvidia-curand")
        (folder / "curand").mkdir()
        call("unzip", "-q", next(folder.glob("nvidia_curand*.whl")), "*/include/*", "-d", folder / "curand")


def versions(folder: Path) -> dict[str, str]:
    text = (folder / "cutlass/include/cutlass/version.h").read_text()
    numbers = re.findall(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH) (\d+)", text)
    package = (folder / "deep_gemm/deep_gemm/__init__.py").read_text()
    found = re.search(r"__version__ = '([\d.]+)'", package)
    return {"cutlass": ".".join(numbers), "deep_gemm": found[1] if found else "unknown"}


def include_folders(folder: Path, library: str) -> list[Path]:
    if library == "cutlass":
        return [folder / "cutlass/include", folder / "cutlass/tools/util/include", HERE]
    own, curand = folder / "deep_gemm", next((folder / "curand").rglob("curand_kernel.h")).parent
    return [own / "deep_gemm/include", *(path / "include" for path in (own / "third-party").iterdir()), curand]


def compiled(kernel: Kernel, folder: Path, version: str) -> Compiled:
    """PTX, and for CUTLASS the program that prints parameters; kept by source, version and compiler."""
    headers = sorted(HERE.glob("*.cuh")) if kernel.library == "cutlass" else []
    parts = [
        kernel.source,
        *(header.read_text() for header in headers),
        kernel.target,
        version,
        call("nvcc", "--version"),
    ]
    place = folder / "compiled" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    text, program = place / "kernel.ptx", place / "program"
    if not (program if kernel.library == "cutlass" else text).exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "kernel.cu").write_text(kernel.source)
        command = ["nvcc", "-w", "-std=c++20", "--expt-relaxed-constexpr", "kernel.cu"]
        command += [f"-I{include}" for include in include_folders(folder.resolve(), kernel.library)]
        if kernel.library == "cutlass":
            architecture = f"arch=compute_{kernel.target},code=compute_{kernel.target}"
            command += ["-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL=1", "-gencode", architecture]
            call(*command, "--keep", "-o", "program", cwd=place)
        else:
            call(*command, "--ptx", f"-arch=compute_{kernel.target}", "-o", "kernel.ptx", cwd=place)
    return Compiled(text.read_text(), program if kernel.library == "cutlass" else None)


@dataclass
class Outcome:
    kernel: Kernel
    version: str
    worst: float = 0.0
    limit: float = 0.0
    hazards: dict[str, set[str]] = field(default_factory=lambda: {"manual": set(), "hardware": set()})
    seconds: float = 0.0  # of one run
    reason: str = ""  # why it was refused
    firsts: dict[str, str] = field(default_factory=dict)  # message by kind of hazard

    @property
    def wrong(self) -> bool:
        return not self.worst < self.limit

    @property
    def result(self) -> str:
        if self.reason:
            return "refused"
        return f"{'WRONG' if self.wrong else 'right'} ({self.worst:.0e})"

    def row(self) -> str:
        kinds = [", ".join(sorted(self.hazards[rules])) or "none" for rules in ("manual", "hardware")]
        cells = [self.kernel.name, f"{self.kernel.library} {self.version}", f"sm_{self.kernel.target}", self.result]
        return " | ".join(["", *cells, *kinds, f"{self.seconds:.1f}", self.reason, ""]).strip()


def run(outcome: Outcome, launch: Launch, ptx: str) -> None:
    outcome.limit = launch.limit
    started = time.process_time()
    for rules, schedule in RUNS:
        for tensor in launch.outputs:
            tensor.view(torch.uint8).fill_(255)
        for tensor in launch.zeros:
            tensor.zero_()
        report = simulator.run(
            ptx,
            entry=launch.entry,
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            smem_bytes=launch.smem_bytes,
            params=launch.params,
            tensors=launch.outputs,
            inputs=launch.inputs,
            schedule=schedule,
            seed=3,
            hazards="report",
            rules=rules,
        )
        if rules == "hardware" or not report.hazards:  # what a hazard says may have made numbers wrong
            outcome.worst = max(outcome.worst, launch.difference())
        for hazard in report.hazards:
            outcome.hazards[rules].add(hazard.kind)
            outcome.firsts.setdefault(hazard.kind, f"{rules} {schedule}: {hazard.message.split(BARRIERS)[0]}")
    outcome.seconds = (time.process_time() - started) / len(RUNS)


def outcome_of(kernel: Kernel, folder: Path, version: str) -> Outcome:
    outcome = Outcome(kernel, version)
    done = compiled(kernel, folder, version)
    try:
        run(outcome, kernel.launch(done), done.ptx)
    except RuntimeError as refusal:
        outcome.reason = " ".join(str(refusal).split())
    return outcome


def table(outcomes: Iterable[Outcome]) -> str:
    titles = ["kernel", "version", "target", "result", "hazards by the manual", "by the hardware", "s", "reason"]
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    return "\n".join([*lines, *(outcome.row() for outcome in outcomes)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="a folder outside of the repository")
    parser.add_argument("--only", default="", help="a part of the kernels' names")
    parser.add_argument("--verbose", action="store_true", help="also print the first hazard of each kind")
    arguments = parser.parse_args()
    fetch(arguments.sources)
    found, outcomes = versions(arguments.sources), []
    for kernel in KERNELS:
        if arguments.only in kernel.name:
            outcomes.append(outcome_of(kernel, arguments.sources, found[kernel.library]))
            print(outcomes[-1].row(), file=sys.stderr, flush=True)
            if arguments.verbose:
                print("\n".join(outcomes[-1].firsts.values()), file=sys.stderr)
    print(table(outcomes))
    return sum(not outcome.reason and (outcome.wrong or bool(outcome.hazards["hardware"])) for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
