"""Ends a process whose device stands still for long, and says in which call, and what its counters hold."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import torch

STILL_S = 30.0


class Watch:
    """Of a rank. Of a call: by its buffer."""

    def __init__(self, rank: int) -> None:
        self.rank, self.at, self.since = rank, "", 0.0
        self.counters: dict[str, torch.Tensor] = {}
        self.stream = torch.cuda.Stream()
        threading.Thread(target=self.look, daemon=True).start()

    def begin(self, at: str, buffer: Any = None) -> None:
        if buffer is not None and buffer.shared is not None:
            flags, calls = buffer.shared.part[:528].view(torch.int64), buffer.shared.record["calls"]
            of = {"flags": flags, "calls": calls, "ready": buffer.ready, "pulled": buffer.pulled}
            self.counters = {name: each for name, each in of.items() if each is not None}
        self.at, self.since = at, time.time()

    def end(self) -> None:
        torch.cuda.synchronize()
        self.since = 0.0

    def look(self) -> None:
        while True:
            time.sleep(0.5)
            if 0 < self.since < time.time() - STILL_S:
                print(f"rank {self.rank}: stands still in {self.at}", flush=True)
                threading.Timer(5, os._exit, [1]).start()
                with torch.cuda.stream(self.stream):
                    for name, each in self.counters.items():
                        held = each.cpu()
                        found = {int(i): int(held.view(-1)[i]) for i in held.view(-1).nonzero().view(-1)[:48]}
                        print(f"rank {self.rank}: {name} {found}", flush=True)
                os._exit(1)
