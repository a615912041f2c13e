"""`PackedWeights`: one matrix of weights, or a stack of them, in the order in which kernels read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._numbers import integer
from ..utils.math import align, ceil_div
from . import codes as code
from . import conversion_scales
from .conversion_scales import SCALES_A_WORD
from .formats import K_BLOCK, Packing, packing_of
from .words import from_words

VERSION = 1
_TENSORS = ("codes", "scales", "zeros", "input_permutation", "second_scales")
_PLAIN = ("shape", "element", "group_size", "activations", "holds_minus_eight")


@dataclass(frozen=True, eq=False, repr=False)
class PackedWeights:
    """Weights `[N, K]` or `[G, N, K]`, packed by `pack_weights` for one kind of activations.

    A weight is `scale * (q - zero)`. Products take the object as it is. Its tensors may be written (`write`), its
    other attributes never change.

    Attributes:
        codes: uint8 `[G, N / 64, K / 128, bytes of a block]`, contiguous (G is 1 for one matrix; N and K rounded up to
            multiples of 128, with zeros; docs/low_precision.md draws the order).
        scales: float32 `[G, K / scale_group, N]`, N contiguous and rounded up to a multiple of 128: the scales times
            `scale_factor`; 0 where there is no row or no K. With `second_scales` int32, words of four scales along K,
            which kernels multiply into weights when they convert them (deep_gemm/weights/conversion_scales.py).
        zeros: int32, shaped as `scales`, or None where no weight has a zero point. For 'uint4' 8 less than were given,
            as are the codes.
        input_permutation: int64 `[K]` (`[G, K]` of a stack) or None. If there is one, the weights multiply
            `x[..., input_permutation]` instead of x.
        shape: `(N, K)` or `(G, N, K)`.
        element: of the values as they were given: 'int4', 'uint4', 'e2m1' or 'e4m3'.
        group_size: the K that shares a scale; None where all of it does.
        activations: what kind of activations the weights are packed for: 'int8', 'fp8' or 'bf16' (BF16 and FP16).
        second_scales: float32 `[G, N]`, rounded up likewise, or None: what sums are multiplied by where `scales` are
            words.
        holds_minus_eight: for 'fp8', that a code is -8, so that all lie in two's complement and not as sign and
            magnitude, which is converted faster.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    input_permutation: torch.Tensor | None
    shape: tuple[int, ...]
    element: str
    group_size: int | None
    activations: str
    holds_minus_eight: bool
    second_scales: torch.Tensor | None = None

    def __post_init__(self) -> None:
        packing_of(self.element, self.activations)
        if len(self.shape) not in (2, 3):
            raise ValueError(f"shape must be (N, K) or (G, N, K), but is {self.shape}")
        n, k = code.padded_shape(*self.shape[-2:])
        groups = 1 if self._entry_k is None else k // self._entry_k
        scales = (self.experts, groups, n)
        blocks = (self.experts, n // code.BLOCK_ROWS, k // K_BLOCK, self._packing.block_bytes)
        _require_tensor("codes", self.codes, torch.uint8, blocks)
        words = self.second_scales is not None
        _require_tensor("scales", self.scales, torch.int32 if words else torch.float32, scales)
        if self.second_scales is not None:
            _require_tensor("second_scales", self.second_scales, torch.float32, (self.experts, n))
        if self.zeros is not None:
            _require_tensor("zeros", self.zeros, torch.int32, scales)
        if self.input_permutation is not None:
            _require_tensor(
                "input_permutation", self.input_permutation, torch.int64, (*self.shape[:-2], self.shape[-1])
            )

    @property
    def experts(self) -> int:
        """How many matrices there are: G, or 1."""
        return self.shape[0] if self.is_stack else 1

    @property
    def is_stack(self) -> bool:
        return len(self.shape) == 3

    @property
    def needs_zeros(self) -> bool:
        """Whether some weight has a zero point, which the product must subtract."""
        return self.zeros is not None

    @property
    def scale_group(self) -> int | None:
        """The K that one stored scale is for. None: one row of `scales` is for all of it."""
        return self._packing.scale_group(self.group_size)

    @property
    def _entry_k(self) -> int | None:
        """The K that one row of `scales` is for, where it holds words: those of four groups."""
        words = SCALES_A_WORD if self.second_scales is not None else 1
        return None if self.scale_group is None else words * self.scale_group

    @property
    def scale_factor(self) -> float:
        """What `scales` are, divided by the scales of the weights: a power of two."""
        factor = self._packing.sign_magnitude_factor
        return self._packing.scale_factor if factor is None or self.holds_minus_eight else factor

    @property
    def device(self) -> torch.device:
        return self.codes.device

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
            second_scales=None if self.second_scales is None else self.second_scales.to(device),
        )

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights, `[N, K]` or `[G, N, K]`: `scale * (q - zero)` in FP32, rounded once more to another `dtype`.

        K is in the order that the product takes, which is that of `input_permutation`, if there is one.
        """
        n, k = self.shape[-2:]
        weights = torch.empty((self.experts, n, k), dtype=dtype, device=self.device)
        for expert in range(self.experts):
            for first, last in code.row_chunks(n, k):
                weights[expert, first:last] = self._rows(expert, first, last)
        return weights if self.is_stack else weights[0]

    def tensors(self) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        """All tensors, and the rest as plain data (which JSON can hold): what `from_tensors` takes."""
        names = [name for name in _TENSORS if getattr(self, name) is not None]
        plain = {name: getattr(self, name) for name in _PLAIN}
        metadata = {"version": VERSION, "tensors": names, **plain, "shape": [*self.shape]}
        return tuple(getattr(self, name) for name in names), metadata

    @staticmethod
    def from_tensors(tensors: Sequence[torch.Tensor], metadata: Mapping[str, Any]) -> PackedWeights:
        """The weights whose `tensors()` these are. The tensors are not copied."""
        version = metadata["version"]
        if version != VERSION:
            raise ValueError(
                f"these weights are packed in version {version} of the layout, but this release reads {VERSION}: "
                "pack them again"
            )
        names = metadata["tensors"]
        if len(names) != len(tensors):
            raise ValueError(f"metadata names {len(names)} tensors ({', '.join(names)}), but {len(tensors)} came")
        fields = {**dict.fromkeys(_TENSORS), **dict(zip(names, tensors, strict=True))}
        fields.update({name: metadata[name] for name in _PLAIN})
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
        return PackedWeights.from_tensors([state[f"{prefix}{name}"] for name in metadata["tensors"]], metadata)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedWeights.from_tensors, self.tensors()

    def __repr__(self) -> str:
        matrices = f"{self.experts} x " if self.is_stack else ""
        group = "all of K" if self.group_size is None else f"{self.group_size} of K"
        zeros = ", zero points" if self.needs_zeros else ""
        permuted = ", permuted inputs" if self.input_permutation is not None else ""
        minus_eight = ", holds -8" if self.holds_minus_eight else ""
        return (
            f"PackedWeights({matrices}{[*self.shape[-2:]]} of {self.element} for {self.activations} activations, "
            f"a scale for {group}{zeros}{permuted}{minus_eight}, {self.nbytes / 1e6:.1f} MB, {self.device})"
        )

    def slice_n(self, start: int, stop: int) -> PackedWeights:
        """Output channels `start` to `stop` (exclusive), which are multiples of 64, or N: for tensor parallelism.

        A copy, packed as these rows by themselves would be (but for `holds_minus_eight`, which stays).
        """
        n = self.shape[-2]
        _require_range("N", start, stop, n, code.BLOCK_ROWS, "blocks of rows are packed together")
        rows = align(stop - start, code.PADDED_ROWS)
        blocks = slice(start // code.BLOCK_ROWS, ceil_div(stop, code.BLOCK_ROWS))
        codes = self.codes[:, blocks]
        padding = rows // code.BLOCK_ROWS - codes.shape[1]

        def columns(tensor: torch.Tensor) -> torch.Tensor:
            part = tensor[:, :, start:stop]
            return torch.nn.functional.pad(part, (0, rows - part.shape[2])).contiguous()

        return replace(
            self,
            codes=torch.nn.functional.pad(codes, (0, 0, 0, 0, 0, padding), value=self._packing.added * 17).contiguous(),
            scales=columns(self.scales),
            zeros=None if self.zeros is None else columns(self.zeros),
            second_scales=None if self.second_scales is None else columns(self.second_scales.unsqueeze(1)).squeeze(1),
            shape=(*self.shape[:-2], stop - start, self.shape[-1]),
        )

    def slice_k(self, start: int, stop: int) -> PackedWeights:
        """Input channels `start` to `stop` (exclusive), which are multiples of 128 and of the group, or K.

        A copy, packed as this part of K by itself would be (but for `holds_minus_eight`, which stays).
        """
        if self.input_permutation is not None:
            raise ValueError("weights with an input_permutation cannot be cut along K: their K is in another order")
        step = K_BLOCK if self.group_size is None else math.lcm(K_BLOCK, self.group_size)
        _require_range("K", start, stop, self.shape[-1], step, "groups and blocks of 128 stay whole")
        blocks = slice(start // K_BLOCK, ceil_div(stop, K_BLOCK))
        group = self._entry_k

        def rows(tensor: torch.Tensor) -> torch.Tensor:
            kept = tensor if group is None else tensor[:, start // group : align(stop, K_BLOCK) // group]
            return kept.clone(memory_format=torch.contiguous_format)

        return replace(
            self,
            codes=self.codes[:, :, blocks].clone(memory_format=torch.contiguous_format),
            scales=rows(self.scales),
            zeros=None if self.zeros is None else rows(self.zeros),
            shape=(*self.shape[:-1], stop - start),
        )

    def __getitem__(self, index: int | slice) -> PackedWeights:
        """One expert of a stack, or a stack of neighbours. It shares its memory with `self`."""
        if not self.is_stack:
            raise TypeError(f"only stacks of weights have experts to pick, but the shape is {[*self.shape]}")
        if isinstance(index, slice):
            first, last, step = index.indices(self.experts)
            if step != 1 or last <= first:
                raise ValueError(f"a slice of experts must take neighbours, at least one, but is {index}")
        else:
            first = self._expert(index)
            last = first + 1
        permutation = None if self.input_permutation is None else self.input_permutation[first:last]
        if not isinstance(index, slice) and permutation is not None:
            permutation = permutation[0]
        return replace(
            self,
            codes=self.codes[first:last],
            scales=self.scales[first:last],
            zeros=None if self.zeros is None else self.zeros[first:last],
            second_scales=None if self.second_scales is None else self.second_scales[first:last],
            input_permutation=permutation,
            shape=(last - first, *self.shape[1:]) if isinstance(index, slice) else self.shape[1:],
        )

    def __setitem__(self, index: int, one: PackedWeights) -> None:
        self.write(index, one)

    def write(self, index: int, one: PackedWeights) -> None:
        """Replace the weights of expert `index` where they lie, so that captured graphs find them.

        `one` is a matrix of the same size, packed in the same way; it may lie on another device. (One matrix that is no
        stack is its own expert 0.)
        """
        index = self._expert(index)
        self._require_same_kind(one)
        codes, scales = one.codes, one.scales
        if self.holds_minus_eight and not one.holds_minus_eight:
            codes, scales = code.from_sign_magnitude(codes), scales * (self.scale_factor / one.scale_factor)
        self.codes[index].copy_(codes[0])
        self.scales[index].copy_(scales[0])
        if self.second_scales is not None and one.second_scales is not None:
            self.second_scales[index].copy_(one.second_scales[0])
        if self.zeros is not None:
            self.zeros[index].copy_(torch.zeros_like(scales[0]) if one.zeros is None else one.zeros[0])
        if self.input_permutation is not None:
            order = one.input_permutation
            self.input_permutation.view(self.experts, -1)[index].copy_(
                torch.arange(self.shape[-1]) if order is None else order
            )

    @property
    def _packing(self) -> Packing:
        return packing_of(self.element, self.activations)

    def _rows(self, expert: int, first: int, last: int) -> torch.Tensor:
        """Rows `first` (a multiple of 64) to `last` of one matrix, dequantised to FP32."""
        codes = self.codes[expert, first // code.BLOCK_ROWS : ceil_div(last, code.BLOCK_ROWS)]
        values = self._values(codes)[: last - first, : self.shape[-1]]
        if self.second_scales is not None:
            fields = conversion_scales.from_words(self.scales[expert, :, first:last])
            products = self._decoded(values) * self._spread(conversion_scales.from_bytes(fields))
            second = self.second_scales[expert, first:last] / conversion_scales.FACTOR
            return products * second.unsqueeze(1)
        if self.element in ("e2m1", "e4m3"):
            return self._decoded(values) * self._spread(self.scales[expert, :, first:last] / self.scale_factor)
        values = values.to(torch.int32)
        if self.zeros is not None:
            values -= self._spread(self.zeros[expert, :, first:last])
        return values * self._spread(self.scales[expert, :, first:last] / self.scale_factor)

    def _decoded(self, values: torch.Tensor) -> torch.Tensor:
        """What codes stand for, in FP32."""
        if self.element == "e4m3":
            return values.contiguous().view(torch.float8_e4m3fn).float()
        return code.E2M1.to(values.device)[(values & 15).long()]

    def _values(self, codes: torch.Tensor) -> torch.Tensor:
        """The values, less the packing's offset, of blocks of some rows."""
        packing = self._packing
        if packing.places is not None:
            return from_words(codes, packing.places).view(torch.int8) - packing.added
        if packing.sign_magnitude_factor is not None and not self.holds_minus_eight:
            codes = code.from_sign_magnitude(codes)
        return code.from_blocks(codes)

    def _spread(self, groups: torch.Tensor) -> torch.Tensor:
        """What is stored for groups of K, `[K groups, rows]`, for each row and K."""
        rows = groups.T
        return rows if self.scale_group is None else rows.repeat_interleave(self.scale_group, 1)[:, : self.shape[-1]]

    def _expert(self, index: int) -> int:
        index = integer("index", index)
        if not -self.experts <= index < self.experts:
            raise IndexError(f"index must be that of one of {self.experts} experts, but is {index}")
        return index % self.experts

    def _require_same_kind(self, one: PackedWeights) -> None:
        if one.is_stack or one.shape != self.shape[-2:]:
            raise ValueError(f"one matrix of {[*self.shape[-2:]]} is wanted, but the shape is {[*one.shape]}")
        for name in ("element", "activations", "group_size"):
            if getattr(one, name) != getattr(self, name):
                raise ValueError(f"{name} must be {getattr(self, name)!r}, but is {getattr(one, name)!r}")
        if (one.second_scales is None) != (self.second_scales is None):
            raise ValueError("the new weights' scales are not multiplied as those of the weights that they replace are")
        if one.holds_minus_eight and not self.holds_minus_eight:
            raise ValueError("the new weights hold -8, which those they replace do not: kernels convert them otherwise")
        for name, words in (("zeros", "zero points"), ("input_permutation", "an input_permutation")):
            if getattr(one, name) is not None and getattr(self, name) is None:
                raise ValueError(f"the new weights have {words}, which those they replace do not")


def _require_tensor(name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if tensor.dtype != dtype or tuple(tensor.shape) != shape or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be a contiguous {dtype} tensor of shape {[*shape]}, but is {tensor.dtype} of "
            f"{[*tensor.shape]} with strides {[*tensor.stride()]}"
        )


def _require_range(name: str, start: int, stop: int, size: int, step: int, reason: str) -> None:
    start, stop = integer("start", start), integer("stop", stop)
    if not 0 <= start < stop <= size:
        raise ValueError(f"start and stop must lie within {name}={size}, start first, but are {start} and {stop}")
    if start % step != 0 or (stop % step != 0 and stop != size):
        raise ValueError(
            f"start and stop must be multiples of {step} (stop may be {name}={size}), because {reason}, "
            f"but are {start} and {stop}"
        )
