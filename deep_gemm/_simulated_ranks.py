"""Groups of ranks on the simulator (`simulator.ranks`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._extension import C


class _Kept(TorchDispatchMode):
    """Keeps what is made alive until launches that touch it have run, and zeroes memory: checks read some."""

    def __init__(self, kept: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept = kept

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            if "empty" in function.__name__:
                made.view(torch.uint8).zero_() if made.dim() > 0 and made.stride(-1) == 1 else made.zero_()
            self.kept.append(made)
        return made


class SimulatedRank:
    """One of `SimulatedRanks`: stands where a process group is asked for.

    Within `with rank:` this thread's launches on CPU tensors are this rank's: they run with `SimulatedRanks.run`.
    """

    def __init__(self, ranks: SimulatedRanks, rank: int) -> None:
        self._ranks, self._rank, self._shared = ranks, rank, 0
        self._mode: _Kept | None = None

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return len(self._ranks)

    def share(self, part_bytes: int, sizes: tuple[int, ...]) -> tuple[torch.Tensor, list[int]]:
        """Zeroed memory of this rank, and where that of each rank lies. All ranks ask, in the same order."""
        ranks = self._ranks
        if self._shared == len(ranks.shared):
            ranks.shared.append([torch.zeros(part_bytes, dtype=torch.int8) for _ in range(self.size())])
            ranks.sizes.append(sizes)
        parts, wanted = ranks.shared[self._shared], ranks.sizes[self._shared]
        self._shared += 1
        if wanted != sizes:
            raise ValueError(f"a buffer must have the same sizes on all ranks, got {wanted} and {sizes}")
        return parts[self._rank], [part.data_ptr() for part in parts]

    def __enter__(self) -> SimulatedRank:
        C.simulator_add_launches_of(self._rank)
        self._mode = _Kept(self._ranks.kept)
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._mode is not None
        self._mode.__exit__(*error)  # type: ignore[no-untyped-call]
        C.simulator_add_launches_of(-1)


class SimulatedRanks:
    """GPUs of one host, each a rank, whose launches the simulator runs at the same time."""

    def __init__(self, count: int) -> None:
        self._all = [SimulatedRank(self, rank) for rank in range(count)]
        self.shared: list[list[torch.Tensor]] = []  # pieces of memory, a part for each rank
        self.sizes: list[tuple[int, ...]] = []
        self.kept: list[Any] = []
        C.simulator_forget_devices()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[SimulatedRank]:
        return iter(self._all)

    def __getitem__(self, rank: int) -> SimulatedRank:
        return self._all[rank]

    def run(
        self, schedule: str = "eager", seed: int = 0, hazards: str = "error", rules: str = "manual"
    ) -> list[dict[str, Any]]:
        """All launches since the last time."""
        try:
            parts = [part for parts in self.shared for part in parts]
            found: list[dict[str, Any]] = json.loads(C.simulator_run_devices(parts, schedule, seed, hazards, rules))
            return found
        finally:
            C.simulator_forget_devices()
            self.kept.clear()
