"""Random legal calls by the thousand (random_call.py says what one is), on the simulator or a GPU:

    PYTHONPATH=. python tests/support/random_calls.py --calls 2000 --seed 1 --device cuda --seconds 500 --json out.json
    PYTHONPATH=. python tests/support/random_calls.py --calls 1000 --seed 1 --device cuda --target sm_80

Each call that fails is printed as a line that repeats it (`--only`), and the others go on: calls run in processes,
which compile beside each other, and one that died or hangs is started again behind its call. At `--seconds` all stop.
The last line and the JSON say how many calls there were, of what. Ends with 0 if none failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS_OF_A_CALL = 120  # then it hangs
BROKEN = 3  # what a worker ends with whose GPU serves it no more


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cpu: the simulator")
    parser.add_argument("--target", help="whose kernels: of the simulator (any, if not given), or that the GPU runs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write what happened")
    parser.add_argument("--only", metavar="SEED:NUMBER", help="one call, here, with its traceback")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # of a worker: numbers of its calls
    return parser.parse_args()


def prepare(given: argparse.Namespace) -> Any:
    """The device."""
    sys.path.insert(0, str(ROOT))
    import torch

    import deep_gemm

    torch.set_num_threads(1)
    if given.device == "cuda" and given.target:
        deep_gemm.set_target(given.target, "cuda")
    return torch.device(given.device, 0) if given.device == "cuda" else torch.device("cpu")


def name_of(seed: str, number: int) -> str:
    return f"{seed}:{number}"


def work(given: argparse.Namespace) -> int:
    """A worker: a line before each of its calls, and one behind it."""
    device = prepare(given)
    from random_call import random_call

    start, stop, step = map(int, given.part.split(":"))
    for number in range(start, stop, step):
        print(json.dumps({"begins": number}), flush=True)
        said: dict[str, Any] = {"ends": number}
        begin = time.monotonic()
        try:
            said["what"] = random_call(name_of(given.seed, number), device, given.target)
        except Exception as error:
            said |= {"failed": f"{type(error).__name__}: {error}", "what": getattr(error, "call", "")}
        said["seconds"] = round(time.monotonic() - begin, 3)
        print(json.dumps(said), flush=True)
        if "failed" in said and not still_works(given):
            return BROKEN
    return 0


def still_works(given: argparse.Namespace) -> bool:
    """Behind a fault of a kernel, nothing does in that process."""
    import torch

    try:
        return given.device == "cpu" or torch.cuda.synchronize() is None
    except RuntimeError:
        return False


@dataclass
class Worker:
    """A process that makes every `step`th call, and the thread that reads what it says."""

    index: int
    given: argparse.Namespace
    heard: queue.Queue
    next: int = field(init=False)
    began: bool = False  # a call
    process: subprocess.Popen = field(init=False)
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.next = self.index
        self.start()

    def start(self) -> None:
        part = f"{self.next}:{self.given.calls}:{self.given.workers}"
        options = ["--seed", self.given.seed, "--device", self.given.device, "--part", part]
        options += ["--target", self.given.target] if self.given.target else []
        self.last, self.began = time.monotonic(), False
        self.process = subprocess.Popen(
            [sys.executable, __file__, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process: subprocess.Popen) -> None:
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True)
        reader.start()
        for line in process.stdout:
            if line.startswith("{"):
                self.heard.put((self, json.loads(line)))
        reader.join()
        self.heard.put((self, {"left": process.wait(), "errors": "".join(errors)[-2000:]}))


class Run:
    """All workers, and what they said."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.heard = given, queue.Queue()
        self.begin, self.calls, self.failures = time.monotonic(), 0, []
        self.kinds: Counter[str] = Counter()
        given.workers = max(1, min(given.workers, given.calls))
        self.workers = [Worker(index, given, self.heard) for index in range(given.workers)]
        self.left = 0

    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def go(self) -> None:
        while self.left < len(self.workers):
            if self.seconds() > self.given.seconds:
                break
            with contextlib.suppress(queue.Empty):
                self.hear(*self.heard.get(timeout=1))
            for worker in self.workers:
                if worker.process.poll() is None and time.monotonic() - worker.last > SECONDS_OF_A_CALL:
                    worker.process.kill()
        for worker in self.workers:
            worker.process.kill()

    def hear(self, worker: Worker, said: dict[str, Any]) -> None:
        worker.last = time.monotonic()
        if "begins" in said:
            worker.next, worker.began = said["begins"], True
        elif "ends" in said:
            worker.next = said["ends"] + self.given.workers
            self.calls += 1
            if "failed" not in said:
                self.kinds[said["what"].partition(":")[0]] += 1
            else:
                self.fail(said["ends"], said["failed"], said["what"])
        else:
            self.leave(worker, said)

    def leave(self, worker: Worker, said: dict[str, Any]) -> None:
        """It ended; where it died within a call, that one failed."""
        if said["left"] not in (0, BROKEN):
            if not worker.began:
                raise SystemExit(f"no call could begin: {said['errors']}")
            hung = said["left"] == -9
            self.calls += 1
            self.fail(worker.next, "hangs" if hung else f"the process died with {said['left']}", said["errors"])
            worker.next += self.given.workers
        if worker.next < self.given.calls:
            worker.start()
        else:
            self.left += 1

    def fail(self, number: int, why: str, what: str) -> None:
        target = f" --target {self.given.target}" if self.given.target else ""
        line = (
            f"PYTHONPATH=. python tests/support/random_calls.py --only {name_of(self.given.seed, number)}"
            f" --device {self.given.device}{target}"
        )
        self.failures.append({"repeat": line, "failed": why, "what": what})
        print(f"{line}  # {why} [{what}]", flush=True)

    def summary(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "asked": self.given.calls,
            "failed": len(self.failures),
            "seconds": round(self.seconds(), 1),
            "seed": self.given.seed,
            "device": self.given.device,
            "target": self.given.target,
            "workers": self.given.workers,
            "right": dict(self.kinds.most_common()),
            "failures": self.failures,
        }


def main() -> int:
    given = arguments()
    if given.part:
        return work(given)
    if given.only:
        device = prepare(given)
        from random_call import random_call

        print(random_call(given.only, device, given.target))
        return 0
    run = Run(given)
    run.go()
    summary = run.summary()
    if given.json:
        given.json.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{summary['calls']} calls of {summary['asked']}, {summary['failed']} failed, {summary['seconds']} s")
    return int(summary["failed"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
