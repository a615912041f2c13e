"""One call for all products: which of the named functions serves it is read off its operands and its grouping."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import batched, bf16, bf16_weights, fp4, fp8_fp4, fp8_fp4_grouped, fp8_int4, int4, int8, int8_int4, k_grouped
from ._dtypes import E8M0, FP4_PAIR
from ._output import Output
from ._products import function_name
from .epilogue import Epilogue
from .weights import PackedWeights

__all__ = ["Batched", "Contiguous", "KGroups", "Masked", "gemm"]


@dataclass(frozen=True)
class Contiguous:
    """Experts whose rows follow each other: see `m_grouped_fp8_gemm_nt_contiguous`."""

    layout: torch.Tensor  # int32 [M], or with psum [G]
    psum: bool = False
    zero_padding: bool = True
    expected_m: int | None = None


@dataclass(frozen=True)
class Masked:
    """Experts with a matrix each, of which the first rows count: see `m_grouped_fp8_gemm_nt_masked`."""

    counts: torch.Tensor  # int32 [G]
    expected_m: int


@dataclass(frozen=True)
class KGroups:
    """Groups that split K: see `k_grouped_fp8_gemm_tn_contiguous`, or `_nt_` where operands have one dimension."""

    ks_cpu: Sequence[int] | None
    layout: torch.Tensor  # int32 [G]
    psum: bool = False


@dataclass(frozen=True)
class Batched:
    """A product for each matrix of a batch, or their sum: see `einsum`."""

    expr: str


Grouping = Contiguous | Masked | KGroups | Batched

_MODULES = (
    batched,
    bf16,
    bf16_weights,
    fp4,
    fp8_fp4,
    fp8_fp4_grouped,
    fp8_int4,
    int4,
    int8,
    int8_int4,
    k_grouped,
)
_FP4_SCALES = (*E8M0, torch.float8_e4m3fn, torch.uint8, torch.int32)
_PACKED = {
    ("fp8", "int4"): "fp8_int4",
    ("fp8", "uint4"): "fp8_int4",
    ("fp8", "e2m1"): "fp8_fp4",
    ("int8", "int4"): "int8_int4",
    ("int8", "uint4"): "int8_int4",
    ("int4", "int4"): "int4",
    ("int4", "uint4"): "int4",
    ("bf16", "int4"): "bf16_int4",
    ("bf16", "uint4"): "bf16_int4",
    ("bf16", "int8"): "bf16_int8",
    ("bf16", "uint8"): "bf16_int8",
    ("bf16", "e2m1"): "bf16_fp4",
    ("bf16", "e4m3"): "bf16_fp8",
}


def gemm(
    a: Any,
    b: Any,
    d: Output,
    *,
    c: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    grouping: Grouping | None = None,
    epilogue: Epilogue | None = None,
    recipe: tuple[int, int, int] | tuple[tuple[int, int], tuple[int, int]] | None = None,
    compiled_dims: str | None = None,
) -> None:
    """`d = c + a @ b.T + bias` of any formats that are multiplied with each other, dense or grouped.

    Args:
        a: a tensor (bfloat16, float16, int8), or one with scales, `(data, scales)`, int8 also with zero points, `(data,
            scales, zeros)`; `[M, K]`, or as the grouping's function has it. Any strides that the function takes.
        b: a tensor, a pair `(data, scales)`, or PackedWeights; `[N, K]`, or as the grouping's function has it.
        d: written; shapes and dtypes as the function has them.
        c: added. Dense, batched and K-grouped products take it.
        bias: `[N]`, or `[G, N]`, added in FP32. INT8 and packed weights take it.
        grouping: None (dense), or `Contiguous`, `Masked`, `KGroups` or `Batched`.
        epilogue: what happens to complete sums (`deep_gemm.epilogue`).
        recipe: rows of a, rows of b, and K that share a scale; or a pair, (rows of a, K) and (rows of b, K).
        compiled_dims: which extents are constants of the kernel; by default as the function has it.

    int8 data with float32 scales (or none) is INT8. It is FP4 where its dtype is float4_e2m1fn_x2, where its scales
    are exponents (float8_e8m0fnu, int32 words) or E4M3, and beside E4M3.

    Raises:
        TypeError: no function multiplies such operands so.
        ValueError: the function takes no such argument; else what the function raises.
    """
    function = _function(_format(a, b), grouping, a)
    a, b = _in_bytes(a), _in_bytes(b)
    options: dict[str, Any] = {"c": c, "bias": bias, "epilogue": epilogue, "compiled_dims": compiled_dims}
    if recipe is not None and len(recipe) == 2:
        options["recipe_a"], options["recipe_b"] = recipe
    else:
        options["recipe"] = recipe
    given = {name: value for name, value in options.items() if value is not None}
    known = _PARAMETERS[function.__name__]
    for name in given:
        if name not in known:
            raise ValueError(f"{name} must be None, since {function.__name__} takes none")
    if grouping is None:
        function(a, b, d, **given)
    elif isinstance(grouping, Contiguous):
        given["expected_m_for_psum_layout"] = grouping.expected_m
        rows = {"use_psum_layout": grouping.psum, "ensure_zero_padding": grouping.zero_padding}
        function(a, b, d, grouping.layout, **rows, **given)
    elif isinstance(grouping, Masked):
        function(a, b, d, grouping.counts, grouping.expected_m, **given)
    elif isinstance(grouping, KGroups):
        function(a, b, d, grouping.ks_cpu, grouping.layout, use_psum_layout=grouping.psum, **given)
    else:
        function(grouping.expr, a, b, d, **given)


def _parts(operand: Any) -> tuple[Any, Any]:
    """Data and scales."""
    if isinstance(operand, (tuple, list)) and len(operand) in (2, 3):
        return operand[0], operand[1]
    return operand, None


def _is_fp4(operand: Any) -> bool:
    data, scales = _parts(operand)
    dtype = getattr(data, "dtype", None)
    return dtype is not None and (
        dtype in FP4_PAIR or (dtype == torch.int8 and getattr(scales, "dtype", None) in _FP4_SCALES)
    )


def _in_bytes(operand: Any) -> Any:
    """Two codes of FP4 as int8, which functions take."""
    data, scales = _parts(operand)
    return (data.view(torch.int8), scales) if isinstance(data, torch.Tensor) and data.dtype in FP4_PAIR else operand


def _format(a: Any, b: Any) -> str:
    """What the functions of such operands are called."""
    (data, _), (weights, _) = _parts(a), _parts(b)
    of_a: Any = getattr(data, "dtype", None)
    of_b: Any = getattr(weights, "dtype", None)
    halves = of_a in (torch.bfloat16, torch.float16)
    if isinstance(b, PackedWeights):
        named = {torch.float8_e4m3fn: "fp8", torch.int8: b.activations}.get(of_a, "bf16" if halves else "")
        found = _PACKED.get((named, b.element))
    elif halves:
        found = "bf16" if of_b == of_a else "bf16_fp8" if of_b == torch.float8_e4m3fn else None
    elif torch.float8_e4m3fn in (of_a, of_b):
        found = "fp8_fp4" if {of_a, of_b} <= {torch.float8_e4m3fn, torch.int8, *FP4_PAIR} else None
    elif _is_fp4(a) and _is_fp4(b):
        found = "fp4"
    else:
        found = "int8" if of_a == of_b == torch.int8 and not (_is_fp4(a) or _is_fp4(b)) else None
    if found is None:
        raise TypeError(f"a and b must have formats that are multiplied with each other, got {_told(a)} and {_told(b)}")
    return found


def _told(operand: Any) -> str:
    data, scales = _parts(operand)
    if isinstance(operand, PackedWeights):
        return f"PackedWeights of {operand.element} for {operand.activations}"
    text = str(getattr(data, "dtype", type(data).__name__)).removeprefix("torch.")
    scaled = str(getattr(scales, "dtype", type(scales).__name__)).removeprefix("torch.")
    return text if scales is None else f"{text} with scales of {scaled}"


_NAMED: dict[str, Callable[..., None]] = {name: getattr(module, name) for module in _MODULES for name in module.__all__}
_PARAMETERS = {name: frozenset(inspect.signature(function).parameters) for name, function in _NAMED.items()}


def takes_epilogue(a: Any, b: Any, grouping: Grouping | None) -> bool:
    """Whether the function that multiplies such operands takes one."""
    return "epilogue" in _PARAMETERS[_function(_format(a, b), grouping, a).__name__]


def _function(name: str, grouping: Grouping | None, a: Any) -> Callable[..., None]:
    if grouping is None:
        wanted = function_name(name, "dense")
    elif isinstance(grouping, Contiguous):
        wanted = function_name(name, "contiguous")
    elif isinstance(grouping, Masked):
        wanted = function_name(name, "masked")
    elif isinstance(grouping, KGroups):
        data = _parts(a)[0]
        lies = "nt" if getattr(data, "ndim", 2) == 1 else "tn"
        wanted = f"k_grouped_{name.removesuffix('_fp4')}_gemm_{lies}_contiguous"
    elif isinstance(grouping, Batched):
        wanted = {"bf16": "einsum", "fp8_fp4": "fp8_einsum"}.get(name, f"{name}_einsum")
    else:
        raise TypeError(f"grouping must be Contiguous, Masked, KGroups, Batched or None, got {grouping!r}")
    found = _NAMED.get(wanted)
    if found is None:
        raise TypeError(f"no products of {name} are grouped so: there is no {wanted}")
    return found
