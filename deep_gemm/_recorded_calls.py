"""Calls of the public functions on tensors whose values nobody reads: what `precompile` records."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from . import epilogue
from ._products import PRODUCTS, function_name
from ._recording import placeholder
from ._targets import BLACKWELL_TARGETS
from .layout import get_tma_aligned_size
from .utils.math import ceil_div
from .weights import PackedWeights
from .weights.blank import blank_weights
from .weights.packings import FOLDED, ROWS, packing_of

if TYPE_CHECKING:
    from ._precompile import Calls

_FP8, _BYTES = torch.float8_e4m3fn, torch.int8
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_PER_WORD = 4  # scales, along K
_BLOCK = 128
_NVFP4_GROUP = 16  # whose scales are E4M3


def _along_m(rows: int, entries: int, dtype: torch.dtype, groups: tuple[int, ...] = ()) -> torch.Tensor:
    """`[.., rows, entries]`, as products read scales: M contiguous, padded to 16 bytes."""
    padded = get_tma_aligned_size(rows, dtype.itemsize)
    return placeholder(*groups, entries, padded, dtype=dtype).transpose(-1, -2)[..., :rows, :]


def _scales_along_k(
    rows: int, k: int, gran_k: int, packed: bool, groups: tuple[int, ...] = (), in_blocks: bool = False
) -> torch.Tensor:
    """FP32 or words, one for each row or block of rows."""
    if packed:
        return _along_m(rows, ceil_div(k, _PER_WORD * gran_k), torch.int32, groups)
    if in_blocks:
        return placeholder(*groups, ceil_div(rows, gran_k), ceil_div(k, gran_k), dtype=torch.float32)
    return _along_m(rows, ceil_div(k, gran_k), _FP8 if gran_k == _NVFP4_GROUP else torch.float32, groups)


@dataclass
class RecordedCalls:
    """Calls of one kind with one weight; `make(rows)` makes one. Tensors are shared: safe from several threads."""

    calls: Calls
    n: int
    k: int
    max_m: int
    target: str
    a: tuple[torch.Tensor | None, ...] = field(init=False)
    b: Any = field(init=False)
    how: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, extent in (("M", self.max_m), ("N", self.n), ("K", self.k)):
            if not 1 <= extent < 2**31:
                raise ValueError(f"{name} must be between 1 and 2^31 - 1, got {extent}")
        calls, self.operands, result = self.calls, self.calls.operands, self.calls.result
        self.masked = calls.grouping == "masked"
        self.blackwell = self.target in BLACKWELL_TARGETS
        self.groups = () if calls.grouping == "dense" else (calls.experts,)
        self.a_groups = self.groups if self.masked else ()
        self.a = self._tokens()
        self.b = self._weights()
        output = result.output or ("fp16" if self.operands.product == "fp16" else "bf16")
        self.d = placeholder(*self.a_groups, self.max_m, self.n, dtype=_DTYPES[output])
        self.c = placeholder(*self.d.shape, dtype=self.d.dtype) if result.add_c else None
        if result.bias is not None:
            self.how["bias"] = placeholder(*self.groups, self.n, dtype=_DTYPES[result.bias])
        if self.operands.fp32_scales and self.blackwell:
            self.how["disable_ue8m0_cast"] = True
        if calls.grouping == "psum":
            self.how |= {"use_psum_layout": True, "expected_m_for_psum_layout": calls.expected_m or None}
        self.layout = torch.zeros(self.max_m if calls.grouping == "contiguous" else calls.experts, dtype=torch.int32)
        self.function: Callable[..., None] = self._function()

    def make(self, rows: int) -> None:
        """A call with so many rows; of masked experts, with such a hint."""
        try:
            self._make(rows)
        except TypeError as error:  # of dtypes that no product has there
            raise ValueError(str(error)) from None

    def _make(self, rows: int) -> None:
        count = self.max_m if self.masked else rows
        a = tuple(None if part is None else part[..., :count, :] if part.dim() > 1 else part[:count] for part in self.a)
        if self.masked:
            a = self.a
        d = self.d[..., :count, :]
        operand = a[0] if len(a) == 1 else a
        how = {**self.how, **self._epilogue(count)}
        if self.calls.grouping == "dense":
            self.function(operand, self.b, d, **({} if self.c is None else {"c": self.c[:count]}), **how)
        elif self.masked:
            self.function(operand, self.b, d, self.layout, rows, **how)
        else:
            rows_of_layout = count if self.calls.grouping == "contiguous" else len(self.layout)
            self.function(operand, self.b, d, self.layout[:rows_of_layout], **how)

    def _epilogue(self, rows: int) -> dict[str, Any]:
        steps: list[epilogue.Epilogue] = []
        if self.calls.result.alpha:
            steps.append(epilogue.Alpha(0.5))
        if self.calls.result.row_scale:
            steps.append(epilogue.RowScale(placeholder(*self.a_groups, rows, dtype=torch.float32)))
        if not steps:
            return {}
        return {"epilogue": steps[0] if len(steps) == 1 else epilogue.Chain(*steps)}

    def _function(self) -> Callable[..., None]:
        import deep_gemm

        name = function_name(self.operands.product, self.calls.grouping)
        function: Callable[..., None] = getattr(deep_gemm, name)
        given = {*self.how, *self._epilogue(1), *(() if self.c is None else ("c",))}
        if unknown := sorted(given - {*inspect.signature(function).parameters}):
            raise ValueError(f"deep_gemm.{name} takes no {' and no '.join(unknown)}")
        return function

    def _gran_k(self, operand: str) -> int:
        if self.operands.product == "fp4":
            return self.operands.scale_group() or 0
        default = 32 if (self.operands.product, operand) == ("fp8_fp4", "b") else _BLOCK
        return int(self.operands.scales.get(f"gran_k_{operand}", default))

    def _packed(self, operand: str) -> bool:
        """Whether scales come as words."""
        as_they_lie = int(self.operands.product == "fp4")
        float32 = self.operands.fp32_scales or self.operands.scales.get(f"packs_scales_{operand}", as_they_lie)
        return self.blackwell and not float32

    def _tokens(self) -> tuple[torch.Tensor | None, ...]:
        """Data, and what belongs to it."""
        operands, rows, k = self.operands, self.max_m, self.k
        activations = PRODUCTS[operands.product].activations
        shape = (*self.a_groups, rows)
        if activations in ("bf16", "fp16"):
            return (placeholder(*shape, k, dtype=_DTYPES["fp16" if activations == "fp16" else "bf16"]),)
        half = activations in ("int4", "fp4")
        data = placeholder(*shape, k // 2 if half else k, dtype=_FP8 if activations == "fp8" else _BYTES)
        if activations in ("int8", "int4"):
            grouped = "gran_k_a" in operands.scales
            scales = (
                _scales_along_k(rows, k, _BLOCK, False, self.a_groups)
                if grouped
                else placeholder(*shape, dtype=torch.float32)
            )
            return (
                (data, scales, torch.zeros(shape, dtype=torch.int32))
                if operands.scales.get("asymmetric_a")
                else (data, scales)
            )
        if operands.token_scales and not (self.blackwell and operands.product == "fp8_fp4"):
            return data, placeholder(*shape, dtype=torch.float32)
        packed = self._packed("a") and operands.product in ("fp8", "fp8_fp4", "fp4")
        return data, _scales_along_k(rows, k, self._gran_k("a"), packed, self.a_groups)

    def _weights(self) -> Any:
        operands, n, k = self.operands, self.n, self.k
        shape = (*self.groups, n)
        if operands.product in ("bf16", "fp16"):
            return placeholder(*shape, k, dtype=_DTYPES[operands.product])
        if operands.product == "fp8":
            return self._fp8_weights()
        if operands.product == "int8":
            return placeholder(*shape, k, dtype=_BYTES), self._int8_scales()
        if operands.product == "fp4":
            self.how["recipe"] = (1, 1, self._gran_k("b"))
            return placeholder(*shape, k // 2, dtype=_BYTES), self._row_scales(self._gran_k("b"))
        if operands.product == "fp8_fp4" and self.blackwell and operands.far_exponents:
            gran_k = self._gran_k("b")
            self.how |= {"recipe_a": (1, self._gran_k("a")), "recipe_b": (1, gran_k)}
            return placeholder(*shape, k // 2, dtype=_BYTES), self._row_scales(gran_k)
        return self._packed_weights()

    def _row_scales(self, gran_k: int) -> torch.Tensor:
        return _scales_along_k(self.n, self.k, gran_k, self._packed("b"), self.groups)

    def _fp8_weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        gran_a, gran_b, packed = self._gran_k("a"), self._gran_k("b"), self._packed("b")
        in_blocks = not self.operands.scales.get("per_row_b") and not packed
        if (gran_a, gran_b, in_blocks) != (_BLOCK, _BLOCK, True):
            self.how |= {"recipe_a": (1, gran_a), "recipe_b": (gran_b if in_blocks else 1, gran_b)}
        scales = _scales_along_k(self.n, self.k, gran_b, packed, self.groups, in_blocks)
        return placeholder(*self.groups, self.n, self.k, dtype=_FP8), scales

    def _int8_scales(self) -> torch.Tensor:
        if "gran_k_b" not in self.operands.scales:
            return placeholder(*self.groups, self.n, dtype=torch.float32)
        in_blocks = not self.operands.scales.get("per_row_b")
        self.how["recipe"] = (1, _BLOCK if in_blocks else 1, _BLOCK)
        return _scales_along_k(self.n, self.k, _BLOCK, False, self.groups, in_blocks)

    def _packed_weights(self) -> PackedWeights:
        operands = self.operands
        product, group_size = PRODUCTS[operands.product], operands.scale_group()
        element, activations = str(product.weights), product.activations
        packing = packing_of(element, activations)
        shape = (*self.groups, self.n, self.k)
        if packing.in_rows and self.blackwell:
            if self._gran_k("a") != _BLOCK:
                self.how["recipe_a"] = (1, self._gran_k("a"))
            return blank_weights(shape, element, activations, group_size, ROWS)
        order = packing.zeros_order if operands.zero_points else packing.orders[-1 if operands.minus_eight else 0]
        if packing.folds_exponents and not operands.far_exponents:
            order = FOLDED
        converted = group_size is not None and group_size <= packing.converted_group and not operands.far_exponents
        element = f"u{element}" if operands.zero_points else element
        if activations == "fp8":
            near = order == FOLDED or group_size is None
        else:
            near = activations == "bf16" and group_size is not None and not (converted or operands.far_exponents)
        return blank_weights(shape, element, activations, group_size, order, second_scales=converted, near_scales=near)
