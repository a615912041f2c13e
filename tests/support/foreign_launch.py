"""What foreign_kernels.py runs: a kernel of another library, its source, and how it is launched on which inputs."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

Shape = tuple[int, ...]
ONE: Shape = (1,)


@dataclass
class Launch:
    """One launch. `difference` is of the outputs from what FP64 makes of the same inputs."""

    params: bytes
    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]
    difference: Callable[[], float]
    limit: float
    block: Shape
    grid: Shape = ONE
    cluster: Shape = ONE
    smem_bytes: int = 0
    entry: str = ""  # the first of the text if empty
    zeros: list[torch.Tensor] = field(default_factory=list)  # of the outputs: what must be zero before each launch


@dataclass(frozen=True)
class Compiled:
    ptx: str
    program: Path | None  # that prints parameters

    def entry(self, name: str) -> str:
        return next(found for found in re.findall(r"\.entry\s+(\w+)", self.ptx) if name in found)

    def constant(self, name: str) -> int:
        """A `__device__ extern const unsigned` of the source."""
        found = re.search(rf"\.global .*\b{name} = (\d+);", self.ptx)
        assert found, f"the PTX has no constant {name}"
        return int(found[1])


@dataclass(frozen=True)
class Kernel:
    name: str
    library: str  # "deep_gemm" or "cutlass"
    target: str  # 90a, 100a, 120a
    source: str  # CUDA C++
    launch: Callable[[Compiled], Launch]


def difference(x: torch.Tensor, y: torch.Tensor) -> float:
    """As DeepGEMM's own tests measure it; 1 where something is not finite."""
    x, y = x.double(), y.double()
    if not x.isfinite().all():
        return 1.0
    return abs(float(1 - 2 * (x * y).sum() / (x * x + y * y).sum()))


def pack(arguments: Iterable[bytes | int | float | torch.Tensor | None]) -> bytes:
    """Kernel parameters: tensor maps (bytes; aligned to 128), numbers of 32 bits, addresses."""
    out = bytearray()
    for given in arguments:
        if isinstance(given, bytes):
            value, alignment = given, 128 if len(given) == 128 else 8
        elif isinstance(given, int | float):
            value, alignment = struct.pack("<f" if isinstance(given, float) else "<I", given), 4
        else:
            value, alignment = struct.pack("<Q", 0 if given is None else given.data_ptr()), 8
        out += bytes(-len(out) % alignment) + value
    return bytes(out)
