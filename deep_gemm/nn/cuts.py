"""Tensor parallelism: one process's part of a layer's weights, read from a checkpoint by slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from .._numbers import integer
from .checkpoint import Checkpoint, format_of

# What a plan may say of a layer: which of its weight's two extents, [N, K], is cut.
_WAYS = {"columns": "N", "colwise": "N", "rows": "K", "rowwise": "K"}
_EXPERTS = "experts"  # a plan's word for a module of experts: each one's gates and ups along N, its down along K
# Of a format's tensors: the dimensions along N and along K. Tensors of one number are for all of the layer.
_FIRST_N: dict[str, tuple[int | None, int | None]] = {
    "weight": (0, 1),
    "weight_packed": (0, 1),
    "weight_scale": (0, 1),
    "weight_scale_inv": (0, 1),
    "weight_zero_point": (0, 1),
    "weight_g_idx": (None, 0),
    "blocks": (0, 1),
    "scales": (0, 1),
    "bias": (0, None),
}
_FIRST_K: dict[str, tuple[int | None, int | None]] = {
    "qweight": (1, 0),
    "qzeros": (1, 0),
    "scales": (1, 0),
    "g_idx": (None, 0),
    "bias": (0, None),
}
_DIMENSIONS = {
    "gptq": _FIRST_K,
    "awq": _FIRST_K,
    "compressed-tensors": _FIRST_N,
    "w4afp8": _FIRST_N,
    "mxfp4": _FIRST_N,
    "nvfp4": _FIRST_N,
    "fp8-block": _FIRST_N,
}
_INDICES, _SHAPE = ("g_idx", "weight_g_idx"), "weight_shape"


@dataclass(frozen=True)
class Cut:
    """The part of process `rank` of `size` along N (columns of the result) or K (rows of the weight's transpose)."""

    along: str
    rank: int
    size: int

    def of(self, extent: int, name: str, unit: int = 1) -> tuple[int, int]:
        """From and to (exclusive), in units."""
        if extent % self.size:
            raise ValueError(f"{name} must have {self.along} that {self.size} processes divide, got {extent}")
        share = extent // self.size
        if share % unit:
            raise ValueError(
                f"{name} cannot be cut along {self.along}={extent} in {self.size}: parts of {share} would cut what "
                f"{unit} of {self.along} share, a scale or a word"
            )
        return self.rank * share // unit, (self.rank + 1) * share // unit


@dataclass(frozen=True)
class ExpertCut:
    """The part of every expert that process `rank` of `size` has: of gates and ups along N, of `down` along K.

    `hidden` and `inner` are a whole expert's sizes. `group`: over which results are added up. For
    `GroupedExperts.from_checkpoint`.
    """

    rank: int
    size: int
    hidden: int
    inner: int
    group: Any | None = None

    def __post_init__(self) -> None:
        for name in ("size", "hidden", "inner"):
            integer(name, getattr(self, name), smallest=1)
        if not 0 <= integer("rank", self.rank) < self.size:
            raise ValueError(f"rank must be below the size of {self.size} and not below 0, got {self.rank}")

    @property
    def gates(self) -> Cut:
        """Of a matrix of gates, or of ups."""
        return Cut("N", self.rank, self.size)

    @property
    def down(self) -> Cut:
        return Cut("K", self.rank, self.size)

    def rows(self, name: str, layout: str, there: int) -> list[tuple[int, int]]:
        """Of gate_up, of which a tensor has `there` places along N: a run of gates and one of ups, or one of both."""
        if layout == "halves":
            begin, end = self.gates.of(self.inner, name, _unit(2 * self.inner, there))
            return [(begin, end), (there // 2 + begin, there // 2 + end)]
        if layout != "interleaved":
            raise NotImplementedError(f"{name} must have gates and ups in halves or interleaved, got {layout!r}")
        self.gates.of(self.inner, name)  # a gate and its up stay together
        return [self.gates.of(2 * self.inner, name, _unit(2 * self.inner, there))]


@dataclass(frozen=True)
class TensorParallel:
    """Of `convert`: who this process is, and which layers are cut how (patterns of modules' names)."""

    rank: int
    size: int
    plan: Mapping[str, str]
    group: Any | None = None

    def cut_of(self, name: str) -> Cut | None:
        """Of a linear layer."""
        way = self._way_of(name)
        if way == _EXPERTS:
            raise ValueError(f"config's plan must have 'columns' or 'rows' for the linear layer {name}, got {way!r}")
        return None if way is None else Cut(_WAYS[way], self.rank, self.size)

    def experts_cut_of(self, name: str, hidden: int, inner: int) -> ExpertCut | None:
        """Of a module of experts."""
        way = self._way_of(name)
        if way not in (None, _EXPERTS):
            raise ValueError(f"config's plan must have 'experts' for the experts {name}, got {way!r}")
        return None if way is None else ExpertCut(self.rank, self.size, hidden, inner, self.group)

    def _way_of(self, name: str) -> str | None:
        return next((way for pattern, way in self.plan.items() if fnmatchcase(name, pattern)), None)


def tensor_parallel_of(given: Any, plan: Mapping[str, str] | None) -> TensorParallel | None:
    """Of config's 'tensor_parallel', a process group or (rank, size), and 'plan'."""
    if given is None:
        if plan is not None:
            raise ValueError("config's 'plan' goes with 'tensor_parallel', which is missing")
        return None
    if not plan:
        raise ValueError(
            "config's 'tensor_parallel' wants a 'plan': patterns of names, and 'columns', 'rows' or 'experts'"
        )
    known = *_WAYS, _EXPERTS
    for pattern, way in plan.items():
        if way not in known:
            raise ValueError(f"config's plan must have {' or '.join(map(repr, known))} for {pattern!r}, got {way!r}")
    is_group = not isinstance(given, (tuple, list))
    rank, size = (given.rank(), given.size()) if is_group else given
    if not 0 <= rank < size:
        raise ValueError(f"config's tensor_parallel must be (rank, size) with a rank below the size, got {given!r}")
    return TensorParallel(rank, size, dict(plan), given if is_group else None)


def cut_layer(
    checkpoint: Checkpoint, name: str, config: Mapping[str, Any], n: int, k: int, cut: Cut
) -> dict[str, torch.Tensor]:
    """A part of the layer `name`, whose weight is `[n, k]`, by what its tensors' names have behind the layer's.

    Scales and words are never cut: a part that would begin within one is refused.
    """
    form = format_of(config)
    if form not in _DIMENSIONS:
        raise NotImplementedError(f"layers of {form!r} are not cut: rows lie in an order of their own")
    found = {}
    for part in checkpoint.parts_of(name):
        full = f"{name}.{part}"
        shape = checkpoint.shape(full)
        if part == _SHAPE:
            continue
        dimension = _DIMENSIONS[form].get(part, (None, None))[cut.along == "K"]
        if dimension is None or dimension >= len(shape) or shape[dimension] == 1:
            found[part] = checkpoint.part(full, {})
            continue
        unit = _unit(n if cut.along == "N" else k, shape[dimension])
        begin, end = cut.of(n if cut.along == "N" else k, full, unit)
        found[part] = checkpoint.part(full, {dimension: (begin, end)})
        if part in _INDICES:
            found[part] = _indices(found[part], full)
    if f"{name}.{_SHAPE}" in checkpoint:
        rows, columns = (n // cut.size, k) if cut.along == "N" else (n, k // cut.size)
        found[_SHAPE] = torch.tensor([rows, columns])
    return found


def cut_stack(
    checkpoint: Checkpoint,
    name: str,
    part: str,
    config: Mapping[str, Any],
    own: tuple[int, int],
    layout: str,
    cut: ExpertCut,
) -> torch.Tensor:
    """A part of the tensor `name` of all experts, of which `own` are read: of gate_up, whose rows lie by `layout`, or
    where that is '', of down."""
    form = format_of(config)
    if form not in _DIMENSIONS:
        raise NotImplementedError(f"experts of {form!r} are not cut: rows lie in an order of their own")
    shape, dimension = checkpoint.shape(name), _DIMENSIONS[form].get(part, (None, None))[not layout]
    if dimension is None or dimension + 1 >= len(shape) or shape[dimension + 1] == 1:
        return checkpoint.part(name, {0: own})
    there = shape[dimension + 1]
    runs = cut.rows(name, layout, there) if layout else [cut.down.of(cut.inner, name, _unit(cut.inner, there))]
    return joined([checkpoint.part(name, {0: own, dimension + 1: run}) for run in runs], dimension + 1)


def joined(parts: list[torch.Tensor], along: int) -> torch.Tensor:
    """Also of types of one byte, which torch does not concatenate everywhere."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].element_size() == 1:
        return torch.cat([part.view(torch.uint8) for part in parts], along).view(parts[0].dtype)
    return torch.cat(parts, along)


def _unit(extent: int, there: int) -> int:
    """How much of N or K one of a tensor's places stands for; the last one may be for less."""
    if extent % there == 0:
        return extent // there
    return 1 << (-(-extent // there) - 1).bit_length()


def _indices(groups: torch.Tensor, name: str) -> torch.Tensor:
    """Of a part along K, which begins with its own first group. Without groups, -1 throughout."""
    if bool((groups.diff() < 0).any()):
        raise ValueError(
            f"{name} must be in order to be cut along K: a part of K in act order has no groups of its own"
        )
    return groups - groups[0].clamp(min=0)
