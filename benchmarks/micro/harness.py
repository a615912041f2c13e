"""What the micro-benchmarks share: arguments, compiling all variants, one JSON file that grows with each result."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402
from machine import describe  # noqa: E402

from deep_gemm import simulator  # noqa: E402
from deep_gemm._extension import C  # noqa: E402
from deep_gemm._targets import HOPPER_TARGET  # noqa: E402
from deep_gemm.jit import compile_many  # noqa: E402

SMEM_BYTES = 232448  # a block's limit; a CTA that asks for it has its SM to itself


def constants(**values: int) -> str:
    """Puts `constexpr int` in front of a kernel."""
    return "".join(f"constexpr int {name} = {int(value)};\n" for name, value in values.items())


def kernel_file(name: str) -> str:
    return (HERE / name).read_text()


class Bench:
    """One micro-benchmark: variants (dataclasses), the kernel of each, and how it is measured.

    `measure(variant, device)` gives a row's numbers; `smaller(variant)` a variant that the simulator can run.
    """

    def __init__(
        self,
        name: str,
        what: str,
        variants: Sequence[Any],
        source: Callable[[Any], str],
        measure: Callable[[Any, torch.device], dict],
        show: Callable[[dict], str],
        smaller: Callable[[Any], Any] | None = None,
        target: str = HOPPER_TARGET,
        runs_on: Callable[[Any, str], bool] = lambda variant, target: True,
    ) -> None:
        """`target` is compiled for where there is no GPU, and what the simulator is; `runs_on(variant, target)` says
        which variants a target has."""
        self.name, self.what, self.variants, self.source = name, what, variants, source
        self.measure, self.show, self.smaller = measure, show, smaller
        self.target, self.runs_on = target, runs_on

    def of(self, target: str) -> list[Any]:
        return [variant for variant in self.variants if self.runs_on(variant, target)]

    def compile(self, variants: Sequence[Any], target: str, output: str) -> int:
        texts = sorted({self.source(variant) for variant in variants})
        results = compile_many([(self.name, text) for text in texts], target, output=output, progress=False)
        errors = [result.error for result in results if result.error]
        for error in errors:
            print(error, file=sys.stderr)
        return len(errors)

    def main(self) -> int:
        parser = argparse.ArgumentParser(description=self.what)
        parser.add_argument("--out", type=Path, help=f"directory for {self.name}.json")
        parser.add_argument("--commit", help="commit to record, where there is no .git")
        parser.add_argument("--compile-only", action="store_true", help="without a GPU")
        parser.add_argument("--simulate", action="store_true", help="small variants on the simulator: no speed")
        arguments = parser.parse_args()
        if arguments.compile_only:
            return self.compile(self.of(self.target), self.target, "cubin")
        if arguments.simulate:
            simulator.set_options(target=self.target)
            variants = list(dict.fromkeys(map(self.smaller, self.of(self.target)))) if self.smaller else []
        else:
            target = str(C.device_facts(False, 0)["target"])
            variants = self.of(target)
            self.compile(variants, target, "cubin")
        device = torch.device("cpu" if arguments.simulate else "cuda")
        document = {"what": self.name, "about": self.what, "machine": describe(arguments.commit), "rows": []}
        for variant in variants:
            document["rows"].append(asdict(variant) | self.measure(variant, device))
            print(self.show(document["rows"][-1]), flush=True)
            if arguments.out:  # after each: what comes next may hang
                arguments.out.mkdir(parents=True, exist_ok=True)
                (arguments.out / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n")
        return 0


def timed_launch(
    name: str, text: str, grid: int, block: int, cluster: int, tensors: list, numbers: list, times: int = 2
) -> None:
    """Runs a kernel that times itself; the last run counts, the others warm instructions, L2 and clocks up."""
    if tensors[0].device.type == "cpu":
        times = 1
    for _ in range(times):
        C.jit_launch(name, text, grid, block, cluster, SMEM_BYTES, False, tensors, numbers)
        if tensors[0].device.type == "cuda":
            torch.cuda.synchronize()


def num_sms(device: torch.device) -> int:
    return C.device_facts(device.type == "cpu", device.index or 0)["num_sms"]


def clocks(count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each CTA: cycles, first and last nanosecond."""
    return tuple(torch.zeros(count, dtype=torch.int64, device=device) for _ in range(3))
