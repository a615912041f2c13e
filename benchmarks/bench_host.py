"""What a call costs the host: warm calls and their parts, the first call on an empty cache, and the import.

    python benchmarks/bench_host.py --out results

Warm calls are timed in bursts that the GPU's launch queue swallows without blocking, a synchronisation between them.
First calls and imports are timed in fresh processes. Without a GPU first calls run on the simulator and warm ones on a
driver that does nothing, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from machine import describe, write_result
from paths import ROOT
from tables import launch_text
from warm_calls import bare_launches, warm_calls

IMPORT = """
import time
import torch, tvm_ffi
begin = time.perf_counter()
import deep_gemm
print(time.perf_counter() - begin)
"""

# The context, the allocator and torch's own kernels exist before the clock starts: only our part is timed.
FIRST_CALL = """
import json, sys, time
import torch
import deep_gemm
device = sys.argv[1]
def inputs(m, n, k):
    a = torch.randn(m, k, device=device).to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device=device).to(torch.float8_e4m3fn)
    sfa = torch.ones(-(-k // 128), -(-m // 4) * 4, device=device)[:, :m].T
    sfb = torch.ones(-(-n // 128), -(-k // 128), device=device)
    return (a, sfa), (b, sfb), torch.empty(m, n, device=device, dtype=torch.bfloat16)
def synchronise():
    if device != "cpu":
        torch.cuda.synchronize()
seconds = []
problems = [inputs(64, 256, 512), inputs(64, 256, 512), inputs(128, 512, 640)]
synchronise()
for a, b, d in problems:
    begin = time.perf_counter()
    deep_gemm.fp8_gemm_nt(a, b, d)
    synchronise()
    seconds.append(time.perf_counter() - begin)
print(json.dumps(seconds))
"""


def run_python(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environment},
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return done.stdout.strip().splitlines()[-1]


def import_seconds(repeats: int) -> list[float]:
    return [float(run_python(IMPORT)) for _ in range(repeats)]


def first_call_seconds(device: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of the first call on an empty cache, the same again, another kernel, and the first on a full cache."""
    found: dict[str, list[float]] = {"empty cache": [], "same again": [], "another kernel": [], "full cache": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as directory:
            first, again, other = json.loads(run_python(FIRST_CALL, device, DG_JIT_CACHE_DIR=directory))
            found["empty cache"].append(first)
            found["same again"].append(again)
            found["another kernel"].append(other)
            found["full cache"].append(json.loads(run_python(FIRST_CALL, device, DG_JIT_CACHE_DIR=directory))[0])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for host.json")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes for each first call and import")
    parser.add_argument("--warm-only", action="store_true", help="no first calls, no imports, no bare launches")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    result = {"what": "bench_host", "machine": describe(arguments.commit), "device": device.type}
    first, bare = not arguments.warm_only, device.type == "cuda" and shutil.which("g++") is not None
    result["import_seconds"] = import_seconds(arguments.repeats) if first else []
    result["first_call_seconds"] = first_call_seconds(device.type, arguments.repeats) if first else {}
    result["warm_call_seconds"] = warm_calls(device)
    result["bare_launches"] = bare_launches() if first and bare else []

    if first:
        print(f"import, beside torch's and tvm_ffi's own   {statistics.median(result['import_seconds']) * 1e3:9.1f} ms")
    for name, seconds in result["first_call_seconds"].items():
        print(f"first call: {name:30s} {statistics.median(seconds) * 1e3:9.1f} ms  (least {min(seconds) * 1e3:.1f})")
    for name, seconds in result["warm_call_seconds"].items():
        print(f"warm: {name:56s} {seconds['median'] * 1e6:6.2f} us  (least {seconds['least'] * 1e6:.2f})")
    for launch in result["bare_launches"]:
        where = f"{launch['stream']} stream, {launch['touched_bytes'] >> 10} KB of other memory before"
        print(f"bare launch: {launch_text(launch):44s} {launch['us']:6.2f} us  ({where})")
    if device.type == "cpu":
        print("no GPU: first calls ran on the simulator (its run is included); warm calls without the driver's launch")
    if arguments.out:
        write_result(arguments.out / "host.json", result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
