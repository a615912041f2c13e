"""Products that are no y = x W^T: groups along K, batches, and the product before the norm."""

from __future__ import annotations

from typing import Any

import torch

import deep_gemm

from .. import batched, hyperconnections
from ..utils.math import cast_back_from_fp4, per_token_cast_to_fp4
from .case import Case, Wanted, byte_count, worst
from .operands import fp8_blocks, spread
from .products import _calc_diff

_BLOCK = 128
BATCHES = ("bhr,hdr->bhd", "bhd,hdr->bhr", "bhd,bhr->hdr")
BATCH_SUM = "bmk,bnk->mn"


def k_groups(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """GxMxNxK: each group has K."""
    if len(shape) != 4:
        raise ValueError(f"a shape of {name} must be GxMxNxK, got {'x'.join(map(str, shape))}")
    groups, m, n, k = shape
    kind, layout = name.split("_")[2], name.split("_")[4]
    function: Any = getattr(deep_gemm, name)
    sizes = torch.full((groups,), k, dtype=torch.int32, device=wanted.device)
    d = torch.full((groups, m, n), float("nan"), device=wanted.device)
    if kind == "bf16":
        a, b = (wanted.normal(groups * k, extent).bfloat16() for extent in (m, n))
        values = [x.double().view(groups, k, -1).transpose(1, 2) for x in (a, b)]
        arguments: tuple[Any, ...] = a, b
    elif kind == "fp4":
        codes = [
            [per_token_cast_to_fp4(wanted.normal(extent, k), True, 32) for _ in range(groups)] for extent in (m, n)
        ]
        values = [torch.stack([cast_back_from_fp4(*each, 32).double() for each in side]) for side in codes]
        arguments = tuple(
            (torch.cat([q.flatten() for q, _ in side]), torch.cat([s.T for _, s in side]).contiguous())
            for side in codes
        )
    else:
        made = [
            [fp8_blocks(wanted.normal(extent, k), (1, _BLOCK), wanted.blackwell) for _ in range(groups)]
            for extent in (m, n)
        ]
        values = [torch.stack([q.double() * spread(s, (1, _BLOCK), q.shape) for q, s in each]) for each in made]
        arguments = tuple(_flat(each, layout) for each in made)
    ks = [k] * groups
    return Case(
        name,
        shape,
        lambda: function(*arguments, d, ks, sizes, **({"recipe": (1, 1, 32)} if kind == "fp4" else {})),
        lambda: worst(_calc_diff(d[g], values[0][g] @ values[1][g].T) for g in range(groups)),
        flops=2 * groups * m * n * k,
        bytes=byte_count(*arguments, d),
    )


def _flat(parts: list[tuple[torch.Tensor, torch.Tensor]], layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Group after group: `tn` with K first."""
    data = [q.view(torch.uint8).T.contiguous() if layout == "tn" else q.view(torch.uint8).flatten() for q, _ in parts]
    return torch.cat(data).view(torch.float8_e4m3fn), torch.cat([s.T for _, s in parts]).contiguous()


def einsum(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    """BxHxDxR, or BxMxNxK of the sum over a batch."""
    expr = wanted.expr
    known = BATCHES if name == "fp8_einsum" else (*BATCHES, BATCH_SUM)
    if expr not in known:
        raise ValueError(f"expr must be one of {', '.join(known)}, got {expr!r}")
    letters = "bmnk" if expr == BATCH_SUM else "bhdr"
    if len(shape) != 4:
        form = "x".join(letters.upper())
        raise ValueError(f"a shape of {name} must be {form}, got {'x'.join(map(str, shape))}")
    extents = dict(zip(letters, shape, strict=True))
    first, second, out = expr.replace("->", ",").split(",")
    a, b = (wanted.normal(*(extents[letter] for letter in names)) for names in (first, second))
    d = torch.full([extents[letter] for letter in out], float("nan"), dtype=torch.bfloat16, device=wanted.device)
    torch_call = None
    if name == "einsum":
        given: tuple[Any, Any] = a.bfloat16(), b.bfloat16()
        values = [x.double() for x in given]
        torch_call = lambda: torch.einsum(expr, *given)  # noqa: E731
        function: Any = batched.einsum
    else:
        (summed,) = {letter for letter in first if letter in second and letter not in out}
        blocks_a = tuple(_BLOCK if letter == summed else 1 for letter in first)
        blocks_b = tuple(_BLOCK if letter in (summed, out[-1]) else 1 for letter in second)
        given = tuple(fp8_blocks(x, blocks, wanted.blackwell) for x, blocks in ((a, blocks_a), (b, blocks_b)))  # type: ignore[assignment]
        values = [
            q.double() * spread(s, blocks, q.shape) for (q, s), blocks in zip(given, (blocks_a, blocks_b), strict=True)
        ]
        function = batched.fp8_einsum
    flops = 2
    for extent in shape:
        flops *= extent
    return Case(
        name,
        shape,
        lambda: function(expr, *given, d),
        lambda: _calc_diff(d, torch.einsum(expr, *values)),
        flops=flops,
        bytes=byte_count(*given, d),
        torch_call=torch_call,
        torch_is="einsum",
    )


def prenorm(name: str, shape: tuple[int, ...], wanted: Wanted) -> Case:
    if len(shape) != 3:
        raise ValueError(f"a shape of {name} must be MxNxK, got {'x'.join(map(str, shape))}")
    m, n, k = shape
    a, b = wanted.normal(m, k).bfloat16(), wanted.normal(n, k)
    d, squares = (torch.full(extents, float("nan"), device=wanted.device) for extents in ((m, n), (m,)))

    def check() -> float:
        x = a.double()
        return worst([_calc_diff(d, x @ b.double().T), _calc_diff(squares, x.square().sum(1))])

    return Case(
        name,
        shape,
        lambda: hyperconnections.tf32_hc_prenorm_gemm(a, b, d, squares),
        check,
        flops=2 * m * n * k,
        bytes=byte_count(a, b, d, squares),
        torch_call=lambda: torch.matmul(a.float(), b.T),
        torch_is="matmul in FP32",
    )
