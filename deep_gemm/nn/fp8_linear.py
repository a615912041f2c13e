"""`FP8Linear`: trains and serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from .checkpoint import Checkpoint
from .master import MasterWeights, to_local
from .numbers import as_autocast_has_it
from .products import dense_product


class FP8Linear(MasterWeights):
    """`y = x @ weight.T + bias` as `torch.nn.Linear`, multiplied in FP8: forward, and both gradients.

    x is quantised with a scale for each token and 128 features, the weight for each 128 x 128, once a step; for the
    weight's gradient, which sums over tokens, both for 128 tokens. Sums and that gradient are FP32. y has x's dtype.

    Args:
        in_features, out_features, bias: as `torch.nn.Linear`.
        dtype: of the master weight and bias: float32 or bfloat16.
        precision: 'fp8', or 'bf16' for the same layer by BF16 products.
    """

    bias: torch.nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        precision: str = "fp8",
    ) -> None:
        super().__init__((out_features, in_features), precision=precision, dtype=dtype, device=device)
        self.in_features, self.out_features = in_features, out_features
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(out_features, dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)

    @classmethod
    def from_linear(cls, linear: torch.nn.Linear, *, precision: str = "fp8") -> FP8Linear:
        """With the same parameters, which stay those of the optimiser that has them."""
        made = cls(linear.in_features, linear.out_features, False, "meta", linear.weight.dtype, precision=precision)
        made.weight, made.bias = cast(torch.nn.Parameter, linear.weight), linear.bias
        return made

    @classmethod
    def from_checkpoint(
        cls, source: str | Path | Mapping[str, torch.Tensor], name: str, *, precision: str = "fp8"
    ) -> FP8Linear:
        """The layer `name` of a checkpoint that is not quantised, or of such tensors. Of others: `QuantLinear`."""
        tensors = Checkpoint(source).layer(name)
        weight = tensors.get("weight")
        if weight is None or weight.dim() != 2 or weight.dtype.itemsize == 1:
            raise ValueError(f"{name}.weight must be [N, K] of floating point, got tensors {sorted(tensors)}")
        bias = tensors.get("bias")
        made = cls(weight.shape[1], weight.shape[0], False, "meta", weight.dtype, precision=precision)
        made.weight = torch.nn.Parameter(weight)
        made.bias = None if bias is None else torch.nn.Parameter(bias)
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x must be [.., {self.in_features}], got {[*x.shape]}")
        x = as_autocast_has_it(x)
        trains = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        rows = x.reshape(-1, self.in_features)
        y: torch.Tensor = dense_product(rows, to_local(self.weight), *self.operands(trains))
        if self.bias is not None:
            y = y + to_local(self.bias).to(y.dtype)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"precision={self.precision}, dtype={self.weight.dtype}"
        )
