"""Speed of the GEMM functions beside other libraries' in the same run, and against the hardware's limits.

    python benchmarks/bench_gemm.py --out results            every public case
    python benchmarks/bench_gemm.py --case dense,4096,7168,2048 --case masked,32,192,6144,7168
    python benchmarks/bench_gemm.py --only '^dense,(64|128)' --against-cublas
    python benchmarks/bench_gemm.py --cases benchmarks/models.json --against-cublas --name models --out results
    python benchmarks/bench_gemm.py --draw 100 --seed 1 --name drawn --out results     cases at random
    python benchmarks/bench_gemm.py --against-deepgemm FOLDER   DeepGEMM in turn: see other_deep_gemm.py

Each case: inputs are made on the GPU, the output is poisoned, one call is checked against FP64, and then calls are
timed, each after emptying the L2. `efficiency` is the floor, max(bytes / 4.3 TB/s, flops / 1.5 PFLOPS [BF16: 0.8]) + 2
us, over our time, for an H200 only. A table by class comes last; all numbers go into a JSON file under --out.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import other_deep_gemm
import torch
from compile_ahead import compile_ahead
from drawn_cases import drawn_cases
from machine import describe, write_result
from problems import NotAvailable, Problem, build
from summary import KNOWN_GPU, class_of, summarise
from timing import Timer, sustained_seconds

HERE = Path(__file__).resolve().parent
CHAIN_BYTES = 256e6  # inputs that a sustained run rotates over: several times the L2
LARGEST_DIFFERENCE = 1e-3  # calc_diff of BF16 rounding is about 1e-6: more than this is a wrong result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=HERE / "cases.json", help="JSON with cases")
    parser.add_argument("--draw", type=int, metavar="COUNT", help="so many cases at random by --seed")
    parser.add_argument("--case", action="append", default=[], help="kind,size,size,...; may repeat; then only these")
    parser.add_argument("--only", help="run the cases whose text (kind,size,...) matches this regular expression")
    parser.add_argument("--out", type=Path, help="directory for gemm.json")
    parser.add_argument("--name", default="gemm", help="name of the JSON file")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--calls", type=int, default=10, help="timed calls of a case; the median counts")
    parser.add_argument("--flush-gb", type=float, default=4.0, help="GB written before each call")
    parser.add_argument("--against-cublas", action="store_true", help="time cuBLASLt in turn, where it has the case")
    parser.add_argument("--against-deepgemm", type=Path, metavar="FOLDER", help="time that package's functions in turn")
    parser.add_argument("--again", action="store_true", help="time each case against itself: shows the noise")
    parser.add_argument("--sustained", type=float, default=0, help="also replay each case for so many seconds")
    parser.add_argument("--no-check", action="store_true", help="time without comparing with FP64")
    parser.add_argument("--method", choices=["auto", "profiler", "events", "host"], default="auto")
    parser.add_argument("--device", default="cuda", help="cpu: small cases, named by --case, on the simulator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=480, help="stop starting cases after this long")
    arguments = parser.parse_args()
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("nothing was measured: there is no GPU (--device cpu --case dense,16,256,512 tries the simulator)")
    return arguments


def parse_case(text: str) -> list:
    kind, *sizes = text.split(",")
    return [kind, *(int(size) for size in sizes)]


def text_of(case: list) -> str:
    return ",".join(str(part) for part in case)


def choose_cases(arguments: argparse.Namespace) -> list[dict]:
    if arguments.draw:
        drawn, source = [{"case": case} for case in drawn_cases(arguments.draw, arguments.seed)], "drawn"
    else:
        drawn = json.loads(arguments.cases.read_text())["rows"]
        source = "models" if any("model" in row for row in drawn) else "public"
    for row in drawn:
        row["class"] = class_of(row["case"], source)
    known = {text_of(row["case"]): row for row in drawn}
    if arguments.case:
        asked = [parse_case(text) for text in arguments.case]
        rows = [known.get(text_of(case), {"case": case, "class": class_of(case, source)}) for case in asked]
    else:
        rows = drawn
    if arguments.only:
        rows = [row for row in rows if re.search(arguments.only, text_of(row["case"]))]
    return rows


def contenders(problem: Problem, arguments: argparse.Namespace, theirs: ModuleType | None, result: dict) -> dict:
    """Calls that are timed in turn with ours, by the name of their time in the result; each has run once."""
    calls = {}
    if arguments.again:
        calls["again_us"] = problem.call
    if arguments.against_cublas and problem.cublas is not None:
        try:
            problem.cublas()
            calls["cublas_us"] = problem.cublas
        except Exception as error:
            result["cublas_status"] = str(error).splitlines()[0][:200]
    if theirs is not None:
        try:
            calls["deepgemm_us"] = checked(problem, theirs, arguments, result)
        except Exception as error:
            result["deepgemm_status"] = str(error).splitlines()[0][:200]
    return calls


def checked(problem: Problem, theirs: ModuleType, arguments: argparse.Namespace, result: dict) -> Callable[[], None]:
    """The other library's call, whose result is right."""
    call = problem.call_of(theirs)
    problem.poison()
    call()
    if not arguments.no_check:
        difference = result["deepgemm_difference"] = problem.check()
        if not difference <= LARGEST_DIFFERENCE:
            raise ValueError(f"wrong: differs from FP64 by {difference:.2e}")
    return call


def run_case(row: dict, timer: Timer, arguments: argparse.Namespace, theirs: ModuleType | None) -> dict:
    """Result of one case; `status` says what came of it, and a case is never left out."""
    case = row["case"]
    result = {"case": case, "class": row["class"], "status": "ok"}
    if "model" in row:
        result["model"] = row["model"]
    try:
        problem = build(case, timer.device, arguments.seed, row.get("total"))
    except NotAvailable as error:
        return result | {"status": f"not available: {error}"}
    problem.poison()
    problem.call()
    if not arguments.no_check:
        result["difference"] = problem.check()
        if not result["difference"] <= LARGEST_DIFFERENCE:
            result["status"] = f"WRONG: differs from FP64 by {result['difference']:.2e}"

    others = contenders(problem, arguments, theirs, result)
    timings = timer.time(problem.call, *others.values())
    seconds = timings[0].median
    # Another card's limits are not known, and the simulator's time says nothing about speed.
    known = timer.device.type == "cuda" and torch.cuda.get_device_name(timer.device) == KNOWN_GPU
    result |= {
        "us": seconds * 1e6,
        "method": timings[0].method,
        "kernels": timings[0].kernels,
        "floor_us": problem.floor_seconds * 1e6 if known else None,
        "efficiency": problem.floor_seconds / seconds if known else None,
        "tflops": problem.flops / seconds * 1e-12,
        "gb_per_s": problem.bytes / seconds * 1e-9,
    }
    result |= {name: timing.median * 1e6 for name, timing in zip(others, timings[1:], strict=True)}
    if arguments.sustained:
        count = max(1, min(32, round(CHAIN_BYTES / problem.bytes)))
        chain = [build(case, timer.device, arguments.seed + 7 * i, row.get("total")).call for i in range(1, count)]
        result["sustained_us"] = sustained_seconds([problem.call, *chain], arguments.sustained) * 1e6
    return result


def print_case(result: dict) -> None:
    line = f"{text_of(result['case']):32s}"
    if "us" not in result:
        print(f"{line} {result['status']}", flush=True)
        return
    line += f"{result['us']:9.2f} us {result['tflops']:7.1f} TFLOPS {result['gb_per_s']:6.0f} GB/s"
    if result["efficiency"] is not None:
        line += f" efficiency {result['efficiency']:.3f}"
    if "again_us" in result:
        line += f" again {result['again_us'] / result['us']:.3f}"
    if "sustained_us" in result:
        line += f" sustained {result['sustained_us']:.2f} us"
    if "cublas_us" in result:
        line += f" cuBLAS {result['cublas_us']:.2f} us"
    if "deepgemm_us" in result:
        line += f" DeepGEMM {result['deepgemm_us']:.2f} us"
    if len(result["kernels"]) > 1:
        line += f" ({len(result['kernels'])} kernels)"
    print(line + ("" if result["status"] == "ok" else f"  {result['status']}"), flush=True)


def print_summary(rows: list[dict]) -> None:
    def number(value: float | None) -> str:
        return "    -" if value is None else f"{value:5.3f}"

    print(f"\n{'class':34s} timed/cases  efficiency  least  over cuBLAS  slowest  over DeepGEMM  slowest  wrong")
    for row in rows:
        print(
            f"{row['class']:34s} {row['timed']:5d}/{row['cases']:<5d}       {number(row['efficiency'])}  "
            f"{number(row['least_efficient'])}        {number(row['over_cublas'])}    "
            f"{number(row['slowest_over_cublas'])}        {number(row['over_deepgemm'])}    "
            f"{number(row['slowest_over_deepgemm'])}  {row['wrong']:5d}"
        )


def main() -> int:
    arguments = parse_arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = choose_cases(arguments)
    device = torch.device(arguments.device)
    timer = Timer(device, int(arguments.flush_gb * 1e9), arguments.calls, arguments.method)
    machine = describe(arguments.commit)
    print(f"{machine.get('gpu', 'simulator')}, commit {machine['commit']}, {len(rows)} cases", flush=True)

    theirs = other_deep_gemm.load(arguments.against_deepgemm) if arguments.against_deepgemm else None
    begin = time.perf_counter()
    if device.type == "cuda":
        cases = [(row["case"], row.get("total")) for row in rows]
        count = compile_ahead(cases, True, device.index or 0, arguments.seed)
        print(f"{count} kernels compiled in {time.perf_counter() - begin:.1f} s", flush=True)
        if theirs is not None:
            other_deep_gemm.compile_ahead(arguments.against_deepgemm, rows, arguments.seed, device)
            print(f"and the other library's, after {time.perf_counter() - begin:.1f} s", flush=True)
    results = []
    for row in rows:
        if time.perf_counter() - begin > arguments.seconds:
            results.append({"case": row["case"], "class": row["class"], "status": "skipped: out of time"})
        else:
            try:
                results.append(run_case(row, timer, arguments, theirs))
            except Exception as error:
                traceback.print_exc()
                message = str(error).splitlines()[0] if str(error) else type(error).__name__
                results.append({"case": row["case"], "class": row["class"], "status": f"failed: {message}"})
        print_case(results[-1])

    classes = summarise(results)
    print_summary(classes)
    print(f"{time.perf_counter() - begin:.1f} s in all; times by {timer.method}")
    if arguments.out:
        settings = {"calls": arguments.calls, "flush_gb": arguments.flush_gb, "seed": arguments.seed}
        if arguments.against_deepgemm:
            settings["deepgemm"] = other_deep_gemm.version_of(arguments.against_deepgemm)
        document = {"what": "bench_gemm", "machine": machine, "settings": settings, "classes": classes, "rows": results}
        write_result(arguments.out / f"{arguments.name}.json", document)
    return 1 if any(result["status"].startswith(("WRONG", "failed")) for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
