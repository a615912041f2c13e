"""What a compiler makes of kernels, and what it says of them: registers, spills, warnings. For every architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass

import fresh

LOG = re.compile(r"^deep_gemm: log of kernel_(\d+) for \w+:$", re.MULTILINE)
CODE = """
from concurrent.futures import ThreadPoolExecutor
def compile(item):
    try:
        C.jit_compile(f"kernel_{item[0]}", item[1], TARGET, "cubin")
    except RuntimeError as error:
        return str(error)
with ThreadPoolExecutor(WORKERS) as pool:
    result = list(pool.map(compile, enumerate(TEXTS)))
"""


@dataclass(frozen=True)
class Compiled:
    """One kernel. `complaints`: what its log has besides ptxas's account of resources; empty where all is well."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    complaints: str
    error: str | None

    @property
    def is_clean(self) -> bool:
        return self.error is None and not (self.spill_bytes or self.stack_bytes or self.complaints)


def total(log: str, phrase: str) -> int:
    return sum(map(int, re.findall(rf"(\d+) bytes {phrase}", log)))


def compiled(log: str, error: str | None) -> Compiled:
    registers = max(map(int, re.findall(r"Used (\d+) registers", log)), default=0)
    complaints = [line for line in log.splitlines() if re.search("warning|error|Potential", line, re.IGNORECASE)]
    spills = total(log, "spill stores") + total(log, "spill loads")
    return Compiled(registers, spills, total(log, "stack frame"), "\n".join(complaints), error)


def compile_all(texts: list[str], target: str, workers: int = 2, **environment: int) -> list[Compiled]:
    """Compile kernels in a process of its own, past any cache: the log of one that is found there is not printed."""
    head = f"TARGET, WORKERS, TEXTS = {target!r}, {workers}, {texts!r}\n"
    done = fresh.check(head + CODE, DG_JIT_PTXAS_VERBOSE=1, DG_JIT_CACHE_DIR="", HOME=None, **environment)
    parts = LOG.split(done.stderr)
    logs = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    return [compiled(logs.get(index, ""), error) for index, error in enumerate(done.result)]
