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
from ._gemm import Contiguous, Masked
from ._numbers import fp32_bits, integer
from .layout import get_tma_aligned_size

Grouping = Contiguous | Masked | None
Out = Sequence[torch.Tensor] | None

# Numbers of enums in deep_gemm/include/deep_gemm: `Element` in format.cuh, the others in quantize/config.cuh.
_SHARES = {"k_group": 0, "row": 1, "block": 2}
_FORMS = {"fp32": 0, "ue8m0": 1, "packed": 2}
_GATES = {"": 0, "swiglu": 1, "geglu": 2}
_ALL, _CONTIGUOUS, _PSUM, _MASKED = range(4)
_SCALES_PER_WORD = 4


class Codes(NamedTuple):
    """What values become."""

    name: str
    element: int
    dtype: torch.dtype
    groups: tuple[int | None, ...]


FP8 = Codes("fp8", 4, torch.float8_e4m3fn, (128, 32))


class Gate(NamedTuple):
    """What is made of gate and up first."""

    name: str = ""
    layout: str = "halves"
    limit: float | None = None
    alpha: float = 1.0
    up_shift: float = 0.0


NO_GATE = Gate()


class Plan(NamedTuple):
    """All that depends on no tensor."""

    numbers: tuple[int, ...]  # before those of the grouping
    gate_numbers: tuple[int, ...]  # behind them
    group: int | None
    packed: bool
    columns: int  # of x for one of q


def plan_of(codes: Codes, group: int | None, scales: str, gate: Gate) -> Plan:
    """What a function's arguments say. Others than it takes are refused."""
    make = _make_plan if is_dynamo_compiling() else _known_plan  # dynamo warns of caches
    return make(codes, group, scales, gate)


def _make_plan(codes: Codes, group: int | None, scales: str, gate: Gate) -> Plan:
    if group not in codes.groups:
        raise ValueError(f"group must be one of {', '.join(map(str, codes.groups))}, got {group!r}")
    if scales not in _FORMS:
        raise ValueError(f"scales must be 'fp32', 'ue8m0' or 'packed', got {scales!r}")
    if gate.layout not in ("halves", "interleaved"):
        raise ValueError(f"layout must be 'halves' or 'interleaved', got {gate.layout!r}")
    limit = math.inf if gate.limit is None else gate.limit
    gate_numbers = (fp32_bits("limit", limit), fp32_bits("alpha", gate.alpha), fp32_bits("up_shift", gate.up_shift))
    if not limit > 0:
        raise ValueError(f"limit must be None or positive, got {gate.limit}")
    share = "row" if group is None else "k_group"
    interleaved = int(gate.layout == "interleaved" and gate.name != "")
    numbers = (codes.element, _SHARES[share], group or 0, _FORMS[scales], _GATES[gate.name], interleaved)
    return Plan(numbers, gate_numbers, group, scales == "packed", 2 if gate.name else 1)


_known_plan = functools.lru_cache(maxsize=256, typed=True)(_make_plan)


def quantized(
    x: torch.Tensor,
    codes: Codes,
    plan: Plan,
    out: Out,
    grouping: Grouping,
    row_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of x, in `out` where there is one."""
    if not isinstance(x, torch.Tensor) or x.dim() < 2:
        raise ValueError(f"x must be a tensor [.., M, K], got {x.shape if isinstance(x, torch.Tensor) else x!r}")
    if x.dim() > 3:
        return _of_three_dimensions(x, codes, plan, out, grouping, row_scale)
    layout, kind, expected_m = _grouping_numbers(grouping)
    if out is None:
        q, s = _results(x, codes, plan)
    else:
        q, s = _pair(out)
    _launch(x, layout, row_scale, s, q, None, (*plan.numbers, kind, expected_m, *plan.gate_numbers))
    if out is not None and not is_dynamo_compiling():
        torch.autograd.graph.increment_version(s)  # that of q the runtime moves
    return q, s


def _pair(out: Out) -> tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(out, (tuple, list)) or len(out) != 2 or not all(isinstance(t, torch.Tensor) for t in out):
        raise TypeError(f"out must be a pair of tensors (q, s), got {out!r}")
    return out[0], out[1]


def _grouping_numbers(grouping: Grouping) -> tuple[torch.Tensor | None, int, int]:
    if grouping is None:
        return None, _ALL, 0
    if isinstance(grouping, Contiguous):
        return grouping.layout, _PSUM if grouping.psum else _CONTIGUOUS, 0
    if isinstance(grouping, Masked):
        return grouping.counts, _MASKED, integer("expected_m", grouping.expected_m, smallest=0)
    raise TypeError(f"grouping must be Contiguous, Masked or None, got {grouping!r}")


def _results(x: torch.Tensor, codes: Codes, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    *lead, rows, columns = x.shape
    k = columns // plan.columns
    q = torch.empty((*lead, rows, k), dtype=codes.dtype, device=x.device)
    if plan.group is None:
        return q, torch.empty((*lead, rows), dtype=torch.float32, device=x.device)
    words = -(-k // plan.group)
    if plan.packed:
        words = -(-words // _SCALES_PER_WORD)
    # MN-major: the padding of the last column is memory too.
    dtype = torch.int32 if plan.packed else torch.float32
    padded = get_tma_aligned_size(rows, 4)
    s = torch.empty((*lead, words, padded), dtype=dtype, device=x.device).transpose(-1, -2)
    return q, s if padded == rows else s[..., :rows, :]


def _of_three_dimensions(
    x: torch.Tensor, codes: Codes, plan: Plan, out: Out, grouping: Grouping, row_scale: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
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

    results = None if out is None else [joined(name, t) for name, t in zip("qs", _pair(out), strict=True)]
    scale = None if row_scale is None else joined("row_scale", row_scale)
    q, s = quantized(joined("x", x), codes, plan, results, grouping, scale)
    if out is not None:
        return _pair(out)
    return q.unflatten(0, lead), s.unflatten(0, lead)


def _launch(
    x: torch.Tensor,
    layout: torch.Tensor | None,
    row_scale: torch.Tensor | None,
    s: torch.Tensor,
    q: torch.Tensor,
    zeros: torch.Tensor | None,
    options: tuple[int, ...],
) -> None:
    if is_dynamo_compiling():
        _operator(x, layout, row_scale, s, q, zeros, options)
        return
    try:
        if x.is_neg():
            raise TypeError("x has torch's negative bit, so its memory does not hold its values")
        C.quantize(x, layout, row_scale, s, q, zeros, options)
        return
    except Exception as error:
        failure = error
    tensors = [tensor for tensor in (x, layout, row_scale, s, q, zeros) if isinstance(tensor, torch.Tensor)]
    if operators.is_traced(tensors):
        _operator(x, layout, row_scale, s, q, zeros, options)
        return
    rejections = (no_memory("an argument", tensor, "a quantise kernel") for tensor in tensors)
    raise next(filter(None, rejections), failure.with_traceback(None))


def _launch_operator(*arguments: Any) -> None:
    _launch(*arguments)


_operator = operators.define_writer(
    "quantize(Tensor x, Tensor? layout, Tensor? row_scale, Tensor(a!) s, Tensor(b!) q, Tensor(c!)? zeros, "
    "int[] options) -> ()",
    _launch_operator,
)
