"""Results do not depend on the hints of FFMA (csrc/jit/sm90/ffma_yields.hpp): on a machine with a GPU,

    PYTHONPATH=. python tests/support/hint_cases.py

calls functions in a process, gives the kernels in its cache directory hints that nobody asks for (every second FFMA
yields, none keeps an operand), calls them again in another process, and compares D bit by bit. It did so on an H200 at
720950f: equal, nine cases with 1,680 FFMA. No pytest file: no test of CI has a GPU to run this on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import sass

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CASES = [
    ["dense", 4096, 7168, 2048],
    ["dense", 512, 4096, 7168],
    ["dense", 4096, 576, 7168],
    ["dense", 256, 7168, 16384],
    ["dense", 2048, 3584, 18944],
    ["wgrad", 4096, 4096, 2048],
    ["contiguous", 8, 500, 4096, 4096],
    ["masked", 32, 192, 4096, 2048],
    ["kgrouped", 8, 1536, 2048, 1024],
]


def call_all() -> list[str]:
    """A digest of each case's D."""
    sys.path.insert(0, str(BENCHMARKS))
    import torch
    from problems import build

    digests = []
    for case in CASES:
        problem = build(case, torch.device("cuda"))
        d = problem.arguments[2]
        d.zero_()  # rows behind a masked expert's stay as they are
        problem.poison()
        problem.call()
        digests.append(hashlib.sha256(d.view(torch.uint8).cpu().numpy().tobytes()).hexdigest())
    return digests


def called(cache: str) -> list[str]:
    command = [sys.executable, __file__, "--call"]
    environment = {**os.environ, "DG_JIT_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def change_hints(entry: Path) -> int:
    """Of one kernel in the cache. Returns of how many FFMA."""
    image = bytearray((entry / "kernel.cubin").read_bytes())
    code = sass.code(bytes(image))
    begin, count = bytes(image).index(code), 0
    for at in range(begin, begin + len(code), sass.INSTRUCTION_BYTES):
        low, high = struct.unpack_from("<QQ", image, at)
        word = low | high << 64
        if word & sass.OPCODE != sass.FFMA:
            continue
        word &= ~(0xF << 122 | sass.NO_YIELD)
        if count % 2 == 0:
            word |= sass.NO_YIELD
        struct.pack_into("<QQ", image, at, word & (1 << 64) - 1, word >> 64)
        count += 1
    (entry / "kernel.cubin").write_bytes(image)
    facts = (entry / "kernel.json").read_text()
    digest = hashlib.sha256(image).hexdigest()  # without it the cache takes the kernel for damaged
    (entry / "kernel.json").write_text(re.sub(r'(?<="image_sha256": ")\w+', digest, facts))
    return count


def main() -> int:
    if sys.argv[1:] == ["--call"]:
        print(json.dumps(call_all()))
        return 0
    with tempfile.TemporaryDirectory() as cache:
        first, again = called(cache), called(cache)
        changed = sum(change_hints(entry) for entry in (Path(cache) / "kernels").iterdir())
        other = called(cache)
    for case, *digests in zip(CASES, first, again, other, strict=True):
        print(*case, "equal" if len(set(digests)) == 1 else f"DIFFERENT: {digests}")
    print(f"{changed} FFMA had other hints")
    return int(not changed or not first == again == other)


if __name__ == "__main__":
    raise SystemExit(main())
