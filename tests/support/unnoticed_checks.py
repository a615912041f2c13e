"""Which rejections of the runtime no test would miss: each is switched off alone, and the tests of them must fail.

    python tests/support/unnoticed_checks.py [--only checks.cpp] [--jobs 2]

Builds the runtime once, in a copy of the repository, with rejections that the environment can switch off (`Condition`
in csrc/util/require.hpp). Prints the rejections that nothing noticed; the exit status is their number, 100 at most.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    "check/checks.cpp",
    "check/checks_grouped.cpp",
    "check/checks_integer.cpp",
    "check/checks_k_grouped.cpp",
    "check/layout_values.cpp",
    "call/overlap.cpp",
    "check/recipe.cpp",
    "call/tensors.cpp",
]
# The likeliest to notice come first: a run ends at the first failure.
TESTS = [
    "api/test_errors.py",
    "api/test_grouped_errors.py",
    "api/test_k_grouped_errors.py",
    "api/test_int8_errors.py",
    "kernels/test_k_grouped_counts.py",
    "kernels/test_k_grouped_psum.py",
    "api/test_overlap.py",
    "api/test_layout_values.py",
    "kernels/test_operand_copies.py",
    "kernels/test_e8m0_scales.py",
    "kernels/test_wgrad.py",
    "kernels/test_bf16.py",
    "kernels/test_bf16_grouped.py",
    "kernels/test_layouts_dense.py",
    "kernels/test_layout.py",
    "kernels/test_layout_k_groups.py",
    "kernels/test_layout_transform.py",
    "api/test_wrong_calls.py",
]
# Tests of rejections; not the one that draws another set of calls each time.
SELECTED = "(refus or reject or wrong or error or contradict or overlap or cannot or apart) and not random_wrong_calls"
MAX_SECONDS = 600


@dataclass(frozen=True)
class Check:
    """A call of `require` or `require_type`, from its first line to its last."""

    file: str
    first: int
    last: int
    text: str


def checks_of(path: Path) -> Iterator[Check]:
    text = path.read_text()
    for name in ("require(", "require_type("):
        start = text.find(name)
        while start >= 0:
            before = text[start - 1]
            end, depth = start + len(name), 1
            while depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            if not (before.isalnum() or before == "_"):
                lines = text[:start].count("\n") + 1, text[:end].count("\n") + 1
                yield Check(path.name, *lines, " ".join(text[start:end].split()))
            start = text.find(name, end)


def build_copy(target: Path) -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for file in filter(None, files):
        if (ROOT / file).is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target / file)
    flags = f"{os.environ.get('CXXFLAGS', '')} -DDEEP_GEMM_SKIP_CHECKS"
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=target, env={**os.environ, "CXXFLAGS": flags}, check=True, stdout=subprocess.DEVNULL)


def is_noticed(copy: Path, check: Check | None) -> bool:
    """Whether some test fails without this rejection (None: with all of them)."""
    environment = dict(os.environ)
    if check is not None:
        environment["DG_SKIP_CHECK"] = f"{check.file} {check.first} {check.last}"
    tests = [f"tests/{test}" for test in TESTS]
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-k", SELECTED, *tests]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=MAX_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="a file of csrc/api (default: all with checks)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    checks = [check for name in arguments.only or SOURCES for check in checks_of(ROOT / "csrc" / "api" / name)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        build_copy(copy)
        if is_noticed(copy, None):
            sys.exit("the tests fail with all rejections in place: mend them first")
        with ThreadPoolExecutor(arguments.jobs) as pool:
            noticed = list(tqdm(pool.map(lambda check: is_noticed(copy, check), checks), total=len(checks)))
    unnoticed = [check for check, seen in zip(checks, noticed, strict=True) if not seen]
    for check in unnoticed:
        print(f"unnoticed: {check.file}:{check.first}: {check.text}")
    print(f"{len(checks)} rejections, {len(unnoticed)} unnoticed")
    return min(len(unnoticed), 100)


if __name__ == "__main__":
    sys.exit(main())
