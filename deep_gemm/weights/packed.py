"""`PackedWeights`: one matrix of weights, or a stack of them, in the order in which kernels read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._numbers import integer
from ..utils.math import align, ceil_div
from . import codes as code
from . import conversion_scales
from .conversion_scales import SCALES_A_WORD
from .exponents import unfold
from .formats import K_BLOCK, SMALLEST_GROUP, Packing, packing_of
from .words import from_words
from .zeros import Steps, steps_of

VERSION = 2
_TENSORS = ("codes", "scales", "zeros", "sums", "second_scales", "input_permutation")
_PLAIN = ("shape", "element", "group_size", "activations", "holds_minus_eight", "two_levels", "folds_exponents")


@dataclass(frozen=True, eq=False, repr=False)
class PackedWeights:
    """Weights `[N, K]` or `[G, N, K]`, packed by `pack_weights` for one kind of activations.

    A weight is `scale * (q - zero)`, or with two levels of scales `second_scale * (scale * (q - zero))`. Products take
    the object as it is. Its tensors may be written (`write`), its other attributes never change.

    Attributes:
        codes: uint8 `[G, N / 64, K / 128, bytes of a block]`, contiguous (G is 1 for one matrix; N and K rounded up to
            multiples of 128, with zeros; docs/low_precision.md draws the order).
        scales: float32 `[G, K / scale_group, N]`, N contiguous and rounded up to a multiple of 128: the scales times
            `scale_factor`, or the second ones; 0 where there is no row or no K. With `second_scales` int32, words of
            four scales along K, which kernels multiply into weights when they convert them
            (deep_gemm/weights/conversion_scales.py).
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
        element: of the values as they were given: 'int4', 'uint4', 'e2m1' or 'e4m3'.
        group_size: the K that shares a scale, and a zero point; None where all of it does.
        activations: what kind of activations the weights are packed for: 'int8', 'int4', 'fp8' or 'bf16' (BF16
            and FP16).
        holds_minus_eight: for 'fp8' without zero points, that a code is -8, so that all lie in two's complement and not
            as sign and magnitude, which is converted faster.
        two_levels: that scales of groups are integers, within one of all of K.
        folds_exponents: for 'e2m1', that the scales of each 128 of K are powers of two near enough to each other to be
            multiplied in when codes are converted: `scales` then have a row for 128 of K, with their exponents in it.
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
    two_levels: bool
    folds_exponents: bool
    sums: torch.Tensor | None = None
    second_scales: torch.Tensor | None = None
    # What operators of torch are told beside the tensors that are multiplied: made here, where Dynamo traces nothing.
    _form: str = field(init=False)

    def __post_init__(self) -> None:
        packing_of(self.element, self.activations)
        if len(self.shape) not in (2, 3):
            raise ValueError(f"shape must be (N, K) or (G, N, K), but is {self.shape}")
        n, k = code.padded_shape(*self.shape[-2:])
        scales, zeros = (
            (self.experts, 1 if group is None else k // group, n) for group in (self._entry_k, self.zero_group)
        )
        blocks = (self.experts, n // code.BLOCK_ROWS, k // K_BLOCK, self._packing.block_bytes)
        _require_tensor("codes", self.codes, torch.uint8, blocks)
        words = self.second_scales is not None
        _require_tensor("scales", self.scales, torch.int32 if words else torch.float32, scales)
        if self.second_scales is not None:
            _require_tensor("second_scales", self.second_scales, torch.float32, (self.experts, n))
        if self.zeros is not None:
            _require_tensor("zeros", self.zeros, torch.int32, zeros)
        elif self.two_levels:
            raise ValueError("two levels of scales want zeros, where the integer ones are, but there are none")
        if self.input_permutation is not None:
            _require_tensor(
                "input_permutation", self.input_permutation, torch.int64, (*self.shape[:-2], self.shape[-1])
            )
        multiplied = [name for name in _TENSORS[:-1] if getattr(self, name) is not None]
        object.__setattr__(self, "_form", json.dumps(self._metadata(multiplied)))

        if self.sums is not None:
            dtype = torch.int32 if self.scale_group is None else torch.float32
            _require_tensor("sums", self.sums, dtype, (self.experts, n))

    @property
    def experts(self) -> int:
        """How many matrices there are: G, or 1."""
        return self.shape[0] if self.is_stack else 1

    @property
    def is_stack(self) -> bool:
        return len(self.shape) == 3

    @property
    def needs_zeros(self) -> bool:
        """Whether some weight has a zero point, which products subtract, or an integer scale."""
        return self.zeros is not None

    @property
    def scale_group(self) -> int | None:
        """The K that one stored scale is for. None: one row of `scales` is for all of it."""
        if self.folds_exponents:
            return K_BLOCK
        return None if self.two_levels else self.zero_group

    @property
    def zero_group(self) -> int | None:
        """The K that one row of `zeros` is for, or would be. None: one row is for all of it."""
        return self._packing.scale_group(self.group_size)

    @property
    def _entry_k(self) -> int | None:
        """The K that one row of `scales` is for, where it holds words: those of four groups."""
        words = SCALES_A_WORD if self.second_scales is not None else 1
        return None if self.scale_group is None else words * self.scale_group

    @property
    def scale_factor(self) -> float:
        """What `scales` are, divided by the scales of the weights: a power of two."""
        return self._packing.factor(self.needs_zeros)

    @property
    def order(self) -> str:
        """What kernels convert the codes from, as the runtime's element table names it."""
        if self.folds_exponents:
            return "e2m1x"
        return "u4" if self.needs_zeros else self._packing.orders[-1 if self.holds_minus_eight else 0]

    @property
    def others(self) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """What products take beside codes and scales: sums, zeros and second scales."""
        return self.sums, self.zeros, self.second_scales

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
            raise ValueError(f"x must be [..., K={k}], but the shape is {[*x.shape]}")
        if grouped_layout is not None and not (self.is_stack and x.dim() == 2 and grouped_layout.shape == x.shape[:1]):
            raise ValueError(
                f"grouped_layout must be [M], for x of [M, K] and a stack of weights, but is {[*grouped_layout.shape]} "
                f"for x of {[*x.shape]} and weights of {[*self.shape]}"
            )
        if self.is_stack and grouped_layout is None and (x.dim() < 2 or x.shape[0] != self.experts):
            raise ValueError(
                f"x must be [{self.experts}, ..., K={k}], a part for each expert, but the shape is {[*x.shape]}; "
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
        return tuple(getattr(self, name) for name in names), self._metadata(names)

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
        if self.two_levels:
            group += " within one for all of it"
        zeros = ", zero points" if self.needs_zeros else ""
        permuted = ", permuted inputs" if self.input_permutation is not None else ""
        minus_eight = ", holds -8" if self.holds_minus_eight else ""
        return (
            f"PackedWeights({matrices}{[*self.shape[-2:]]} of {self.element} for {self.activations} activations, "
            f"a scale for {group}{zeros}{permuted}{minus_eight}, {self.nbytes / 1e6:.1f} MB, {self.device})"
        )

    def slice_n(self, start: int, stop: int) -> PackedWeights:
        """Output channels `start` to `stop` (exclusive), which are multiples of 64, or N: for tensor parallelism.

        A copy, packed as these rows by themselves would be (but for `holds_minus_eight` and zero points, which stay).
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
            sums=None if self.sums is None else columns(self.sums.unsqueeze(1)).squeeze(1),
            second_scales=None if self.second_scales is None else columns(self.second_scales.unsqueeze(1)).squeeze(1),
            shape=(*self.shape[:-2], stop - start, self.shape[-1]),
        )

    def slice_k(self, start: int, stop: int) -> PackedWeights:
        """Input channels `start` to `stop` (exclusive), which are multiples of 128 and of the group, or K.

        A copy, packed as this part of K by itself would be (but for `holds_minus_eight` and zero points, which stay).
        """
        if self.input_permutation is not None:
            raise ValueError("weights with an input_permutation cannot be cut along K: their K is in another order")
        step = K_BLOCK if self.group_size is None else math.lcm(K_BLOCK, self.group_size)
        _require_range("K", start, stop, self.shape[-1], step, "groups and blocks of 128 stay whole")
        blocks = slice(start // K_BLOCK, ceil_div(stop, K_BLOCK))

        def rows(tensor: torch.Tensor, group: int | None) -> torch.Tensor:
            kept = tensor if group is None else tensor[:, start // group : align(stop, K_BLOCK) // group]
            return kept.clone(memory_format=torch.contiguous_format)

        part = replace(
            self,
            codes=self.codes[:, :, blocks].clone(memory_format=torch.contiguous_format),
            scales=rows(self.scales, self._entry_k),
            zeros=None if self.zeros is None else rows(self.zeros, self.zero_group),
            sums=None,
            shape=(*self.shape[:-1], stop - start),
        )
        return part if self.sums is None else part.with_sums()

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
            sums=None if self.sums is None else self.sums[first:last],
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
        if one.order == "s4m" and self.order != "s4m":
            codes = code.from_sign_magnitude(codes)
        if one.folds_exponents and not self.folds_exponents:
            codes, scales = code.from_lookup(codes), unfold(scales[0])[None] * one.scale_factor
        if self.needs_zeros and not one.needs_zeros and self._packing.places is None:
            codes = codes ^ code.UNSIGNED
        self.codes[index].copy_(codes[0])
        if self.second_scales is not None and one.second_scales is not None:
            self.scales[index].copy_(scales[0])
            self.second_scales[index].copy_(one.second_scales[0])
        else:
            self.scales[index].copy_(scales[0] * (self.scale_factor / one.scale_factor))
        if self.zeros is not None:
            self.zeros[index].copy_(self._no_zeros() if one.zeros is None else one.zeros[0])
        if self.sums is not None:
            given = one.with_sums().sums if one.sums is None else one.sums
            assert given is not None
            exact = self.sums.dtype == torch.int32
            self.sums[index].copy_(given[0].double() * (one.scale_factor / self.scale_factor) if exact else given[0])
        if self.input_permutation is not None:
            order = one.input_permutation
            self.input_permutation.view(self.experts, -1)[index].copy_(
                torch.arange(self.shape[-1]) if order is None else order
            )

    def _metadata(self, tensors: list[str]) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {"version": VERSION, "tensors": tensors, **plain, "shape": [*self.shape]}

    @property
    def _packing(self) -> Packing:
        return packing_of(self.element, self.activations)

    def _no_zeros(self) -> torch.Tensor:
        """Words for signed codes that are 8 more than their values."""
        factor = torch.ones((), dtype=torch.int32)
        return Steps(factor, 8 * factor).words(self.activations)

    def with_sums(self) -> PackedWeights:
        """The same weights with `sums`, computed from what is packed."""
        n, k = self.shape[-2:]
        exact = self.scale_group is None
        sums = self.scales.new_zeros(
            (self.experts, self.scales.shape[2]), dtype=torch.int32 if exact else torch.float32
        )
        for expert in range(self.experts):
            for first, last in code.row_chunks(n, k):
                if exact:
                    of_rows = self._values(expert, first, last).sum(1) * round(1 / self.scale_factor)
                else:
                    of_rows = self._rows(expert, first, last).sum(1, dtype=torch.float64)
                sums[expert, first:last] = of_rows
        return replace(self, sums=sums)

    def _values(self, expert: int, first: int, last: int) -> torch.Tensor:
        """Rows `first` (a multiple of 64) to `last` of integers less their zero points, int32."""
        codes = self.codes[expert, first // code.BLOCK_ROWS : ceil_div(last, code.BLOCK_ROWS)]
        values = self._unblocked(codes)[: last - first, : self.shape[-1]].to(torch.int32)
        if self.zeros is not None:
            steps = steps_of(self.zeros[expert, :, first:last], self.activations)
            factors, offsets = (self._spread(groups, self.zero_group) for groups in (steps.factors, steps.offsets))
            values = (values & 15) * factors - offsets
        return values

    def _unblocked(self, codes: torch.Tensor) -> torch.Tensor:
        """int8 of some blocks' rows, as the codes are stored."""
        packing = self._packing
        if packing.places is not None:
            words = from_words(codes, packing.places).view(torch.int8)
            return words if self.needs_zeros else words - packing.added
        if self.order == "s4m":
            codes = code.from_sign_magnitude(codes)
        elif self.folds_exponents:
            codes = code.from_lookup(codes)
        return code.from_blocks(codes)

    def _rows(self, expert: int, first: int, last: int) -> torch.Tensor:
        """Rows `first` (a multiple of 64) to `last` of one matrix, dequantised to FP32."""
        values = self._values(expert, first, last)
        scales = self.scales[expert, :, first:last]
        if self.second_scales is not None:
            fields = conversion_scales.from_bytes(conversion_scales.from_words(scales))
            second = self.second_scales[expert, first:last] / conversion_scales.FACTOR
            return self._decoded(values) * self._spread(fields, self.scale_group) * second.unsqueeze(1)
        if self.element in ("e2m1", "e4m3"):
            values = self._decoded(values)
        if self.folds_exponents:
            return values * self._spread(unfold(scales), SMALLEST_GROUP)
        return values * self._spread(scales / self.scale_factor, self.scale_group)

    def _decoded(self, values: torch.Tensor) -> torch.Tensor:
        """What codes of floating elements stand for, in FP32."""
        if self.element == "e4m3":
            return values.to(torch.int8).view(torch.float8_e4m3fn).float()
        return code.E2M1.to(values.device)[(values & 15).long()]

    def _spread(self, groups: torch.Tensor, group: int | None) -> torch.Tensor:
        """What is stored for groups of K, `[K groups, rows]`, for each row and K."""
        rows = groups.T
        return rows if group is None else rows.repeat_interleave(group, 1)[:, : self.shape[-1]]

    def _expert(self, index: int) -> int:
        index = integer("index", index)
        if not -self.experts <= index < self.experts:
            raise IndexError(f"index must be that of one of {self.experts} experts, but is {index}")
        return index % self.experts

    def _require_same_kind(self, one: PackedWeights) -> None:
        if one.is_stack or one.shape != self.shape[-2:]:
            raise ValueError(f"one matrix of {[*self.shape[-2:]]} is wanted, but the shape is {[*one.shape]}")
        for name in ("element", "activations", "group_size", "two_levels"):
            if getattr(one, name) != getattr(self, name):
                raise ValueError(f"{name} must be {getattr(self, name)!r}, but is {getattr(one, name)!r}")
        if (one.second_scales is None) != (self.second_scales is None):
            raise ValueError("the new weights' scales are not multiplied as those of the weights that they replace are")
        if one.holds_minus_eight and self.order == "s4m":
            raise ValueError("the new weights hold -8, which those they replace do not: kernels convert them otherwise")
        if self.folds_exponents and not one.folds_exponents:
            raise ValueError(
                "the exponents of the new weights are too far apart to be multiplied in, as the old ones' are"
            )
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
