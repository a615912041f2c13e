"""What a model calls beside its weights' products: quantise kernels, routing, MLA's batches, and what training adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from . import batched, bf16, fp8, hyperconnections, k_grouped, quantize, routing
from ._gemm import Contiguous, Masked
from ._precompile import Part, parts_of
from ._recording import placeholder
from ._targets import BLACKWELL_TARGETS
from .settings import get_mk_alignment_for_contiguous_layout
from .utils.math import align, ceil_div

if TYPE_CHECKING:
    from ._models import ModelWeight

_FP8, _BF16, _FP32, _INT32 = torch.float8_e4m3fn, torch.bfloat16, torch.float32, torch.int32
_BLOCK, _TOKENS_STEP = 128, 16
_ALONG_K, _OF_WEIGHTS = (1, 1, 128), "mn"  # as deep_gemm.nn calls them: K is the number of tokens
_WORDS_ROWS = 4
_PRENORM_ROWS = 16  # that all tiles of the product before the norm are multiples of


@dataclass(frozen=True)
class OtherCalls:
    """Calls of one kind, as threads record them."""

    name: str
    parts: list[Part]


@dataclass(frozen=True)
class Limits:
    """The most tokens of a call, the most rows of a masked expert, and for which target."""

    max_m: int
    max_masked_m: int
    target: str

    def rows_of(self, weight: ModelWeight) -> int:
        """The most of a call with it; of experts whose rows follow each other with the padding that each may have."""
        if weight.calls.grouping in ("dense", "masked"):
            return self.max_m if weight.calls.grouping == "dense" else self.max_masked_m
        step = get_mk_alignment_for_contiguous_layout()
        return align(self.max_m * weight.rows_a_token + weight.calls.experts * (step - 1), step)

    @property
    def few(self) -> list[int]:
        """Numbers of tokens for kernels that are the same for all."""
        return sorted({1, min(_WORDS_ROWS, self.max_m), self.max_m})


def _pair(rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """With a scale for each row and 128 of K, M contiguous."""
    padded = ceil_div(rows, _WORDS_ROWS) * _WORDS_ROWS
    scales = placeholder(ceil_div(k, _BLOCK), padded, dtype=_FP32).T[:rows]
    return placeholder(rows, k, dtype=_FP8), scales


@dataclass(frozen=True)
class Batch:
    """A product for each head of a GPU, or for each group of heads: `[heads, d, r]` in `einsum`'s words."""

    name: str
    expr: str
    heads: int
    d: int
    r: int


def of_model(
    weights: Sequence[ModelWeight], batches: Sequence[Batch], limits: Limits, training: bool
) -> list[OtherCalls]:
    found = [_quantised(weights, limits, training), *_routed(weights, limits), *_batched(weights, batches, limits)]
    if training:
        found += _gradients(weights, limits)
    return [each for each in found if each.parts]


def _quantised(weights: Sequence[ModelWeight], limits: Limits, training: bool) -> OtherCalls:
    """Tokens of each product that multiplies 8 bits, behind the gate where it is the second of an MLP."""
    parts = []
    seen: set[tuple[Any, ...]] = set()
    for weight in weights:
        kind, calls = weight.calls.operands.product.partition("_")[0], weight.calls
        gated = weight.name.endswith("down")
        key = kind, weight.k, gated, calls.grouping, calls.experts
        if kind not in ("fp8", "int8") or key in seen:
            continue
        seen.add(key)
        for make in _quantise_kinds(kind, weight.k, gated, limits.target, training):
            counts = [limits.max_masked_m] if calls.grouping == "masked" else limits.few
            parts.append(Part(_with_grouping(make, weight, limits), counts))
    if training and any(weight.calls.operands.product == "fp8" for weight in weights):
        columns = range(_TOKENS_STEP, min(limits.max_m, 1024) + 1, _TOKENS_STEP)
        for form in _scales_for(limits.target, training):
            parts.append(Part(_columns(form), columns))
            if form != "packed":
                shapes = dict.fromkeys((weight.n, weight.k) for weight in weights)
                parts += [Part(_blocks(shape, dtype, form), [1]) for shape in shapes for dtype in (_BF16, _FP32)]
    return OtherCalls("quantised tokens", parts)


def _columns(form: str) -> Callable[[int], None]:
    """Of tokens, of which there are any number."""

    def make(m: int) -> None:
        quantize.fp8(placeholder(_BLOCK, m, dtype=_BF16), scales=form)

    return make


def _blocks(shape: tuple[int, int], dtype: torch.dtype, form: str) -> Callable[[int], None]:
    """Of weights, each step."""

    def make(_: int) -> None:
        quantize.fp8_blocks(placeholder(*shape, dtype=dtype), scales=form)

    return make


def _scales_for(target: str, training: bool) -> list[str]:
    if target not in BLACKWELL_TARGETS:
        return ["fp32"]
    return ["packed", "ue8m0"] if training else ["packed"]


Make = Callable[[tuple[int, ...], Any], None]


def _quantise_kinds(kind: str, k: int, gated: bool, target: str, training: bool) -> Iterator[Make]:
    def int8(rows: tuple[int, ...], grouping: Any) -> None:
        if gated:
            quantize.swiglu_int8(placeholder(*rows, 2 * k, dtype=_BF16), grouping=grouping)
        else:
            quantize.int8(placeholder(*rows, k, dtype=_BF16), grouping=grouping)

    def with_scales(form: str) -> Make:
        def make(rows: tuple[int, ...], grouping: Any) -> None:
            quantize.fp8(placeholder(*rows, k, dtype=_BF16), scales=form, grouping=grouping)
            if gated:
                quantize.swiglu_fp8(placeholder(*rows, 2 * k, dtype=_BF16), scales=form, grouping=grouping)

        return make

    if kind == "int8":
        yield int8
    else:
        for form in _scales_for(target, training):
            yield with_scales(form)


def _with_grouping(make: Make, weight: ModelWeight, limits: Limits) -> Callable[[int], None]:
    calls = weight.calls
    if calls.grouping == "dense":
        return lambda m: make((m,), None)
    if calls.grouping == "masked":
        counts = placeholder(calls.experts, dtype=_INT32)
        return lambda m: make((calls.experts, m), Masked(counts, m))
    psum = calls.grouping == "psum"

    def of_rows(m: int) -> None:
        layout = placeholder(calls.experts if psum else m * weight.rows_a_token, dtype=_INT32)
        make((m * weight.rows_a_token,), Contiguous(layout, psum=psum))

    return of_rows


def _routed(weights: Sequence[ModelWeight], limits: Limits) -> Iterator[OtherCalls]:
    """Tokens to experts' rows and back."""
    experts = [weight for weight in weights if weight.calls.grouping != "dense"]
    if not experts:
        return
    weight = experts[0]
    kinds = {"contiguous": "indices", "psum": "psum", "masked": "masked"}
    hidden = max(each.k for each in experts if not each.name.endswith("down"))

    def maker(kind: str, ids_dtype: torch.dtype) -> Callable[[int], None]:
        def make(m: int) -> None:
            ids = placeholder(m, weight.rows_a_token, dtype=ids_dtype)
            given = placeholder(m, weight.rows_a_token, dtype=_FP32)
            made = routing.route(ids, weight.model_experts, kind=kind, weights=given)
            routing.route(ids, weight.model_experts, kind=kind)
            routing.gather(placeholder(m, hidden, dtype=_BF16), made)
            routing.gather(_pair(m, hidden), made)
            rows = placeholder(*made.source.shape, hidden, dtype=_BF16)
            routing.combine(rows, made, given)
            routing.combine(rows, made)

        return make

    parts = [
        Part(maker(kinds[grouping], dtype), [1, min(_WORDS_ROWS, limits.max_m)])
        for grouping in dict.fromkeys(each.calls.grouping for each in experts)
        for dtype in (torch.int64, _INT32)
    ]
    yield OtherCalls("routing", parts)


def _batched(weights: Sequence[ModelWeight], batches: Sequence[Batch], limits: Limits) -> Iterator[OtherCalls]:
    product = weights[0].calls.operands.product
    if product not in ("fp8", "bf16"):
        return
    counts = weights[0].calls.row_counts(limits.max_m)
    for batch in batches:
        make, with_plain_scales = _batch(product, batch.expr, batch.heads, batch.d, batch.r, limits.max_m)
        parts = [Part(make, counts[first : first + 256]) for first in range(0, len(counts), 256)]
        yield OtherCalls(batch.name, [*parts, Part(with_plain_scales, limits.few)])


def _batch(
    product: str, expr: str, heads: int, d: int, rank: int, max_m: int
) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """With scales as kernels read them, and as a cast of each row leaves them."""
    width, out_width = (d, rank) if expr.startswith("bhd") else (rank, d)
    dtype = _FP8 if product == "fp8" else _BF16
    tokens, weight = placeholder(max_m, heads, width, dtype=dtype), placeholder(heads, d, rank, dtype=dtype)
    out = placeholder(max_m, heads, out_width, dtype=_BF16)
    blocks = ceil_div(width, _BLOCK)
    plain = placeholder(max_m, heads, blocks, dtype=_FP32)
    along_m = placeholder(heads, blocks, ceil_div(max_m, _WORDS_ROWS) * _WORDS_ROWS, dtype=_FP32).permute(2, 0, 1)
    of_weight = placeholder(heads, ceil_div(d, _BLOCK), ceil_div(rank, _BLOCK), dtype=_FP32)

    def maker(scales: torch.Tensor) -> Callable[[int], None]:
        def make(m: int) -> None:
            if product == "bf16":
                batched.einsum(expr, tokens[:m], weight, out[:m])
            else:
                batched.fp8_einsum(expr, (tokens[:m], scales[:m]), (weight, of_weight), out[:m])

        return make

    return maker(along_m), maker(plain)


def before_norm(n: int, k: int, max_m: int, num_splits: int | None = None) -> OtherCalls:
    """The product before the norm: each kernel that calls of up to so many rows need."""
    lead = () if num_splits is None else (num_splits,)
    a, b = placeholder(max_m, k, dtype=_BF16), placeholder(n, k, dtype=_FP32)
    d, squares = placeholder(*lead, max_m, n, dtype=_FP32), placeholder(*lead, max_m, dtype=_FP32)

    def make(m: int) -> None:
        hyperconnections.tf32_hc_prenorm_gemm(a[:m], b, d[..., :m, :], squares[..., :m], num_splits)

    counts = [min(m, max_m) for m in range(_PRENORM_ROWS, max_m + _PRENORM_ROWS, _PRENORM_ROWS)]
    return OtherCalls(
        "before the norm", [Part(make, counts[first : first + 64]) for first in range(0, len(counts), 64)]
    )


def _gradients(weights: Sequence[ModelWeight], limits: Limits) -> Iterable[OtherCalls]:
    """Of tokens, by the transposed weights; of weights, by sums over tokens: K groups of experts."""
    for weight in weights:
        product, grouping = weight.calls.operands.product, weight.calls.grouping
        if product not in ("fp8", "bf16") or grouping == "masked":
            continue
        rows = limits.rows_of(weight)
        of_tokens = parts_of(weight.calls, weight.k, weight.n, rows, limits.target)
        yield OtherCalls(f"gradient of {weight.name}, tokens", of_tokens)
        if grouping == "dense":
            make = _of_weight(product, weight.n, weight.k)
            step = _TOKENS_STEP
        else:
            make = _of_experts(product, weight.n, weight.k, weight.calls.experts)
            step = get_mk_alignment_for_contiguous_layout()
        counts = range(step, ceil_div(rows, step) * step + 1, step)
        parts = [Part(make, counts[first : first + 64]) for first in range(0, len(counts), 64)]
        yield OtherCalls(f"gradient of {weight.name}", parts)


def _of_weight(product: str, n: int, k: int) -> Callable[[int], None]:
    d = placeholder(n, k, dtype=_FP32)

    def make(tokens: int) -> None:
        for c in (None, d):
            if product == "fp8":
                fp8.fp8_gemm_nt(_pair(n, tokens), _pair(k, tokens), d, c, recipe=_ALONG_K, compiled_dims=_OF_WEIGHTS)
            else:
                a, b = (placeholder(extent, tokens, dtype=_BF16) for extent in (n, k))
                bf16.bf16_gemm_nt(a, b, d, c, compiled_dims=_OF_WEIGHTS)

    return make


def _of_experts(product: str, n: int, k: int, experts: int) -> Callable[[int], None]:
    d, ends = placeholder(experts, n, k, dtype=_FP32), placeholder(experts, dtype=_INT32)

    def make(rows: int) -> None:
        sizes = [rows // experts // _BLOCK * _BLOCK] * experts
        sizes[0] += rows // _BLOCK * _BLOCK - sum(sizes)
        for c in (None, d):
            if product == "fp8":
                a, b = (
                    (placeholder(rows, extent, dtype=_FP8), placeholder(ceil_div(rows, _BLOCK), extent, dtype=_FP32))
                    for extent in (n, k)
                )
                k_grouped.k_grouped_fp8_gemm_tn_contiguous(a, b, d, None, ends, c, use_psum_layout=True)
                if rows % _BLOCK == 0:
                    k_grouped.k_grouped_fp8_gemm_tn_contiguous(a, b, d, sizes, ends, c)
            else:
                x, y = (placeholder(rows, extent, dtype=_BF16) for extent in (n, k))
                bf16.k_grouped_bf16_gemm_tn_contiguous(x, y, d, sizes, ends, c, use_psum_layout=True)

    return make
