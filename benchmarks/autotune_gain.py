"""What DG_AUTOTUNE gains: each public case with the config that the cost model picks and with the one measured best.

    python benchmarks/autotune_gain.py --out results                     every public case
    python benchmarks/autotune_gain.py --only '^(dense,64|masked)' --forget

Both run in one process, in turn, timed as in bench_gemm.py. `gain` is the picked config's time over the measured one's;
where both are the same it shows the noise. What the runtime itself measured, and how long the first call took with
compiling and measuring, goes into the JSON file under --out. Winners are kept in the cache directory: --forget deletes
those of earlier runs first.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
import traceback
from pathlib import Path

import paths  # noqa: F401
import torch
from bench_gemm import HERE, LARGEST_DIFFERENCE, choose_cases, text_of
from machine import describe, write_result
from problems import NotAvailable, build
from summary import geometric_mean
from timing import Timer

from deep_gemm import jit
from deep_gemm._extension import C


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=HERE / "cases.json", help="JSON with the cases")
    parser.add_argument("--draw", type=int, metavar="COUNT", help="so many cases at random by --seed instead")
    parser.add_argument("--case", action="append", default=[], help="kind,size,size,...; may repeat; then only these")
    parser.add_argument("--only", help="run the cases whose text (kind,size,...) matches this regular expression")
    parser.add_argument("--out", type=Path, help="directory for autotune.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--calls", type=int, default=10, help="timed calls of a case; the median counts")
    parser.add_argument("--flush-gb", type=float, default=4.0, help="GB written before each call")
    parser.add_argument("--forget", action="store_true", help="first delete the winners in the cache directory")
    parser.add_argument("--method", choices=["auto", "profiler", "events", "host"], default="auto")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=480, help="stop starting cases after this long")
    return parser.parse_args()


def winners() -> set[Path]:
    return set((jit.cache_dir() / "tuned").glob("*.json"))


def run_case(row: dict, timer: Timer, seed: int) -> dict:
    case = row["case"]
    result = {"case": case, "class": row["class"], "status": "ok"}
    try:
        problem = build(case, timer.device, seed, row.get("total"))
    except NotAvailable as error:
        return result | {"status": f"not available: {error}"}

    def call(autotune: bool) -> None:
        # Forgets all plans: the call selects again, or reads the winner that the first such call has kept.
        C.set_autotune(timer.device.type == "cpu", timer.device.index or 0, autotune, None)
        problem.call()

    def synchronize() -> None:
        if timer.device.type == "cuda":
            torch.cuda.synchronize()

    known = winners()
    for name, autotune in (("picked", False), ("tuned", True)):
        problem.poison()
        synchronize()
        begin = time.perf_counter()
        call(autotune)
        synchronize()
        result[f"first_{name}_call_seconds"] = time.perf_counter() - begin
        difference = problem.check()
        if not difference <= LARGEST_DIFFERENCE:
            result["status"] = f"WRONG ({name}): differs from FP64 by {difference:.2e}"
    result["measured"] = [json.loads(path.read_text())["measured"] for path in winners() - known]
    picked, tuned = timer.time(lambda: call(False), lambda: call(True))
    return result | {
        "picked_us": picked.median * 1e6,
        "tuned_us": tuned.median * 1e6,
        "gain": picked.median / tuned.median,
        "method": picked.method,
        "kernels": len(tuned.kernels),
    }


def print_case(result: dict) -> None:
    line = f"{text_of(result['case']):32s}"
    if "gain" in result:
        line += (
            f"{result['picked_us']:9.2f} us picked {result['tuned_us']:9.2f} us tuned  gain {result['gain']:.3f}  "
            f"first call {result['first_picked_call_seconds']:.2f} s picked, "
            f"{result['first_tuned_call_seconds']:.2f} s tuned"
        )
    print(line + ("" if result["status"] == "ok" else f" {result['status']}"), flush=True)


def summarise(results: list[dict]) -> dict[str, dict]:
    by_class: dict[str, list[float]] = {}
    for result in results:
        if "gain" in result:
            by_class.setdefault(result["class"], []).append(result["gain"])
    return {
        name: {"cases": len(gains), "gain": geometric_mean(gains), "least": min(gains), "most": max(gains)}
        for name, gains in by_class.items()
    }


def main() -> int:
    arguments = parse_arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    if jit.cache_dir() is None:
        raise SystemExit("winners must be kept between calls: set DG_JIT_CACHE_DIR")
    if arguments.forget:
        shutil.rmtree(jit.cache_dir() / "tuned", ignore_errors=True)
    device = torch.device(arguments.device)
    timer = Timer(device, int(arguments.flush_gb * 1e9), arguments.calls, arguments.method)
    machine = describe(arguments.commit)
    rows = choose_cases(arguments)
    print(f"{machine.get('gpu', 'simulator')}, commit {machine['commit']}, {len(rows)} cases", flush=True)
    begin = time.perf_counter()
    results = []
    for row in rows:
        failed = {"case": row["case"], "class": row["class"]}
        if time.perf_counter() - begin > arguments.seconds:
            results.append(failed | {"status": "skipped: out of time"})
        else:
            try:
                results.append(run_case(row, timer, arguments.seed))
            except Exception as error:
                traceback.print_exc()
                results.append(failed | {"status": f"failed: {(str(error) or type(error).__name__).splitlines()[0]}"})
        print_case(results[-1])
    classes = summarise(results)
    print(f"\n{'class':28s} cases   gain  least   most")
    for name, row in classes.items():
        print(f"{name:28s} {row['cases']:5d}  {row['gain']:.3f}  {row['least']:.3f}  {row['most']:.3f}")
    if arguments.out:
        settings = {"calls": arguments.calls, "flush_gb": arguments.flush_gb, "seed": arguments.seed}
        document = {"what": "autotune_gain", "machine": machine, "settings": settings, "classes": classes}
        write_result(arguments.out / "autotune.json", document | {"rows": results})
    return 1 if any(result["status"].startswith(("WRONG", "failed")) for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
