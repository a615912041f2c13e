"""One call of a quantise kernel: options as numbers, results, and torch's operator. `quantize.py` has the functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.compiler import is_dynamo_compiling

from . import operators
from ._arguments import no_memory
from ._extension import C
from ._gates import ROWS, Gate
from ._gemm import Contiguous, Masked
from ._numbers import integer

Grouping = Contiguous | Masked | None
Out = Sequence[torch.Tensor] | None

# Numbers of enums in deep_gemm/include/deep_gemm: `Element` in format.cuh, the others in quantize/config.cuh.
_SHARES = {"k_group": 0, "row": 1, "block": 2}
_FORMS = {"fp32": 0, "ue8m0": 1, "packed": 2, "e4m3": 3}
_ALL, _CONTIGUOUS, _PSUM, _MASKED = range(4)
_SCALES_PER_WORD = 4
_ALIGNED_ROWS = 4  # of 4 bytes: 16
BLOCK = 128  # rows, and columns, that share a scale


class Codes(NamedTuple):
    """What values become, with the groups that share a scale (None: a row) and its forms."""

    element: int
    dtype: torch.dtype
    groups: tuple[int | None, ...]
    forms: tuple[str, ...]
    share: str = "k_group"  # where it is no row
    per_byte: int = 1


FP8 = Codes(4, torch.float8_e4m3fn, (128, 32, None), ("fp32", "ue8m0", "packed"))
FP8_BLOCKS = Codes(4, torch.float8_e4m3fn, (BLOCK,), ("fp32", "ue8m0"), "block")
INT8 = Codes(6, torch.int8, (None, 128), ("fp32",))
FP4 = Codes(17, torch.int8, (32, 128), ("fp32", "ue8m0", "packed"), per_byte=2)
MXFP4 = FP4._replace(groups=(32,), forms=("ue8m0", "packed"))
NVFP4 = FP4._replace(groups=(16,), forms=("e4m3",))


NO_GATE: Gate = (0, 0, 0, 0, 0)


class Plan(NamedTuple):
    """All that depends on no tensor."""

    codes: Codes
    numbers: tuple[int, ...]  # what no grouping says: element to up_shift, as `_launch` takes them apart
    group: int | None
    scales: str
    zeros: bool
    sums: bool
    columns: int  # of x for one of q


def plan_of(
    codes: Codes,
    group: int | None,
    scales: str = "fp32",
    gate: Gate = NO_GATE,
    zeros: bool = False,
    sums: bool = False,
) -> Plan:
    """What a function's arguments say. Others than it takes are refused."""
    make = _make_plan if is_dynamo_compiling() else _known_plan  # dynamo warns of caches
    return make(codes, group, scales, gate, zeros, sums)


def _make_plan(codes: Codes, group: int | None, scales: str, gate: Gate, zeros: bool, sums: bool) -> Plan:
    if group not in codes.groups:
        raise ValueError(f"group must be {_one_of(codes.groups)}, got {group!r}")
    forms = codes.forms if group is not None else tuple(form for form in codes.forms if form != "packed")
    if scales not in forms:
        raise ValueError(f"scales must be {_one_of(forms)} with group={group}, got {scales!r}")
    kind, rows, *gate_numbers = gate
    if rows >= len(ROWS):
        raise ValueError(
            "the gated activation's layout must be 'halves' or 'interleaved' where it is quantised, got 'eights'"
        )
    if (zeros or sums) and group is not None:
        name = "symmetric must be True" if zeros else "sums must be False"
        raise ValueError(f"{name} where less than a row shares a scale, got group={group}")
    share = "row" if group is None else codes.share
    numbers = (codes.element, _SHARES[share], group or 0, _FORMS[scales], kind, rows, *gate_numbers)
    return Plan(codes, numbers, group, scales, zeros, sums, 1 if gate == NO_GATE else 2)


def _one_of(values: Sequence[Any]) -> str:
    return " or ".join(", ".join(map(repr, part)) for part in (values[:-1], values[-1:]) if part)


_known_plan = functools.lru_cache(maxsize=256, typed=True)(_make_plan)


def quantized(
    x: torch.Tensor,
    plan: Plan,
    out: Out = None,
    grouping: Grouping = None,
    row_scale: torch.Tensor | None = None,
    whole: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """Codes and scales of x, zero points and sums where they are wanted; in `out` where there is one."""
    if not isinstance(x, torch.Tensor) or x.dim() < 2:
        raise ValueError(f"x must be a tensor [.., M, K], got {x.shape if isinstance(x, torch.Tensor) else x!r}")
    given = None if out is None else _tensors(out, plan)
    if x.dim() > 3:
        return _of_three_dimensions(x, plan, given, grouping, row_scale, whole)
    layout, kind, expected_m = _grouping_numbers(grouping)
    results = _results(x, plan) if given is None else given
    q, s, *rest = results
    zeros = rest[0] if plan.zeros else None
    sums = rest[-1] if plan.sums else None
    options = (*plan.numbers, kind, expected_m)
    _launch(x, layout, row_scale, s, q, zeros, sums, whole, options)
    return results


def _tensors(out: Out, plan: Plan) -> tuple[torch.Tensor, ...]:
    names = ["q", "s", *["zeros"] * plan.zeros, *["sums"] * plan.sums]
    wrong = not isinstance(out, (tuple, list)) or len(out) != len(names)
    if wrong or not all(isinstance(tensor, torch.Tensor) for tensor in out or ()):
        raise TypeError(f"out must be {len(names)} tensors ({', '.join(names)}), got {out!r}")
    return tuple(out or ())


def _grouping_numbers(grouping: Grouping) -> tuple[torch.Tensor | None, int, int]:
    if grouping is None:
        return None, _ALL, 0
    if isinstance(grouping, Contiguous):
        return grouping.layout, _PSUM if grouping.psum else _CONTIGUOUS, 0
    if isinstance(grouping, Masked):
        return grouping.counts, _MASKED, integer("expected_m", grouping.expected_m, smallest=0)
    raise TypeError(f"grouping must be Contiguous, Masked or None, got {grouping!r}")


def _results(x: torch.Tensor, plan: Plan) -> tuple[torch.Tensor, ...]:
    *lead, rows, columns = x.shape
    k = columns // plan.columns
    q = x.new_empty((*lead, rows, k // plan.codes.per_byte), dtype=plan.codes.dtype)
    if plan.group is None:
        s = x.new_empty((*lead, rows), dtype=torch.float32)
        counts = [x.new_empty((*lead, rows), dtype=torch.int32) for _ in range(plan.zeros + plan.sums)]
        return q, s, *counts
    groups = -(-k // plan.group)
    if plan.codes.share == "block":
        return q, x.new_empty((*lead, -(-rows // BLOCK), groups), dtype=torch.float32)
    if plan.scales == "e4m3":
        return q, x.new_empty((*lead, rows, groups), dtype=torch.float8_e4m3fn)
    packed = plan.scales == "packed"
    words = -(-groups // _SCALES_PER_WORD) if packed else groups
    # MN-major: the padding of the last column is memory too.
    padded = -(-rows // _ALIGNED_ROWS) * _ALIGNED_ROWS
    memory = x.new_empty((*lead, words, padded), dtype=torch.int32 if packed else torch.float32)
    if lead:
        return q, memory.as_strided((*lead, rows, words), (words * padded, 1, padded))
    return q, memory.as_strided((rows, words), (1, padded))


def _of_three_dimensions(
    x: torch.Tensor,
    plan: Plan,
    out: tuple[torch.Tensor, ...] | None,
    grouping: Grouping,
    row_scale: torch.Tensor | None,
    whole: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """The same where x has more: dimensions in front become one."""
    lead = x.shape[:-2]
    count = math.prod(lead)

    def joined(name: str, tensor: torch.Tensor) -> torch.Tensor:
        try:
            return tensor.view(count, *tensor.shape[len(lead) :])
        except RuntimeError:
            raise ValueError(
                f"{name} must have its first {len(lead)} dimensions without gaps between them, got shape "
                f"{[*tensor.shape]} and strides {tensor.stride()}"
            ) from None

    given = None if out is None else [joined("out", tensor) for tensor in out]
    scale = None if row_scale is None else joined("row_scale", row_scale)
    results = quantized(joined("x", x), plan, given, grouping, scale, whole)
    return tuple(tensor.unflatten(0, lead) for tensor in results) if out is None else out


def _launch(
    x: torch.Tensor,
    layout: torch.Tensor | None,
    row_scale: torch.Tensor | None,
    s: torch.Tensor,
    q: torch.Tensor,
    zeros: torch.Tensor | None,
    sums: torch.Tensor | None,
    whole: torch.Tensor | None,
    options: tuple[int, ...],
) -> None:
    if is_dynamo_compiling():
        _refuse_gradients(x, row_scale)
        _operator(x, layout, row_scale, s, q, zeros, sums, whole, options)
        return
    try:
        if x.is_neg():
            raise TypeError("x has torch's negative bit, so its memory does not hold its values")
        element, share, group, scales, gate, interleaved, limit, alpha, up_shift, rows, expected_m = options
        C.quantize(
            x=x,
            layout=layout,
            row_scale=row_scale,
            whole=whole,
            q=q,
            s=s,
            zeros=zeros,
            sums=sums,
            element=element,
            share=share,
            group=group,
            scales=scales,
            rows=rows,
            expected_m=expected_m,
            gate=gate,
            interleaved=interleaved,
            limit_bits=limit,
            alpha_bits=alpha,
            up_shift_bits=up_shift,
        )
        return
    except Exception as error:
        failure = error
    given = (x, layout, row_scale, s, q, zeros, sums, whole)
    tensors = [tensor for tensor in given if isinstance(tensor, torch.Tensor)]
    if operators.is_traced(tensors):
        _refuse_gradients(x, row_scale)
        _operator(*given, options)
        return
    rejections = (no_memory("an argument", tensor, "a quantise kernel") for tensor in tensors)
    raise next(filter(None, rejections), failure.with_traceback(None))


def _refuse_gradients(x: torch.Tensor, row_scale: torch.Tensor | None) -> None:
    """As the runtime does: codes would have none in silence."""
    if torch.is_grad_enabled() and (x.requires_grad or (row_scale is not None and row_scale.requires_grad)):
        raise RuntimeError("an argument asks for a gradient, which q would not have")


_operator = operators.define_writer(
    "quantize(Tensor x, Tensor? layout, Tensor? row_scale, Tensor(a!) s, Tensor(b!) q, Tensor(c!)? zeros, "
    "Tensor(d!)? sums, Tensor? whole, int[] options) -> ()",
    _launch,
)
