"""Both products of a MoE layer (mega_moe.py), in one launch or one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from . import quantize, routing
from ._gates import QUANTISE_PACKED_FROM
from ._gemm import Contiguous, gemm
from ._packed import gate_beside
from .epilogue import Chain, RowScale, SwiGLU
from .layout import get_tma_aligned_size
from .weights import PackedWeights

if TYPE_CHECKING:
    from .mega_moe_buffer import SM90SymmBuffer

__all__: list[str] = []

Scaled = tuple[torch.Tensor, torch.Tensor]
Weights = Scaled | PackedWeights

# Rows of an expert with which E4M3 weights are faster where each row has its expert's number than where experts have
# their ends: 1.04 to 1.11 times on an H200 (docs/mega-moe.md). Not tried on SM80.
_ROWS_WITH_INDICES = range(128, 1024)


@dataclass(frozen=True)
class Products:
    l1: Weights
    l2: Weights
    buffer: SM90SymmBuffer
    gate: SwiGLU

    @property
    def in_one_launch(self) -> bool:
        packed = isinstance(self.l1, PackedWeights) or isinstance(self.l2, PackedWeights)
        return self.buffer.ready is not None and (self.buffer.persistent is True or not packed)

    def kind_of_rows(self, expected: int) -> str:
        """How one rank's rows tell which experts' they are. `expected`: rows of an expert."""
        measured = self.buffer.arch == "sm90" and not self.in_one_launch and not isinstance(self.l1, PackedWeights)
        return "indices" if measured and expected in _ROWS_WITH_INDICES else "psum"

    def room_for_down(self, found: routing.Routing) -> torch.Tensor:
        return self.buffer.x.new_empty((found.source.shape[0], self.buffer.hidden), dtype=torch.bfloat16)

    def _room_for_inner(self, found: routing.Routing) -> Scaled:
        """E4M3 and scales as the next product reads them."""
        rows, columns, like = found.source.shape[0], self.buffer.intermediate_hidden, self.buffer.x
        q = like.new_empty((rows, columns), dtype=torch.float8_e4m3fn)
        scales = like.new_empty((columns // 128, get_tma_aligned_size(rows, 4)), dtype=torch.float32)
        return q, scales.T[:rows]

    def record(self, rows: routing.Rows, found: routing.Routing, expected: int) -> dict[str, Any]:
        """Of one launch, but for where results go (csrc/moe/layer.hpp)."""
        inner = self._room_for_inner(found)
        return {
            **_weights_fields("up", self.l1),
            **_weights_fields("down", self.l2),
            **dict(zip(("rows", "row_scales", "inner", "inner_scales"), (*rows, *inner), strict=True)),
            "ends": found.ends,
            "row_weights": found.row_weights,
            "ready": self.buffer.ready,
            "expected_m": expected,
            "gate": gate_beside(self.l1, self.gate.record) if isinstance(self.l1, PackedWeights) else self.gate.record,
        }

    def run(self, rows: routing.Rows, found: routing.Routing, expected: int, down: torch.Tensor) -> None:
        """Each in a launch of its own, results into `down`."""
        if found.indices is not None:
            grouping = Contiguous(found.indices)
        else:
            grouping = Contiguous(found.ends, psum=True, zero_padding=False, expected_m=expected)
        assert found.row_weights is not None
        steps, inner = Chain(self.gate, RowScale(found.row_weights)), self._room_for_inner(found)
        if isinstance(self.l1, PackedWeights) and expected < QUANTISE_PACKED_FROM:
            wide = down.new_empty(inner[0].shape, dtype=torch.float32)
            gemm(rows, self.l1, wide, grouping=grouping, epilogue=steps)
            quantize.fp8(wide, out=inner, grouping=grouping)
        else:
            gemm(rows, self.l1, inner, grouping=grouping, epilogue=steps)
        gemm(inner, self.l2, down, grouping=grouping)


def _weights_fields(name: str, weights: Weights) -> dict[str, Any]:
    if not isinstance(weights, PackedWeights):
        return {name: weights[0], f"{name}_scales": weights[1]}
    weights.require_inputs_in_order()
    return {
        name: weights.codes,
        f"{name}_scales": weights.scales,
        f"{name}_second_scales": weights.second_scales,
        f"{name}_zeros": weights.zeros,
        f"{name}_packing": (*weights.record_numbers.values(),),
    }
