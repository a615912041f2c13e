"""Runs all micro-benchmarks, each in a process of its own that may take so long and no longer, and writes one file.

python benchmarks/micro/run.py --out benchmarks/results      # micro_<gpu>.json
python benchmarks/micro/run.py --compile-only                # without a GPU
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ("grid", "read", "add", "ingress", "decode_chain", "k_block", "beside_wgmma", "logits_finish")


def run_part(name: str, arguments: list[str], seconds: float) -> str:
    """What came of it: "ok", or why not."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(seconds)
        return "ok" if code == 0 else f"exit status {code}"
    except subprocess.TimeoutExpired:  # a kernel that hangs: its process must go, or the next one waits too
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"not done after {seconds:.0f} s: ended"


def file_name(machine: dict) -> str:
    gpu = re.sub(r"^nvidia\s+", "", machine.get("gpu", "none").lower())
    return f"micro_{re.sub(r'[^a-z0-9]+', '_', gpu).strip('_')}.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="directory for the file")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--seconds", type=float, default=60, help="that one part may take")
    parser.add_argument("--commit", help="commit to record, where there is no .git")
    parser.add_argument("--compile-only", action="store_true", help="for Hopper, without a GPU")
    parser.add_argument("--simulate", action="store_true", help="small variants on the simulator: no speed")
    arguments = parser.parse_args()
    handed_on = [f"--{name}" for name in ("compile-only", "simulate") if getattr(arguments, name.replace("-", "_"))]
    if arguments.commit:
        handed_on += ["--commit", arguments.commit]

    document: dict = {"what": "micro", "machine": None, "parts": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(","):
            print(f"== {name}", flush=True)
            begin = time.perf_counter()
            status = run_part(name, [*handed_on, "--out", folder], arguments.seconds)
            part = {"status": status, "seconds": round(time.perf_counter() - begin, 1), "rows": []}
            path = Path(folder) / f"{name}.json"
            if path.is_file():  # of what was measured, even where the part did not end
                found = json.loads(path.read_text())
                part |= {"about": found["about"], "rows": found["rows"]}
                document["machine"] = found["machine"] or document["machine"]
            document["parts"][name] = part
            print(f"== {name}: {status}, {part['seconds']} s", flush=True)
    if arguments.out and document["machine"]:
        sys.path.insert(0, str(HERE.parent))
        from machine import write_result

        write_result(arguments.out / file_name(document["machine"]), document)
    return int(any(part["status"] != "ok" for part in document["parts"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
