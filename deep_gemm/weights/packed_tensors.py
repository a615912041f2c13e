"""The tensors of packed weights, held against each other, and what follows from them."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any

import torch

from ..utils.math import ceil_div
from . import codes as code
from .conversion_scales import SCALES_A_WORD
from .gate_rows import checked_rows
from .near_scales import are_even, are_near
from .packings import ELEMENT_NUMBERS, FOLDED, K_BLOCK, ROWS, SMALLEST_GROUP, TWO_LEVELS, Packing, packing_of
from .rows import row_bytes

VERSION = 3
NEAR_SCALES = "near_scales"
VERSION_OF_GATES, GATES = 4, "gate_up"  # rows lie in another order, which older releases do not know
TENSORS = ("codes", "scales", "zeros", "sums", "second_scales", "input_permutation")
PLAIN = ("shape", "element", "group_size", "activations", "order")


@dataclass(frozen=True, eq=False, repr=False)
class PackedTensors:
    """What `PackedWeights` describes."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    input_permutation: torch.Tensor | None
    shape: tuple[int, ...]
    element: str
    group_size: int | None
    activations: str
    order: str
    sums: torch.Tensor | None = None
    second_scales: torch.Tensor | None = None
    gate_up: str | None = None
    near_scales: bool = False
    # What operators of torch are told beside the tensors that are multiplied: made here, where Dynamo traces nothing.
    _form: str = field(init=False)

    def __post_init__(self) -> None:
        if self.order not in self.packing.every_order:
            raise ValueError(f"order must be one of {self.packing.every_order}, got {self.order!r}")
        if len(self.shape) not in (2, 3):
            raise ValueError(f"shape must be (N, K) or (G, N, K), got {self.shape}")
        checked_rows(self.gate_up, self.shape[-2])
        if (self.zeros is not None) != self.needs_zeros:
            wanted = "there" if self.needs_zeros else "None"
            raise ValueError(f"zeros must be {wanted} where the order is {self.order!r}")
        for name, (dtype, shape) in self.forms().items():
            if (tensor := getattr(self, name)) is not None:
                _require_tensor(name, tensor, dtype, shape)
        multiplied = [name for name in TENSORS[:-1] if getattr(self, name) is not None]
        object.__setattr__(self, "_form", json.dumps(self._metadata(multiplied)))

    def forms(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Dtype and shape of each tensor, where there is one: by `PLAIN`, and whether there are second scales."""
        n, k = code.padded_shape(*self.shape[-2:])
        experts, block_bytes = self.experts, self.packing.block_bytes
        rows = (experts, self.shape[-2], row_bytes(self.shape[-1]))
        blocks = (experts, n // code.BLOCK_ROWS, k // K_BLOCK, block_bytes)
        scales, zeros = ((experts, 1 if group is None else k // group, n) for group in (self.entry_k, self.zero_group))
        words = self.second_scales is not None or self.in_rows
        return {
            "codes": (torch.uint8, rows if self.in_rows else blocks),
            "scales": (torch.int32 if words else torch.float32, scales),
            "second_scales": (torch.float32, (experts, n)),
            "zeros": (torch.int32, zeros),
            "input_permutation": (torch.int64, (*self.shape[:-2], self.shape[-1])),
            "sums": (torch.int32 if self.scale_group is None else torch.float32, (experts, n)),
        }

    @property
    def experts(self) -> int:
        """How many matrices there are: G, or 1."""
        return self.shape[0] if self.is_stack else 1

    @property
    def is_stack(self) -> bool:
        return len(self.shape) == 3

    @property
    def packing(self) -> Packing:
        return packing_of(self.element, self.activations)

    @property
    def needs_zeros(self) -> bool:
        """Whether some weight has a zero point, which products subtract, or an integer scale."""
        return self.order in (self.packing.zeros_order, TWO_LEVELS)

    @property
    def holds_minus_eight(self) -> bool:
        """For 'fp8' without zero points, that a code is -8: all lie in two's complement, which takes longer to convert
        than sign and magnitude."""
        return self.order in self.packing.orders[1:]

    @property
    def two_levels(self) -> bool:
        """Whether scales of groups are integers, within one of all of K."""
        return self.order == TWO_LEVELS

    @property
    def folds_exponents(self) -> bool:
        """For 'e2m1', that the scales of each 128 of K are powers of two near enough to each other to be multiplied in
        when codes are converted: `scales` then have a row for 128 of K, with their exponents in it."""
        return self.order == FOLDED

    @property
    def in_rows(self) -> bool:
        """For 'e2m1', that codes lie in rows, as Blackwell (SM100) multiplies them, and scales are exponents."""
        return self.order == ROWS

    @property
    def converted_from(self) -> str:
        """The element that kernels convert, as the runtime's element table names it."""
        return self.order.partition(",")[0]

    @property
    def scale_group(self) -> int | None:
        """The K that one stored scale is for. None: one row of `scales` is for all of it."""
        if self.folds_exponents:
            return K_BLOCK
        if self.in_rows:
            return SMALLEST_GROUP
        return None if self.two_levels else self.zero_group

    @property
    def zero_group(self) -> int | None:
        """The K that one row of `zeros` is for, or would be. None: one row is for all of it."""
        return self.packing.scale_group(self.group_size)

    @property
    def entry_k(self) -> int | None:
        """The K that one row of `scales` is for, where it holds words: those of four groups."""
        words = SCALES_A_WORD if self.second_scales is not None or self.in_rows else 1
        return None if self.scale_group is None else words * self.scale_group

    @property
    def scale_factor(self) -> float:
        """What `scales` are, divided by the scales of the weights: a power of two."""
        return self.packing.factor(self.order)

    @functools.cached_property
    def record_numbers(self) -> dict[str, int]:
        """What products say of the weights beside their tensors, as fields of a call's record."""
        n, k = self.shape[-2:]
        return {
            "b_element": ELEMENT_NUMBERS[self.converted_from],
            "b_rows": n,
            "b_k": k,
            "b_group_k": self.scale_group or 0,
            "b_zeros_k": self.zero_group or 0,
            "b_near_scales": int(self.near_scales),
        }

    def require_near_scales(self) -> None:
        """Raises where metadata that were read from somewhere say `near_scales` of scales that are not."""
        if self.near_scales and not self.scales.is_meta and not self.scales_are_near():
            raise ValueError(
                f"the scales of each row must be {self.near_means} where metadata say near_scales: the tensors "
                "are of other weights than the metadata"
            )

    def scales_are_near(self) -> bool:
        """Whether they are what `near_scales` says, by those that are stored."""
        if self.activations not in ("bf16", "fp8") or self.in_rows or self.second_scales is not None:
            return False
        groups = 0 if self.scale_group is None else ceil_div(self.shape[-1], self.scale_group)  # behind them is no K
        if self.activations == "fp8":
            return groups > 0 and are_even(self.scales[:, :groups], self.folds_exponents)
        return groups > 0 and all(are_near(of_one[:groups].T / self.scale_factor) for of_one in self.scales)

    @property
    def near_means(self) -> str:
        return "one for all of K" if self.activations == "fp8" else "within 2^24 of each other"

    @property
    def device(self) -> torch.device:
        return self.codes.device

    def _metadata(self, tensors: list[str]) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in PLAIN}
        if self.near_scales:
            plain[NEAR_SCALES] = True  # older releases do without
        if self.gate_up is not None:
            return {
                "version": VERSION_OF_GATES,
                "tensors": tensors,
                **plain,
                "shape": [*self.shape],
                GATES: self.gate_up,
            }
        return {"version": VERSION, "tensors": tensors, **plain, "shape": [*self.shape]}


def _require_tensor(name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if tensor.dtype != dtype or tuple(tensor.shape) != shape or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be a contiguous {dtype} tensor of shape {[*shape]}, got {tensor.dtype} of "
            f"{[*tensor.shape]} with strides {[*tensor.stride()]}"
        )
