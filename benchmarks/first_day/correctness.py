"""Runs the tests that need a GPU, a file at a time in processes of its own, and writes down what came of each.

    python benchmarks/first_day/correctness.py --out results      # results/correctness.json

A kernel that faults spoils its process for every test behind it. So files do not share one, and tests that failed run
once more, each alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tests/kernels", "tests/api", "tests/simulator", "tests/jit")
RUN_AGAIN = 10  # failed tests of a file
MESSAGE_CHARACTERS = 400


def pytest_command(arguments: list[str], record: Path) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", str(record), *arguments]


def run(arguments: list[str], seconds: float) -> dict:
    """Counts of a pytest run, and its failures; those of a run that does not end are not known."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.xml"
        begin = time.perf_counter()
        try:
            done = subprocess.run(
                pytest_command(arguments, record), cwd=ROOT, timeout=seconds, capture_output=True, text=True
            )
            ended = "ok" if done.returncode in (0, 1, 5) else f"pytest ended with {done.returncode}"
            tail = done.stdout[-2000:]
        except subprocess.TimeoutExpired:
            ended, tail = f"not done after {seconds:.0f} s: ended", ""
        result = {"ended": ended, "seconds": round(time.perf_counter() - begin, 1)}
        return result | (read(record) if record.is_file() else {"tail": tail})


def read(record: Path) -> dict:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    for case in ElementTree.parse(record).getroot().iter("testcase"):
        found = next((child for child in case if child.tag in ("failure", "error")), None)
        if found is not None:
            counts["failed"] += 1
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            failures.append({"test": name, "message": (found.get("message") or "")[:MESSAGE_CHARACTERS]})
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return counts | {"failures": failures}


def check(path: Path, arguments: argparse.Namespace, until: float) -> dict:
    seconds = max(10.0, min(arguments.file_seconds, until - time.monotonic()))
    options = [*arguments.pick, "-n", str(arguments.workers)]
    result = {"file": str(path.relative_to(ROOT))} | run([str(path), *options], seconds)
    for failure in result.get("failures", [])[:RUN_AGAIN]:
        if time.monotonic() > until:
            failure["alone"] = "not run"
            continue
        again = run([failure["test"], *arguments.pick, "-n", "0"], 120)
        failure["alone"] = "passed" if again.get("passed") and not again.get("failed") else "failed"
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help=f"test files; all of {', '.join(FOLDERS)} by default")
    parser.add_argument("--pick", type=str.split, default=["-m", "gpu"], help="which of their tests, for pytest")
    parser.add_argument("--workers", type=int, default=min(14, len(os.sched_getaffinity(0))))
    parser.add_argument("--file-seconds", type=float, default=900)
    parser.add_argument(
        "--seconds", type=float, default=3600, help="in all; files behind that are not run, and said so"
    )
    parser.add_argument("--commit", help="taken, and not used: the report has it from elsewhere")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    files = [path.resolve() for path in arguments.files]
    files = files or [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("test_*.py"))]
    until = time.monotonic() + arguments.seconds
    rows: list[dict] = []
    for path in files:
        name = str(path.relative_to(ROOT))
        rows.append(
            check(path, arguments, until)
            if time.monotonic() < until
            else {"file": name, "ended": "not run: out of time", "seconds": 0.0}
        )
        row = rows[-1]
        counts = ", ".join(f"{row[word]} {word}" for word in ("passed", "failed", "skipped") if row.get(word))
        print(f"{name:48s} {row['seconds']:6.1f} s  {row['ended']}  {counts}", flush=True)
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "correctness.json").write_text(json.dumps({"what": "correctness", "rows": rows}, indent=1))
    return int(any(row["ended"] != "ok" or row.get("failed") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
