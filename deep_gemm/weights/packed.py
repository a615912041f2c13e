"""`PackedWeights`: one matrix of weights, or a stack of them, in the order in which kernels read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import codes as code
from . import parts
from .blank_fields import blank_fields
from .gate_rows import rows_in_order
from .packed_tensors import GATES, NEAR_SCALES, PLAIN, TENSORS, VERSION, VERSION_OF_GATES, PackedTensors
from .packings import FOLDED, TWO_LEVELS, packing_of
from .unpack import sums_of, weights_of

_VERSION_OF_FLAGS = 2


@dataclass(frozen=True, eq=False, repr=False)
class PackedWeights(PackedTensors):
    """Weights `[N, K]` or `[G, N, K]`, packed by `pack_weights` for one kind of activations.

    A weight is `scale * (q - zero)`, or with two levels of scales `second_scale * (scale * (q - zero))`. Products take
    the object as it is. Its tensors may be written (`write`), its other attributes never change.

    Attributes:
        codes: uint8 `[G, N / 64, K / 128, bytes of a block]`, contiguous (G is 1 for one matrix; N and K rounded up to
            multiples of 128, with zeros; docs/packed-layout.md draws the order). In rows `[G, N, K / 2]`, K likewise.
        scales: float32 `[G, K / scale_group, N]`, N contiguous and rounded up to a multiple of 128: the scales times
            `scale_factor`, or the second ones; 0 where there is no row or no K. With `second_scales` int32, words of
            four scales along K, which kernels multiply into weights when they convert them
            (deep_gemm/weights/conversion_scales.py); in rows words of four exponents (deep_gemm/weights/rows.py).
        zeros: int32 `[G, K / zero_group, N]`, N likewise, or None where no weight has a zero point: words that tell
            kernels what to do to a code (weights/zeros.py), integer scales included.
        input_permutation: int64 `[K]` (`[G, K]` of a stack) or None. If there is one, products refuse the weights:
            `for_permuted_inputs()` of them multiplies `permute_inputs(x)`, which is `x[..., input_permutation]`.
        sums: for integer activations, what their zero points are multiplied by: int32 `[G, N]` (N rounded up), the sum
            of each row as kernels multiply it (`1 / scale_factor` times the integers); or float32, the sum of its
            weights, where groups of K have FP32 scales. None for others.
        second_scales: float32 `[G, N]`, rounded up likewise, or None: what sums are multiplied by where `scales` are
            words.
        shape: `(N, K)` or `(G, N, K)`.
        element: of the values as they were given: 'int4', 'uint4', 'int8', 'uint8', 'e2m1' or 'e4m3'.
        group_size: the K that shares a scale, and a zero point; None where all of it does.
        activations: what kind of activations the weights are packed for: 'int8', 'int4', 'fp8' or 'bf16' (BF16
            and FP16).
        gate_up: None; or 'halves' or 'interleaved', how gates and ups lay among the rows: they are packed 8 by 8 then
            (weights/gate_rows.py), and products want a gated activation with this layout.
        near_scales: beside 'bf16' activations, whether the scales of each row are within 2^24 of each other, or all 0:
            some kernels then add up all of K in one set of sums. Beside 'fp8', whether they are one for all of a row,
            but for exponents that are multiplied into weights: `set_fast_accumulation`. Weights packed by older
            releases say no.
        order: how codes lie, and so what kernels do to them: one of those of `packings.Packing.every_order`.
    """

    @property
    def nbytes(self) -> int:
        """The memory of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors()[0])

    def to(self, device: torch.device | str | int) -> PackedWeights:
        """The same weights on another device. Tensors that lie there already are not copied."""
        permutation, zeros = self.input_permutation, self.zeros
        return replace(
            self,
            codes=self.codes.to(device),
            scales=self.scales.to(device),
            zeros=None if zeros is None else zeros.to(device),
            input_permutation=None if permutation is None else permutation.to(device),
            sums=None if self.sums is None else self.sums.to(device),
            second_scales=None if self.second_scales is None else self.second_scales.to(device),
        )

    def permute_inputs(self, x: torch.Tensor, grouped_layout: torch.Tensor | None = None) -> torch.Tensor:
        """`x[..., input_permutation]`, which `for_permuted_inputs()` multiplies. Without a permutation, x itself.

        Permute before activations get scales for groups of K. Other quantised activations may be permuted as well.

        Args:
            x: `[..., K]` of any dtype; for a stack `[G, ..., K]`, or `[M, K]` with a `grouped_layout`.
            grouped_layout: of a stack's rows that follow each other: int32 `[M]`, the expert of each row, -1 for none.
        """
        k = self.shape[-1]
        if x.dim() == 0 or x.shape[-1] != k:
            raise ValueError(f"x must be [..., K={k}], got shape {[*x.shape]}")
        if grouped_layout is not None and not (self.is_stack and x.dim() == 2 and grouped_layout.shape == x.shape[:1]):
            raise ValueError(
                f"grouped_layout must be [M], for x of [M, K] and a stack of weights, got {[*grouped_layout.shape]} "
                f"for x of {[*x.shape]} and weights of {[*self.shape]}"
            )
        if self.is_stack and grouped_layout is None and (x.dim() < 2 or x.shape[0] != self.experts):
            raise ValueError(
                f"x must be [{self.experts}, ..., K={k}], a part for each expert, got shape {[*x.shape]}; "
                "rows that follow each other want their grouped_layout"
            )
        order = self.input_permutation
        if order is None:
            return x
        if grouped_layout is not None:
            order = order[grouped_layout.clamp(min=0).long()]
        elif self.is_stack:
            order = order.view(self.experts, *[1] * (x.dim() - 2), k)
        # As bytes: torch gathers no elements of 8-bit floating types on every device.
        data = x.view(torch.uint8) if x.element_size() == 1 else x
        return data.gather(-1, order.expand(x.shape)).view(x.dtype)

    def for_permuted_inputs(self) -> PackedWeights:
        """The same weights, in the same memory, without `input_permutation`: they multiply `permute_inputs(x)`."""
        return replace(self, input_permutation=None)

    def require_inputs_in_order(self) -> None:
        """Products call it: raises where the activations would have to be permuted."""
        if self.input_permutation is not None:
            raise ValueError(
                "w has an input_permutation: its K is in another order than that of the activations. Multiply "
                "w.permute_inputs(x) instead of x, and pass w.for_permuted_inputs() instead of w"
            )

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights, `[N, K]` or `[G, N, K]`: `scale * (q - zero)` in FP32, rounded once more to another `dtype`.

        K is in the order that the product takes, which is that of `input_permutation`, if there is one; rows are in
        the order in which they were given.
        """
        n, k = self.shape[-2:]
        weights = torch.empty((self.experts, n, k), dtype=dtype, device=self.device)
        for expert in range(self.experts):
            for first, last in code.row_chunks(n, k):
                weights[expert, first:last] = weights_of(self, expert, first, last)
        if self.gate_up is not None:
            rows = rows_in_order(n, self.gate_up).to(self.device)
            weights = torch.empty_like(weights).index_copy_(1, rows, weights)
        return weights if self.is_stack else weights[0]

    def tensors(self) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        """All tensors, and the rest as plain data (which JSON can hold): what `from_tensors` takes."""
        names = [name for name in TENSORS if getattr(self, name) is not None]
        return tuple(getattr(self, name) for name in names), self._metadata(names)

    @staticmethod
    def from_tensors(tensors: Sequence[torch.Tensor], metadata: Mapping[str, Any]) -> PackedWeights:
        """The weights whose `tensors()` these are. The tensors are not copied."""
        version = metadata["version"]
        if version == _VERSION_OF_FLAGS:
            metadata = {**metadata, "order": _order_of_flags(metadata)}
        elif version not in (VERSION, VERSION_OF_GATES):
            raise ValueError(
                f"these weights are packed in version {version} of the layout, but this release reads "
                f"{_VERSION_OF_FLAGS} to {VERSION_OF_GATES}: pack them again"
            )
        names = metadata["tensors"]
        if len(names) != len(tensors):
            raise ValueError(f"metadata names {len(names)} tensors ({', '.join(names)}), but {len(tensors)} came")
        fields = {**dict.fromkeys(TENSORS), **dict(zip(names, tensors, strict=True))}
        fields.update(
            {name: metadata[name] for name in PLAIN},
            gate_up=metadata[GATES] if version == VERSION_OF_GATES else None,
            near_scales=metadata.get(NEAR_SCALES, False),
        )
        return PackedWeights(**{**fields, "shape": tuple(metadata["shape"])})

    def state_dict(self, prefix: str = "") -> dict[str, torch.Tensor]:
        """Tensors only, by name: so `torch.save` and safetensors can store them. The metadata are JSON in uint8."""
        tensors, metadata = self.tensors()
        text = torch.tensor([*json.dumps(metadata).encode()], dtype=torch.uint8)
        named = dict(zip(metadata["tensors"], tensors, strict=True))
        return {f"{prefix}{name}": tensor for name, tensor in {**named, "metadata": text}.items()}

    @staticmethod
    def from_state_dict(state: Mapping[str, torch.Tensor], prefix: str = "") -> PackedWeights:
        """The weights whose `state_dict(prefix)` is in `state`, on the device where its tensors lie."""
        if f"{prefix}metadata" not in state:
            raise ValueError(f"state has no {prefix}metadata: it is none of PackedWeights.state_dict({prefix!r})")
        metadata = json.loads(bytes(state[f"{prefix}metadata"].tolist()))
        found = PackedWeights.from_tensors([state[f"{prefix}{name}"] for name in metadata["tensors"]], metadata)
        found.require_near_scales()
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedWeights.from_tensors, self.tensors()

    def __repr__(self) -> str:
        matrices = f"{self.experts} x " if self.is_stack else ""
        group = "all of K" if self.group_size is None else f"{self.group_size} of K"
        if self.two_levels:
            group += " within one for all of it"
        zeros = ", zero points" if self.needs_zeros else ""
        permuted = ", permuted inputs" if self.input_permutation is not None else ""
        minus_eight = ", holds -8" if self.holds_minus_eight else ""
        rows = ", in rows" if self.in_rows else ""
        rows += f", gates and ups from {self.gate_up}" if self.gate_up == "halves" else ""
        rows += ", gates and ups from pairs" if self.gate_up == "interleaved" else ""
        return (
            f"PackedWeights({matrices}{[*self.shape[-2:]]} of {self.element} for {self.activations} activations, "
            f"a scale for {group}{zeros}{permuted}{minus_eight}{rows}, {self.nbytes / 1e6:.1f} MB, {self.device})"
        )

    def slice_n(self, start: int, stop: int) -> PackedWeights:
        """Output channels `start` to `stop` (exclusive), which are multiples of 64, or N: for tensor parallelism.

        A copy, packed as these rows by themselves would be (but for `order`, which stays). Refused where gates and ups
        are packed side by side (`gate_up`): cut each of them before packing.
        """
        return parts.rows_of(self, start, stop)

    def slice_k(self, start: int, stop: int) -> PackedWeights:
        """Input channels `start` to `stop` (exclusive), which are multiples of 128 and of the group, or K.

        A copy, packed as this part of K by itself would be (but for `order`, which stays).
        """
        return parts.columns_of(self, start, stop)

    def placeholder(self, *shape: int) -> PackedWeights:
        """Weights of another shape, packed as these are, in memory that nobody has written: for `precompile` and
        `jit.record`, which read no values."""
        second, plain = self.second_scales is not None, (self.element, self.activations, self.group_size, self.order)
        flags: dict[str, Any] = {"gate_up": self.gate_up, "near_scales": self.near_scales}
        return PackedWeights(**blank_fields(shape, *plain, second_scales=second, **flags))

    def __getitem__(self, index: int | slice) -> PackedWeights:
        """One expert of a stack, or a stack of neighbours. It shares its memory with `self`."""
        return parts.experts_of(self, index)

    def __setitem__(self, index: int, one: PackedWeights) -> None:
        self.write(index, one)

    def write(self, index: int, one: PackedWeights) -> None:
        """Replace the weights of expert `index` where they lie, so that captured graphs find them.

        `one` is a matrix of the same size, packed in the same way; it may lie on another device. (One matrix that is no
        stack is its own expert 0.)
        """
        parts.write_expert(self, index, one)

    def with_sums(self) -> PackedWeights:
        """The same weights with `sums`, computed from what is packed."""
        return replace(self, sums=sums_of(self))


def _order_of_flags(metadata: Mapping[str, Any]) -> str:
    """Of metadata that have three flags instead."""
    if metadata["folds_exponents"]:
        return FOLDED
    packing = packing_of(metadata["element"], metadata["activations"])
    if "zeros" in metadata["tensors"]:
        return TWO_LEVELS if metadata["two_levels"] else packing.zeros_order
    return packing.orders[-1 if metadata["holds_minus_eight"] else 0]
