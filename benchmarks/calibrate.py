"""Measures configs on a GPU and fits the cost model's constants to it (csrc/config/sm90/cost_constants.hpp).

    python benchmarks/calibrate.py measure --seconds 200 --out results      # on the GPU: results/calibration.json
    python benchmarks/calibrate.py fit benchmarks/results/calibration_h200*.json      # --kinds bf16: those of BF16
    python benchmarks/calibrate.py regret benchmarks/results/calibration_h200*.json   # with the constants in force

`measure` takes problems of all kinds in turn (calibration_cases.py), the most different ones first, writes its file
after each, and stops in time: a shorter run has fewer problems of the same spread. It runs the calls as users make
them, N and K compiled in, with each config whose estimate is within a factor of the best one; so a model that is badly
wrong hides good configs from its own calibration: raise --within when the kernel has changed much. Kernels are
compiled ahead, on all cores, while others are timed. The fastest config of each problem is compared with FP64.

`fit` prints the constants as the header wants them, and *regret*: the time of the config that the model picks, over
the best one measured (fit.py). Look at the largest regret before taking its constants over.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from calibration_cases import TURNS, ordered, total_of
from compile_ahead import kernels_of
from fit import COLUMNS, Data, fit, print_regret, regret
from shapes import KINDS, Sizes, sizes_of

__all__ = ["COLUMNS", "TURNS", "Data", "print_regret"]

AHEAD = 3  # problems whose kernels are compiled while one is timed


# Compiling ahead


class Compiler:
    """Puts kernels into the disk cache, where the forced calls find them."""

    def __init__(self, target: str, output: str, num_sms: int, workers: int) -> None:
        self.target, self.output, self.num_sms = target, output, num_sms
        self.pool = ThreadPoolExecutor(workers)
        self.under_way: dict[tuple, list[Future]] = {}

    def start(self, case: list, sizes: Sizes, chosen: list) -> None:
        from deep_gemm._extension import C

        if tuple(case) in self.under_way:
            return
        try:
            kernels = kernels_of(sizes, self.num_sms, chosen, self.target)
        except Exception as error:  # the calls compile what they need themselves: slower, and nothing else
            print(f"nothing is compiled ahead for {case}: {error}", file=sys.stderr)
            kernels = set()
        self.under_way[tuple(case)] = [
            self.pool.submit(C.jit_compile, name, text, self.target, self.output) for name, text in sorted(kernels)
        ]

    def wait(self, case: list, until: float) -> bool:
        """False where the time is up first."""
        for future in self.under_way.pop(tuple(case), []):
            try:
                future.result(timeout=max(0.0, until - time.monotonic()))
            except TimeoutError:
                return False
            except Exception as error:  # the call itself will say more
                print(f"a kernel of {case} does not compile: {str(error).splitlines()[0]}", file=sys.stderr)
        return True

    def stop(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


# Measuring


def choose(sizes: Sizes, num_sms: int, target: str, within: float, most: int) -> list:
    from predict import candidates

    found = candidates(sizes, num_sms, target)
    return [candidate for candidate in found if candidate.estimate_us <= within * found[0].estimate_us][:most]


def force(on_gpu: bool, sizes: Sizes | None, config: tuple[int, ...] = (0,) * 7) -> None:
    from deep_gemm._extension import C

    # For a dense problem of these sizes; the call's own problem is then checked by itself.
    extents = (0, 0, 0) if sizes is None else (sizes.m, sizes.n, sizes.k)
    C.force_config(not on_gpu, 0, *extents, *config, 0)


def time_problem(case: list, sizes: Sizes, total: int | None, chosen: list, timer, seed: int) -> dict:
    from problems import build

    on_gpu = timer.device.type == "cuda"
    problem = build(case, timer.device, seed, total)

    def call(config: tuple[int, ...]) -> None:
        force(on_gpu, sizes, config)
        problem.call()

    served, failed = [], []
    try:
        for candidate in chosen:
            try:
                call(candidate.config)  # loads the kernel
                served.append(candidate.config)
            except (ValueError, RuntimeError) as error:
                failed.append([*candidate.config, str(error).splitlines()[0][:200]])
        timings = timer.time(*[lambda config=config: call(config) for config in served]) if served else []
        lines = sorted(
            ([*config, round(timing.median * 1e6, 2)] for config, timing in zip(served, timings, strict=True)),
            key=lambda line: line[-1],
        )
        entry = {"case": case, "total": total, "seed": seed, "rows": lines}
        if failed:
            entry["failed"] = failed
        if lines:
            problem.poison()
            call(tuple(lines[0][:-1]))
            entry["difference"] = float(f"{problem.check():.3g}")
    finally:
        force(on_gpu, None)
    return entry


def measure(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    until = begin + arguments.seconds
    import paths  # noqa: F401
    import torch
    from machine import describe
    from timing import Timer

    from deep_gemm._extension import C

    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    facts = C.device_facts(not on_gpu, 0)
    num_sms, target = facts["num_sms"], str(facts["target"])
    timer = Timer(device, int(arguments.flush_gb * 1e9), arguments.calls)
    compiler = Compiler(target, "cubin" if on_gpu else "ptx", num_sms, arguments.workers)
    cases = [json.loads(text) for text in arguments.case] or ordered(arguments.kinds.split(","))
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "calibration.json"
    document = {
        "what": "calibration",
        "machine": {"num_sms": num_sms, "target": target, **describe(arguments.commit)},  # these decide what is legal
        "settings": {"calls": arguments.calls, "flush_gb": arguments.flush_gb, "within": arguments.within},
        "columns": COLUMNS,
        "problems": [],
    }
    totals = {tuple(case): total_of(case) for case in cases}
    sizes_by_case = {tuple(case): sizes_of(case, totals[tuple(case)], arguments.seed) for case in cases}
    chosen_of = {
        case: choose(sizes, num_sms, target, arguments.within, arguments.most) for case, sizes in sizes_by_case.items()
    }
    longest, failures = 0.0, 0
    for index, case in enumerate(cases):
        started = time.monotonic()
        if started + longest > until:
            break
        for ahead in cases[index : index + 1 + AHEAD]:
            compiler.start(ahead, sizes_by_case[tuple(ahead)], chosen_of[tuple(ahead)])
        if not compiler.wait(case, until):
            break
        try:
            key = tuple(case)
            entry = time_problem(case, sizes_by_case[key], totals[key], chosen_of[key], timer, arguments.seed)
        except Exception as error:  # one problem must not lose the others
            print(f"{case} failed: {error}", file=sys.stderr, flush=True)
            document.setdefault("failed", []).append({"case": case, "error": str(error).splitlines()[:1]})
            failures += 1
            if failures == 3:  # in a row: the device does not recover from a faulting kernel
                break
            if on_gpu:
                torch.cuda.empty_cache()
            continue
        failures = 0
        document["problems"].append(entry)
        document["settings"]["method"] = timer.method
        write(document, path)
        best = entry["rows"][0] if entry["rows"] else None
        estimated = next((c.estimate_us for c in chosen_of[tuple(case)] if best and [*c.config] == best[:-1]), 0)
        print(
            f"{time.monotonic() - begin:5.0f} s {' '.join(map(str, case)):32s} {len(entry['rows']):3d} configs, best "
            f"{best}, estimated {estimated:.1f}" + (f", {len(entry['failed'])} failed" if "failed" in entry else ""),
            flush=True,
        )
        longest = max(longest, time.monotonic() - started)
    compiler.stop()
    counts = C.jit_statistics()
    print(
        f"{len(document['problems'])} of {len(cases)} problems in {time.monotonic() - begin:.0f} s; compiled "
        f"{counts['compiled']} kernels, found {counts['found_on_disk']} compiled ahead; written: {path}"
    )
    return 0


def write(document: dict, path: Path) -> None:
    """One problem a line, each config once for all of them (machine.read_calibration). Appears whole or not at all."""
    number: dict[tuple, int] = {}
    problems = []
    for problem in document["problems"]:
        columns = {
            "configs": [number.setdefault(tuple(config), len(number)) for *config, _ in problem["rows"]],
            "us": [us for *_, us in problem["rows"]],
        }
        kept = {name: value for name, value in problem.items() if name != "rows" and value is not None}
        problems.append(kept | columns)
    facts = {name: value for name, value in document.items() if name != "problems"} | {"configs": list(number)}
    head = ",\n".join(f' "{name}": {json.dumps(value, separators=(",", ":"))}' for name, value in facts.items())
    lines = ",\n  ".join(json.dumps(problem, separators=(",", ":")) for problem in problems)
    partial = path.with_suffix(".partial")
    partial.write_text(f'{{\n{head},\n "problems": [\n  {lines}\n ]\n}}\n')
    os.replace(partial, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure", help="time configs on a GPU")
    command.add_argument("--seconds", type=float, default=200, help="stop starting problems in time to end by then")
    command.add_argument("--kinds", default=",".join(KINDS), help="with commas between")
    command.add_argument("--case", action="append", default=[], help='JSON, as ["dense", 64, 2112, 7168]; may repeat')
    command.add_argument("--within", type=float, default=1.6, help="configs with estimates up to this times the best")
    command.add_argument("--most", type=int, default=40, help="configs of a problem")
    command.add_argument("--calls", type=int, default=5)
    command.add_argument("--flush-gb", type=float, default=4.0)
    command.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="kernels compiled at once")
    command.add_argument("--device", default="cuda")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--commit", help="commit to record, where there is no .git")
    command.add_argument("--out", type=Path, required=True, help="directory for calibration.json")
    command.set_defaults(run=measure)
    for name, run, worst in (("fit", fit, 10), ("regret", regret, 20)):
        command = commands.add_parser(name)
        command.add_argument("files", type=Path, nargs="+")
        kinds = [kind for kind in KINDS if run is not fit or kind != "bf16"]  # which has constants of its own
        command.add_argument("--kinds", default=",".join(kinds), help="with commas between")
        command.add_argument("--worst", type=int, default=worst, help="how many of the worst picks to print")
        command.set_defaults(run=run)
        if run is fit:
            command.add_argument("--seconds", type=float, default=120, help="of searching")
            command.add_argument("--seed", type=int, default=0, help="another one finds another optimum")
            command.add_argument("--constants", help="with commas between: the only ones that may change")
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
