"""`QuantLinear`: serves weights that stay as they are, of any format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .._gemm import gemm
from ..quantize import fp8_blocks
from ..utils import quantize_to_int4, quantize_to_mxfp4
from ..weights import PackedWeights, pack_weights, weights_from_checkpoint
from ..weights.checkpoint import fp8_blocks_from_checkpoint
from .checkpoint import Checkpoint, format_of
from .numbers import Scaled, as_autocast_has_it, scale_form
from .stored import StoredWeights

ELEMENTS = ("int4", "e2m1", "e4m3")


class QuantLinear(StoredWeights):
    """`y = x @ weight.T + bias` for inference, of PackedWeights or of E4M3 with scales of 128 x 128 blocks.

    x is permuted and quantised as the weights want it; y has x's dtype. No gradients: an x that asks for one is refused
    in grad mode.

    Args:
        weights: one matrix, `[N, K]`.
        bias: `[N]`.
    """

    bias: torch.Tensor | None

    def __init__(self, weights: PackedWeights | Scaled, bias: torch.Tensor | None = None) -> None:
        super().__init__(weights)
        if len(self.shape) != 2:
            raise ValueError(f"weights must be one matrix [N, K], got {[*self.shape]}: GroupedExperts takes stacks")
        self.out_features, self.in_features = self.shape
        if bias is not None and tuple(bias.shape) != (self.out_features,):
            raise ValueError(f"bias must be [{self.out_features}], got {[*bias.shape]}")
        self.register_buffer("bias", None if bias is None else bias.detach())

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, *, element: str = "int4", activations: str = "bf16", group_size: int | None = 128
    ) -> QuantLinear:
        """A layer's weight rounded to the nearest of so few bits.

        Args:
            linear: with a weight of floating point.
            element: 'int4'; 'e2m1', MXFP4, in groups of 32; or 'e4m3', in 128 x 128 blocks beside 'fp8' activations and
                with a scale for each row beside 'bf16'.
            activations: 'bf16' (FP16 too), 'fp8', 'int8' or 'int4', as `pack_weights` has them.
            group_size: of 'int4': of K that shares a scale; None: all of it.
        """
        weight = linear.weight.detach()
        bias = None if linear.bias is None else linear.bias.detach()
        return cls(quantized_weights(weight, element, activations, group_size), bias)

    @classmethod
    def from_checkpoint(
        cls,
        source: str | Path | Mapping[str, torch.Tensor] | Checkpoint,
        name: str,
        *,
        activations: str | None = None,
        config: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> QuantLinear:
        """The layer `name` of a checkpoint: a directory, or a mapping of tensors.

        Args:
            activations: by default 'bf16', but 'fp8' for FP8 in 128 x 128 blocks and 'int8' for QoQ.
            config: its quantization_config; by default that of the directory's config.json.
        """
        checkpoint = source if isinstance(source, Checkpoint) else Checkpoint(source)
        keys = checkpoint.keys_of(name, config)
        tensors = {part: tensor.to(device) for part, tensor in checkpoint.layer(name).items()}
        return cls(stored_weights(tensors, keys, activations, name), tensors.get("bias"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.multiply(x, self.bias)

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """As `forward`, with a bias `[N]` (or None) in the place of the layer's own."""
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x must be [.., {self.in_features}], got {[*x.shape]}")
        x = as_autocast_has_it(x)
        rows = x.reshape(-1, self.in_features)
        y = rows.new_empty((rows.shape[0], self.out_features))
        if torch.is_grad_enabled() and x.requires_grad:
            raise RuntimeError("x asks for a gradient, which QuantLinear has not: FP8Linear trains")
        packed = isinstance(self.weights, PackedWeights)
        gemm(self.tokens(rows), self.operand(), y, bias=bias if packed else None)
        if bias is not None and not packed:
            y = y + bias.to(y.dtype)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        weights = self.weights if isinstance(self.weights, PackedWeights) else "E4M3 in blocks of 128 x 128"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, {weights}"
        )


def quantized_weights(
    weight: torch.Tensor, element: str, activations: str, group_size: int | None, gate_up: str | None = None
) -> PackedWeights | Scaled:
    """A matrix, or a stack of them, rounded to the nearest. gate_up: as `pack_weights`, where weights are packed."""
    if element not in ELEMENTS:
        raise ValueError(f"element must be one of {', '.join(map(repr, ELEMENTS))}, got {element!r}")
    if element == "e4m3" and activations == "fp8":
        return fp8_blocks(weight.contiguous(), scales=scale_form(weight.device))
    how: dict[str, Any] = {"element": element, "activations": activations, "gate_up": gate_up}
    if element == "int4":
        values, scales = quantize_to_int4(weight, group_size)
        return pack_weights(values, scales, group_size=group_size, **how)
    if element == "e2m1":
        codes, exponents = quantize_to_mxfp4(weight)
        return pack_weights(codes, exponents, group_size=32, **how)
    scales = weight.float().abs().amax(-1).clamp(min=1e-4) / 448
    return pack_weights((weight.float() / scales.unsqueeze(-1)).to(torch.float8_e4m3fn), scales, **how)


def stored_weights(
    tensors: Mapping[str, Any],
    config: Mapping[str, Any],
    activations: str | None,
    name: str,
    gate_up: str | None = None,
) -> PackedWeights | Scaled:
    """Of a layer's tensors, by its checkpoint's config. gate_up: as `pack_weights`, where weights are packed."""
    form = format_of(config)
    how: dict[str, Any] = {"config": config, "prefix": f"{name}."}
    named = {f"{name}.{part}": tensor for part, tensor in tensors.items()}
    if form == "fp8-block" and activations in (None, "fp8"):
        return fp8_blocks_from_checkpoint(named, **how)
    kind = activations or ("int8" if form == "qoq" else "fp8" if form == "w4afp8" else "bf16")
    return weights_from_checkpoint(form, named, activations=kind, gate_up=gate_up, **how)
