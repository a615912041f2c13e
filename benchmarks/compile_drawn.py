"""Compiles what selection picks for problems at random (tests/support/drawn_problems.py; of four one with packed
weights, tests/support/every_problem.py), without a GPU, and writes down whether any kernel spills, or the compiler
warns of one. Equal kernels are compiled once, in an order of their own, so that any part of them is a sample of all.

    python benchmarks/compile_drawn.py --target sm_100a --out benchmarks/results  # 2,000 problems: sm100_compiled.json
    python benchmarks/compile_drawn.py --target sm_120a --count 100 --seed 7      # others, and nothing is written
    python benchmarks/compile_drawn.py --target sm_120a --seconds 600 --first 200  # from the 200th kernel on
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import paths  # noqa: F401
from compiled import Compiled, compile_all
from devices import arch_of
from drawn_problems import Problem, drawn_problems
from every_problem import packed_problems
from field_calls import kernel_of
from machine import describe, write_result

from deep_gemm._progress import progress
from deep_gemm._targets import GPUS

AT_ONCE = 20  # kernels of one process
MAX_SHOWN = 20


def problems_of(target: str, count: int, seed: int) -> list[Problem]:
    """Of four one with packed weights, if they are multiplied there."""
    arch, num_sms = arch_of(target), GPUS[target].sms
    has_int8 = target not in ("sm_100f", "sm_103a")
    packed = [
        (kind, {"num_sms": num_sms, **fields}) for kind, fields in packed_problems() if has_int8 or "s8" not in fields
    ]
    chosen = random.Random(seed).sample(packed, min(count // 4, len(packed)))
    return [*drawn_problems(arch, count - len(chosen), seed, num_sms, target), *chosen]


def kernels(problems: list[Problem], target: str, seed: int) -> dict[str, Problem]:
    """Source text of every kernel, and the first problem that gets it."""
    found: dict[str, Problem] = {}
    for grouping, fields in problems:
        found.setdefault(str(kernel_of(grouping, fields, target)["text"]), (grouping, fields))
    order = list(found.items())
    random.Random(seed).shuffle(order)
    return dict(order)


def compile_in_parts(found: dict[str, Problem], target: str, seconds: float) -> list[Compiled]:
    """All of them, or those of the first parts: none is begun after so many seconds. What is not clean is printed."""
    order, begin, results = list(found.items()), time.monotonic(), list[Compiled]()
    starts = range(0, len(order), AT_ONCE)
    for start in progress(starts, f"compiling for {target}", f"times {AT_ONCE}", len(starts)):
        if time.monotonic() - begin > seconds:
            break
        part = order[start : start + AT_ONCE]
        compiled = compile_all([text for text, _ in part], target, len(os.sched_getaffinity(0)))
        for (_, problem), each in zip(part, compiled, strict=True):
            if not each.is_clean:
                print(f"{problem}: {each}", file=sys.stderr, flush=True)
        results += compiled
    return results


def summary(found: dict[str, Problem], results: list[Compiled]) -> dict:
    registers = [each.registers for each in results if each.error is None]
    unclean = [
        {"problem": problem, "said": each.error or each.complaints, "spill_bytes": each.spill_bytes}
        for problem, each in zip(found.values(), results, strict=False)
        if not each.is_clean
    ]
    return {
        "kernels": len(results),
        "kernels_by_grouping": dict(Counter(grouping for grouping, _ in list(found.values())[: len(results)])),
        "refused_by_the_compiler": sum(each.error is not None for each in results),
        "spill_or_use_the_stack": sum(bool(each.spill_bytes or each.stack_bytes) for each in results),
        "warned_of": sum(bool(each.complaints) for each in results),
        "registers": {"most": max(registers, default=0), "median": statistics.median(registers or [0])},
        "not_clean": unclean[:MAX_SHOWN],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=[target for target in GPUS if arch_of(target) != "sm90"], default="sm_100a")
    parser.add_argument("--count", type=int, default=2000, help="problems")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the kernel to begin with")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="to begin no more kernels after")
    parser.add_argument("--out", type=Path, help="folder for ARCHITECTURE_compiled.json")
    arguments = parser.parse_args()

    problems = problems_of(arguments.target, arguments.count, arguments.seed)
    every = kernels(problems, arguments.target, arguments.seed)
    found = dict(list(every.items())[arguments.first :])
    machine = describe()  # before: the commit may be another one when all is compiled
    result = summary(found, compile_in_parts(found, arguments.target, arguments.seconds))
    document = {
        "commit": machine["commit"],
        "compiler": machine["compiler"],
        "target": arguments.target,
        "seed": arguments.seed,
        "problems": len(problems),
        "kernels_of_these": len(every),
        "first": arguments.first,
        **result,
    }
    for name, value in document.items():
        print(f"{name}: {value}")
    if arguments.out:
        write_result(arguments.out / f"{arch_of(arguments.target)}_compiled.json", document)
    return 1 if result["not_clean"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
