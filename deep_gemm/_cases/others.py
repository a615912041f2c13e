"""Index logits, quantise kernels, layouts of scales, routing."""

from __future__ import annotations

from typing import Any

import torch

from .. import layout, logits, quantize, routing, utils
from ..epilogue import SwiGLU
from ..utils.math import cast_back_from_fp4, unpack_ue8m0_from_int
from .case import Case, Wanted, byte_count
from .products import _calc_diff

_KEYS_OF_BLOCK = 64
_QUANTISED = 2e-3  # calc_diff of E4M3 codes and what they stand for is about 7e-4


def _require(name: str, shape: tuple[int, ...], form: str) -> None:
    if len(shape) != len(form.split("x")):
        raise ValueError(f"a shape of {name} must be {form}, got {'x'.join(map(str, shape))}")


def index_logits(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """Rows (or requests, paged), keys, heads, D; every row sees all keys."""
    _require(name, shape, "ROWSxKEYSxHEADSxD")
    rows, keys, heads, d = shape
    paged = "paged" in name
    q = wanted.normal(rows, heads, d).to(torch.float8_e4m3fn)
    k = wanted.normal(rows * keys if paged else keys, d).to(torch.float8_e4m3fn)
    scales = wanted.normal(k.shape[0]).abs() + 0.5
    weights = wanted.normal(rows, heads)
    result: list[torch.Tensor] = []
    function: Any = getattr(logits, name)
    newer = (name.startswith("fp8_fp4"), paged)
    if paged:
        blocks = -(-keys // _KEYS_OF_BLOCK)
        cache, table = _cache(k.view(rows, keys, d), scales.view(rows, keys), blocks)
        lengths = torch.full((rows, 1), keys, dtype=torch.int32, device=wanted.device)
        given: tuple[Any, ...] = (q[:, None], cache, weights, lengths, table, None, keys)
        given = ((given[0], None), *given[1:], None) if newer[0] else given
    else:
        first = torch.zeros(rows, dtype=torch.int32, device=wanted.device)
        given = (q, (k, scales), weights, first, torch.full_like(first, keys))
        given = ((q, None), *given[1:], keys) if newer[0] else given

    def call() -> None:
        result[:] = [function(*given)]

    def check() -> float:
        wanted_rows = []
        for row in range(rows):
            mine = slice(row * keys, (row + 1) * keys) if paged else slice(None)
            score = (k[mine].double() @ q[row].double().T).relu() @ weights[row].double()
            wanted_rows.append(score * scales[mine].double())
        return _calc_diff(result[0][:, :keys], torch.stack(wanted_rows))

    return Case(
        name,
        shape,
        call,
        check,
        flops=2 * rows * keys * heads * d,
        bytes=byte_count(q, k, scales, weights) + 4 * rows * keys,
    )


def _cache(k: torch.Tensor, scales: torch.Tensor, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys by blocks, a request's behind each other, and the table that says so."""
    requests, keys, d = k.shape
    room = blocks * _KEYS_OF_BLOCK
    codes = k.new_zeros((requests, room, d), dtype=torch.uint8)
    codes[:, :keys] = k.view(torch.uint8)
    each = scales.new_zeros((requests, room))
    each[:, :keys] = scales
    codes = codes.view(-1, _KEYS_OF_BLOCK * d)
    words = each.view(-1, _KEYS_OF_BLOCK).view(torch.uint8)
    cache = torch.cat([codes, words], 1).contiguous().view(-1, _KEYS_OF_BLOCK, 1, d + 4)
    table = torch.arange(requests * blocks, dtype=torch.int32, device=k.device).view(requests, blocks)
    return cache, table


def quantised(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """MxK; of gated ones MxK for gates and ups of K / 2 each."""
    _require(name, shape, "MxK")
    x = wanted.normal(*shape).bfloat16()
    kind = name.removeprefix("quantize.")
    function: Any = getattr(quantize, kind)
    is_gated = kind.startswith(("gated", "swiglu"))
    gate = (SwiGLU(),) if kind.startswith("gated") else ()  # swiglu_fp8 and swiglu_int8 make theirs
    result: list[Any] = []

    def call() -> None:
        result[:] = function(x, *gate)

    def check() -> float:
        if not is_gated:  # to the bit what torch makes of the same numbers
            given, made = [part.cpu() for part in result], _by_torch(kind, x.cpu())
            same = all(torch.equal(_bytes(got), _bytes(part)) for got, part in zip(given, made, strict=True))
            return 0.0 if same else float("inf")
        gate, up = x.double().chunk(2, 1)
        q, s = result
        spread = s.double()[:, None] if s.dim() == 1 else s.double().repeat_interleave(128, 1)[:, : q.shape[1]]
        return _calc_diff(q.double() * spread, torch.nn.functional.silu(gate) * up)

    codes = x.numel() // (2 if is_gated or "fp4" in kind else 1)
    return Case(name, shape, call, check, flops=0, bytes=x.nbytes + codes, limit=_QUANTISED)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.view(1).view(torch.uint8)


def _by_torch(kind: str, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    makers: dict[str, Any] = {
        "fp8": lambda: utils.per_token_cast_to_fp8(x, False),
        "fp8_blocks": lambda: utils.per_block_cast_to_fp8(x, False),
        "int8": lambda: utils.per_token_cast_to_int8(x),
        "mxfp4": lambda: utils.per_token_cast_to_fp4(x, True, 32, use_packed_ue8m0=True),
        "nvfp4": lambda: utils.per_token_cast_to_nvfp4(x),
    }
    return tuple(makers[kind]())


def scale_layout(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """Scales [M, K]."""
    _require(name, shape, "MxK")
    scales = torch.exp2(wanted.integers(-3, 4, *shape).float())
    function: Any = getattr(layout, name)
    result: list[torch.Tensor] = []

    def call() -> None:
        result[:] = [function(scales)]

    def check() -> float:
        made = result[0]
        values = unpack_ue8m0_from_int(made)[:, : shape[1]] if made.dtype == torch.int32 else made
        return _calc_diff(values, scales)

    written = scales.nbytes // (4 if "packed" in name else 1)
    return Case(name, shape, call, check, flops=0, bytes=scales.nbytes + written)


def routed(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """Tokens, experts, choices of a token, and K of `gather` and `combine`."""
    moves = name != "routing.route"
    _require(name, shape, "TOKENSxEXPERTSxCHOICESxK" if moves else "TOKENSxEXPERTSxCHOICES")
    count, experts, choices = shape[:3]
    ids = torch.stack([torch.randperm(experts, device=wanted.device)[:choices] for _ in range(count)])
    made = routing.route(ids, experts)
    result: list[Any] = []
    if not moves:

        def call() -> None:
            result[:] = [routing.route(ids, experts)]

        def check() -> float:
            (found,) = result
            slots = torch.arange(count * choices, device=wanted.device).view(count, choices)
            right = torch.equal(found.source[found.row_of.long()].long(), slots)
            right &= torch.equal(found.indices[found.row_of.long()].long(), ids)
            right &= torch.equal(found.counts.long(), ids.flatten().bincount(minlength=experts))
            return 0.0 if right else float("inf")

        return Case(name, shape, call, check, flops=0, bytes=ids.nbytes + byte_count(made.row_of, made.source))
    x = wanted.normal(count, shape[3]).bfloat16()
    rows = routing.gather(x, made, clear=True)
    assert isinstance(rows, torch.Tensor)
    weights = wanted.normal(count, choices)
    combines = name == "routing.combine"

    def move() -> None:
        result[:] = [routing.combine(rows, made, weights) if combines else routing.gather(x, made)]

    def check_move() -> float:
        if combines:
            return _calc_diff(result[0], x.double() * weights.double().sum(1, keepdim=True))
        return _calc_diff(result[0][made.row_of.long()], x[:, None].expand(-1, choices, -1))

    moved = count * choices * shape[3] * 2 + x.nbytes
    return Case(name, shape, move, check_move, flops=0, bytes=moved)


def cast(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """`deep_gemm.utils`' casts, of FP32 [M, K]."""
    _require(name, shape, "MxK")
    x = wanted.normal(*shape)
    function: Any = getattr(utils, name)
    more = () if "int8" in name or "nvfp4" in name else (True,) if "fp4" not in name else (True, 32)
    result: list[Any] = []

    def call() -> None:
        result[:] = function(x, *more)

    def check() -> float:
        q, s = result[:2]
        if "fp4" in name:
            spread = result[2] * s.float() if "nvfp4" in name else s
            return _calc_diff(cast_back_from_fp4(q, spread, 16 if "nvfp4" in name else 32), x)
        rows = -(-x.shape[0] // s.shape[0])
        each = s.view(s.shape[0], -1).double().repeat_interleave(rows, 0)[: x.shape[0]]
        return _calc_diff(q.double() * each.repeat_interleave(-(-x.shape[1] // each.shape[1]), 1)[:, : x.shape[1]], x)

    limit = 2e-2 if "fp4" in name else _QUANTISED
    return Case(name, shape, call, check, flops=0, bytes=x.nbytes + x.numel(), limit=limit)
