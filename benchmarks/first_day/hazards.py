"""Runs drawn products of every row of the pair table under compute-sanitizer's tools, and writes down their reports.

python benchmarks/first_day/hazards.py --out results      # results/hazards.json
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
TESTS = "tests/kernels/test_matrix.py"
LINES = 40  # of a tool's reports that are kept


def sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or next(
        (path for path in ("/usr/local/cuda/bin/compute-sanitizer",) if Path(path).exists()), None
    )


def reports(text: str) -> list[str]:
    """The tool's lines that are no test output."""
    return [line for line in text.splitlines() if line.startswith("=========")]


def run(program: str, tool: str, seed: int, seconds: float) -> dict:
    command = [program, "--tool", tool, "--error-exitcode", "99", "--target-processes", "all", sys.executable]
    command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "-n", "0", "--seed", str(seed), TESTS]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=ROOT, timeout=seconds, capture_output=True, text=True)
        output, ended = done.stdout + done.stderr, f"exit status {done.returncode}"
    except subprocess.TimeoutExpired as error:
        parts = [part.decode(errors="replace") for part in (error.stdout, error.stderr) if isinstance(part, bytes)]
        output, ended = "".join(parts), f"not done after {seconds:.0f} s: ended"
    found = reports(output)
    # racecheck counts hazards, the others errors.
    summaries = [int(n) for n in re.findall(r"SUMMARY: (\d+) (?:error|hazard)", "\n".join(found))]
    others = "\n".join(line for line in output.splitlines() if line not in found)
    tests = re.findall(r"\d+ (?:passed|failed|skipped|deselected|error)[^,\n]*", others)
    return {
        "tool": tool,
        "ended": ended,
        "seconds": round(time.perf_counter() - begin, 1),
        "reported": sum(summaries) if summaries else None,
        "tests": ", ".join(tests),
        "lines": found[:LINES],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", default=",".join(TOOLS), help="with commas between")
    parser.add_argument("--tool-seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1, help="of the drawn products")
    parser.add_argument("--commit", help="taken, and not used: the report has it from elsewhere")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    program = sanitizer()
    rows = []
    for tool in arguments.tools.split(","):
        if program is None:
            rows.append({"tool": tool, "ended": "there is no compute-sanitizer", "seconds": 0, "reported": None})
        else:
            rows.append(run(program, tool, arguments.seed, arguments.tool_seconds))
        row = rows[-1]
        print(f"{tool:10s} {row['seconds']:6.1f} s  {row['ended']}, reported: {row['reported']}", flush=True)
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "hazards.json").write_text(json.dumps({"what": "hazards", "rows": rows}, indent=1))
    return int(any(row["reported"] != 0 for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
