"""`GatedMLP`: a dense layer's gate, up and down as two products, to serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._gates import Gated
from .._gemm import gemm
from ..epilogue import SwiGLU
from ..weights import PackedWeights
from .checkpoint import Checkpoint
from .expert_tensors import joined_layers
from .gated_product import gated_rows, operand_of
from .numbers import Scaled, as_autocast_has_it
from .quant_linear import stored_weights
from .reduced import added_up
from .stored import StoredWeights

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class GatedMLP(torch.nn.Module):
    """`down(gate(gate_up(x)))` for inference, of weights that stay as they are.

    The gate is part of the first product, and so is quantising for the second one, where the runtime has it and that
    is faster (docs/layers.md); packed weights want `gate_up=` for it. No gradients.

    Args:
        gate_up, down: PackedWeights, or E4M3 with scales of 128 x 128 blocks: `[2 * inner, hidden]`, `[hidden, inner]`.
        gate: a gated activation of `epilogue`, as `SwiGLU()`; its layout says where gate_up's rows are.
        gate_up_bias, down_bias: `[N]`, in the order of the weights' rows; beside PackedWeights only.
        group: processes that have a part of `inner` each, and one of them the bias of down: results are added up.
    """

    gate_up_bias: torch.Tensor | None
    down_bias: torch.Tensor | None

    def __init__(
        self,
        gate_up: PackedWeights | Scaled,
        down: PackedWeights | Scaled,
        *,
        gate: Gated | None = None,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.gate_up, self.down = StoredWeights(gate_up), StoredWeights(down)
        self.gate = SwiGLU() if gate is None else gate
        shapes = self.gate_up.shape, self.down.shape
        if len(shapes[0]) != 2 or shapes[1] != (shapes[0][1], shapes[0][0] // 2):
            raise ValueError(f"weights must be [2 * inner, hidden] and [hidden, inner], got {[*map(list, shapes)]}")
        (self.hidden, self.inner), kinds = shapes[1], (self.gate_up.activations, self.down.activations)
        if kinds[0] != kinds[1]:
            raise ValueError(f"weights must be for one kind of activations, got {[*kinds]}")
        for name, part, bias in (("gate_up_bias", self.gate_up, gate_up_bias), ("down_bias", self.down, down_bias)):
            if bias is not None and not isinstance(part.weights, PackedWeights):
                raise NotImplementedError(f"{name} must be None except beside PackedWeights, whose products add biases")
            if bias is not None and tuple(bias.shape) != (part.shape[0],):
                raise ValueError(f"{name} must be {[part.shape[0]]}, got {[*bias.shape]}")
            self.register_buffer(name, None if bias is None else bias.detach())

    @classmethod
    def from_checkpoint(
        cls,
        source: str | Path | Mapping[str, torch.Tensor] | Checkpoint,
        name: str,
        *,
        projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
        activations: str | None = None,
        config: Mapping[str, Any] | None = None,
        gate: Gated | None = None,
        device: torch.device | str = "cpu",
    ) -> GatedMLP:
        """The MLP `name` of a quantised checkpoint, as `QuantLinear.from_checkpoint`.

        projections: the names of gate, up and down.
        """
        checkpoint = source if isinstance(source, Checkpoint) else Checkpoint(source)
        keys = checkpoint.keys_of(name, config)
        names = [f"{name}.{part}" for part in projections]
        layers = [{key: tensor.to(device) for key, tensor in checkpoint.layer(part).items()} for part in names]
        return cls.from_layers(layers, (names[0], names[2]), keys, activations, gate)

    @classmethod
    def from_layers(
        cls,
        layers: Sequence[Mapping[str, torch.Tensor]],
        names: tuple[str, str],
        config: Mapping[str, Any],
        activations: str | None,
        gate: Gated | None,
        group: ProcessGroup | None = None,
    ) -> GatedMLP:
        """Of the tensors of gate, up and down, where the first two are joined; names are those of gate and down."""
        gate = SwiGLU() if gate is None else gate
        if gate.layout != "halves":
            raise ValueError(f"gate's layout must be 'halves' where gates and ups are apart, got {gate.layout!r}")
        both, down = joined_layers(names[0], dict(layers[0]), dict(layers[1])), dict(layers[2])
        biases = both.pop("bias", None), down.pop("bias", None)
        first = stored_weights(both, config, activations, names[0], gate.layout)
        second = stored_weights(down, config, activations, names[1])
        return cls(first, second, gate=gate, gate_up_bias=biases[0], down_bias=biases[1], group=group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != self.hidden:
            raise ValueError(f"x must be [.., {self.hidden}], got {[*x.shape]}")
        if torch.is_grad_enabled() and x.requires_grad:
            raise RuntimeError("x asks for a gradient, which GatedMLP has not: FP8Linear trains")
        x = as_autocast_has_it(x)
        rows = x.reshape(-1, self.hidden)
        y = rows.new_empty(rows.shape)
        parts = self.gate_up, self.down, self.gate, self.gate_up_bias
        count = rows.shape[0]
        inner = gated_rows(self.gate_up.tokens(rows), *parts, None, (count,), x.dtype, count)
        gemm(inner, operand_of(self.down), y, bias=self.down_bias)
        return added_up(y, self.group).view(x.shape)

    def extra_repr(self) -> str:
        return f"hidden={self.hidden}, inner={self.inner}, gate={self.gate}"
