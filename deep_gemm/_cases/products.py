"""Products: dense ones, and experts' by each way in which their rows may lie."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .._precompile import Calls
from .._products import PACKED, PRODUCTS, function_name
from ..settings import get_mk_alignment_for_contiguous_layout
from ..utils.math import align, ceil_div, transpose_packed_fp4
from .case import Case, Wanted, byte_count, worst
from .operands import Operand, of_weights, tokens

_NAME = re.compile(r"(m_grouped_)?([a-z0-9_]+?)_gemm_(nt|nn|tn|tt)(?:_(contiguous|masked))?")
_OLD_MASKED = re.compile(r"(fp8|bf16)_m_grouped_gemm_nt_masked")
_TOKENS_K = 128  # that shares a scale of FP8 tokens
_BASELINE = "cublaslt"  # of torch, with BF16 operands
_PAIRS = "fp8_fp4"  # whose weights may also be pairs of codes and scales, and lie the other way round


@dataclass(frozen=True)
class Form:
    """What a function's name says."""

    product: str
    layout: str = "nt"
    grouping: str = "dense"


def form_of(name: str) -> Form | None:
    """None of a name that is no product's."""
    if found := _OLD_MASKED.fullmatch(name):
        return Form(found[1], grouping="masked")
    if name == "gemm":
        return Form("fp8")
    found = _NAME.fullmatch(name)
    if found is None or found[2] not in (*PRODUCTS, _BASELINE) or bool(found[1]) != bool(found[4]):
        return None
    if found[2] in PACKED and found[3] != "nt" and found[2] != _PAIRS:
        return None
    return Form(found[2], found[3], found[4] or "dense")


def _calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    from ..testing import calc_diff

    return calc_diff(x, y)


def _turned(operand: Any) -> Any:
    """The matrices the other way round, with memory in that order; scales as a view."""
    if isinstance(operand, torch.Tensor):
        return operand.transpose(-1, -2).contiguous()
    data, scales = operand
    if data.dtype == torch.int8:  # two codes of FP4 a byte: 8-bit integers have no layout but nt
        matrices = [transpose_packed_fp4(each) for each in data.view(-1, *data.shape[-2:])]
        turned = torch.stack(matrices) if data.dim() == 3 else matrices[0]
        return turned, scales.transpose(-1, -2)
    return data.transpose(-1, -2).contiguous(), scales.transpose(-1, -2)


def of_name(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    import deep_gemm

    form = form_of(name)
    assert form is not None
    product = "bf16" if form.product == _BASELINE else form.product
    return make(getattr(deep_gemm, name), name, product, form.grouping, shape, wanted, form.layout)


def of_calls(calls: Calls, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """Of a model's weight: its function, with rows of each expert where there are experts."""
    import deep_gemm

    name = function_name(calls.operands.product, calls.grouping)
    return make(getattr(deep_gemm, name), name, calls.operands.product, calls.grouping, shape, wanted)


def make(
    function: Callable[..., Any],
    name: str,
    product: str,
    grouping: str,
    shape: tuple[int, ...],
    wanted: Wanted,
    layout: str = "nt",
) -> Case:
    if len(shape) != (3 if grouping == "dense" else 4):
        form = "MxNxK" if grouping == "dense" else "GxMxNxK"
        raise ValueError(f"a shape of {name} must be {form}, got {'x'.join(map(str, shape))}")
    if grouping == "dense":
        return _dense(function, name, product, shape, wanted, layout)
    experts, m, n, k = shape
    b = of_weights(_kind_of_weights(product, layout), (experts, n, k), wanted)
    return _experts(function, name, product, grouping, (experts, m, n, k), b, wanted, layout)


def _out_dtype(product: str) -> torch.dtype:
    return torch.float16 if product == "fp16" else torch.bfloat16


def _kind_of_weights(product: str, layout: str) -> str:
    return "fp4" if product == _PAIRS and layout != "nt" else product


def _recipe(product: str, layout: str) -> dict[str, Any]:
    if _kind_of_weights(product, layout) != product:
        return {"recipe_a": (1, _TOKENS_K), "recipe_b": (1, 32)}
    return {"recipe": (1, 1, 32)} if product == "fp4" else {}


def _dense(
    function: Callable[..., Any], name: str, product: str, shape: tuple[int, ...], wanted: Wanted, layout: str
) -> Case:
    m, n, k = shape
    a = tokens(PRODUCTS[product].activations, (m, k), wanted)
    b = of_weights(_kind_of_weights(product, layout), (n, k), wanted)
    d = torch.full((m, n), float("nan"), dtype=_out_dtype(product), device=wanted.device)
    given_a = _turned(a.argument) if layout[0] == "t" else a.argument
    given_b = _turned(b.argument) if layout[1] == "n" else b.argument
    torch_call, torch_is = _of_torch(product, given_a, given_b, a, b, layout, d)
    how = _recipe(product, layout)
    return Case(
        name,
        shape,
        lambda: function(given_a, given_b, d, **how),
        lambda: _calc_diff(d, a.values(0) @ b.values(0).T),
        flops=2 * m * n * k,
        bytes=byte_count(a.argument, b.argument, d),
        torch_call=torch_call,
        torch_is=torch_is,
    )


def _of_torch(
    product: str, given_a: Any, given_b: Any, a: Operand, b: Operand, layout: str, d: torch.Tensor
) -> tuple[Callable[[], Any] | None, str]:
    """Torch's own product of the same numbers, where it has one, and what it is."""
    if PRODUCTS[product].activations in ("bf16", "fp16"):
        x = given_a.T if layout[0] == "t" else given_a
        w = given_b if isinstance(given_b, torch.Tensor) else b.values(0).to(d.dtype)
        w = w if layout[1] == "n" else w.T
        other = torch.empty_like(d)
        return lambda: torch.matmul(x, w, out=other), "matmul" if product in ("bf16", "fp16") else "matmul, 16 bits"
    if d.device.type != "cuda" or layout != "nt":
        return None, ""
    if product == "int8":
        return lambda: torch._int_mm(given_a[0], given_b[0].T), "_int_mm, sums only"
    if product == "fp8" and given_a[1].dtype == torch.float32:
        (x, x_scales), (w, w_scales) = given_a, given_b
        return (
            lambda: torch._scaled_mm(x, w.T, scale_a=x_scales, scale_b=w_scales.T, out_dtype=d.dtype),
            "_scaled_mm by blocks",
        )
    return None, ""


def _experts(
    function: Callable[..., Any],
    name: str,
    product: str,
    grouping: str,
    shape: tuple[int, int, int, int],
    b: Operand,
    wanted: Wanted,
    layout: str,
) -> Case:
    """Each expert has `m` rows; `psum` as the contiguous function takes it."""
    experts, m, n, k = shape
    masked = grouping == "masked"
    room = align(m, 64 if masked else get_mk_alignment_for_contiguous_layout())
    rows = (experts, room) if masked else (experts * room,)
    a = tokens(PRODUCTS[product].activations, (*rows, k), wanted)
    d = torch.full((*rows, n), float("nan"), dtype=_out_dtype(product), device=wanted.device)
    numbers = torch.arange(experts, dtype=torch.int32, device=wanted.device)
    how: dict[str, Any] = {}
    if masked:
        of_groups: tuple[Any, ...] = (torch.full_like(numbers, m), m)
    elif grouping == "psum":
        of_groups, how = (numbers * room + m,), {"use_psum_layout": True, "expected_m_for_psum_layout": m}
    else:
        place = torch.arange(experts * room, device=wanted.device) % room
        of_groups = (torch.where(place < m, numbers.repeat_interleave(room), -1).to(torch.int32),)
    given_b = _turned(b.argument) if layout[1] == "n" else b.argument
    how |= _recipe(product, layout)

    def check() -> float:
        found = []
        for g in range(experts):
            x = a.values(g)[:m] if masked else a.values(0)[g * room : g * room + m]
            found.append(_calc_diff(d[g, :m] if masked else d[g * room : g * room + m], x @ b.values(g).T))
        return worst(found)

    part = experts * m / (experts * room)  # of the rows that there is memory for
    return Case(
        name,
        shape,
        lambda: function(a.argument, given_b, d, *of_groups, **how),
        check,
        flops=2 * experts * m * n * k,
        bytes=byte_count(b.argument) + ceil_div(int(byte_count(a.argument, d) * part), 1),
        torch_call=_grouped_mm(product, a, b, numbers, room, layout) if grouping == "contiguous" else None,
        torch_is="_grouped_mm",
    )


def _grouped_mm(
    product: str, a: Operand, b: Operand, numbers: torch.Tensor, room: int, layout: str
) -> Callable[[], Any] | None:
    grouped = getattr(torch, "_grouped_mm", None)
    if product != "bf16" or grouped is None or layout != "nt":
        return None
    ends = (numbers + 1) * room
    return lambda: grouped(a.argument, b.argument.transpose(-1, -2), offs=ends)
