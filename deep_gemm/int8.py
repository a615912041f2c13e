"""GEMM calls of 8-bit integers, dense and of experts.

`D = C + A @ B + bias`: products are added up exactly, in 32-bit integers, by the tensor cores, and scaled in FP32 when
the sum is complete. So a result does not depend on how the sum is cut up, and one scale for a row of A and one for a
row of B cost nothing on the way. Of Blackwell's SM100, B200 has such tensor cores and B300 has not. See
`deep_gemm.fp8` for what the functions have in common with those of FP8.
"""

from __future__ import annotations

from typing import Any

import torch

from ._call import INTEGERS, NT, Recipe, contiguous_fields, run, step_fields, write_empty_experts
from ._extension import C
from ._numbers import fp32_bits, integer
from ._output import Output, data_of, write_empty
from ._packed import zero_points
from ._product import layout as _layout
from ._product import product
from .epilogue import NO_STEPS, Epilogue, step_arguments
from .operators import stands_in

__all__ = ["int8_gemm_nt", "int8_row_sums", "m_grouped_int8_gemm_nt_contiguous", "m_grouped_int8_gemm_nt_masked"]

Quantised = torch.Tensor | tuple[torch.Tensor, torch.Tensor | float]
Tokens = Quantised | tuple[torch.Tensor, torch.Tensor | float, torch.Tensor | int]

_SMALLEST_K = 16

# Of any values the sum over so much of K is within s32, without zero points and with them; in whole K blocks of the
# kernels.
_EXACT_K = (2**31 - 1) // 128**2 // 128 * 128
_EXACT_ASYMMETRIC_K = (2**31 - 1) // (255 * 128) // 128 * 128


@product()
def int8_gemm_nt(
    a: Tokens,
    b: Quantised,
    d: Output,
    c: torch.Tensor | None = None,
    recipe: Recipe = None,
    compiled_dims: str = "nk",
    *,
    bias: torch.Tensor | None = None,
    b_sums: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """Dense INT8 GEMM: `d[m, n] = c[m, n] + float(sum_k a[m, k] b[n, k]) sfa[m] sfb[n] + bias[n]`.

    The sum is an exact integer. It is rounded to FP32, multiplied by a's scale, then by b's; bias and c are added, in
    this order. Each of these steps rounds to FP32, and d is the result, rounded once more where it has 16 bits. Where K
    is more than 131071, sums over 130944 of K each are exact; they are scaled, and added in FP32 in the order of K
    (through a workspace of D's shape, unless d is float32).

    Where a or b has scales for groups along K, the exact sum of each 128 of K is multiplied by those, and added up in
    FP32; scales that all of K shares are still applied at the end.

    Where a has zero points, its values are `sfa[m] (a[m, k] - zero[m])`: `zero[m] sum_k b[n, k]` is subtracted from the
    sum, in integers, before that is scaled. Sums are then exact up to K = 65793 (more K is split, as above), for zero
    points from -128 to 127. With scales of b for groups along K, the sum of b's values is FP32's. `b_sums` are these
    sums, as `int8_row_sums` makes them once for weights that stay. Without them a kernel reads b and adds up its rows
    in each call, into a workspace: the same bits, but it takes up to three times as long for few tokens.

    Args:
        a: int8 `[M, K]` with float32 scales: one for all (a Python number, or a tensor `[]` or `[1]`), one for each
            token, `[M]` or `[M, 1]` in any stride, or one for each token and 128 of K, `[M, ceil(K / 128)]` in any
            strides (MN-major with columns 16-byte aligned as they are, others copied first); and with zero points, if
            there is a third entry: one for all (a number, or an int32 tensor `[]` or `[1]`), or int32 `[M]`, `[M, 1]`
            (not beside scales for 128 of K). K contiguous, rows at multiples of 16 bytes (fastest: of 128): read
            in place; other rows, of which K must be a multiple of 16, are copied into a workspace first. M contiguous,
            any alignment: transposed into a workspace, because tensor cores read integers along K only.
        b: int8 `[N, K]`, likewise, with one scale for all or one for each channel, `[N]` or `[N, 1]`; or with those
            of `recipe`.
        d: bfloat16, float16 or float32 `[M, N]`, N contiguous, any row stride. Written. Or int32, if a and b are plain
            tensors without scales: then it is the sum itself, to which c is added. Such a sum wraps around where it
            leaves s32, which none does up to K = 131071.
        c: added; `d`'s shape and dtype, and may be `d` itself. (FP32 in place is added by the L2, which flushes
            subnormal numbers to zero.)
        recipe: rows of a, rows of b, and K that share a scale: (1, 128, 128) for b's `[ceil(N / 128), ceil(K / 128)]`,
            (1, 1, 128) for `[N, ceil(K / 128)]`. None: b's scales are for all of K. a's are told by their shape.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[N]`, added in FP32. None where d is int32.
        b_sums: `int8_row_sums(b[0])`, or `int8_row_sums(*b, recipe)` where there is a recipe: int32 or float32 `[N]`,
            N contiguous. They must be those of b as it is when the product runs. Read only where a has zero points,
            and not where K is split.
        epilogue: as for `fp8_gemm_nt`; None where d is int32. K is then at most what sums are exact for.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    if b_sums is not None or (len(a) == 3 and not isinstance(a, torch.Tensor)):
        how = step_fields(steps) | {"layout": NT[compiled_dims], "recipe": recipe}
        done = run(**_operands(a, b, b_sums, "b"), **how, d=d, c=c, bias=bias)
    else:
        a_data, a_scales, a_scale = _parts("a", a)
        b_data, b_scales, b_scale = _parts("b", b)
        alpha_bits, row_scale, gate = steps
        done = run(
            a=a_data,
            a_scales=a_scales,
            a_scale=a_scale,
            a_element=INTEGERS,
            b=b_data,
            b_scales=b_scales,
            b_scale=b_scale,
            d=d,
            c=c,
            bias=bias,
            layout=NT[compiled_dims],
            recipe=recipe,
            alpha_bits=alpha_bits,
            row_scale=row_scale,
            gate=gate,
        )
    if not done:
        _finish(a, b, d, c, compiled_dims, bias, epilogue)


@product()
def m_grouped_int8_gemm_nt_contiguous(
    a: Tokens,
    w: Quantised,
    d: Output,
    grouped_layout: torch.Tensor,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    recipe: Recipe = None,
    bias: torch.Tensor | None = None,
    w_sums: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`int8_gemm_nt` of experts whose rows follow each other: `d[rows of g] = a[rows of g] @ w[g].T + bias[g]`.

    Args:
        a: int8 `[M, K]` with scales, and perhaps zero points, as for `int8_gemm_nt`; rows of padding may hold anything.
        w: int8 `[G, N, K]`, likewise, with one scale for all or one for each channel, `[G, N]` or `[G, N, 1]`, or
            those of `recipe`, with `[G` in front. K is at most 131071 where all of it shares its scales.
        d: bfloat16, float16 or float32 `[M, N]`; or int32, if a and w are plain tensors without scales.
        grouped_layout, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout: as for
            `m_grouped_fp8_gemm_nt_contiguous`.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        recipe: as for `int8_gemm_nt`.
        bias: bfloat16, float16 or float32 `[G, N]`, added in FP32. None where d is int32.
        w_sums: as `b_sums` of `int8_gemm_nt`, `[G, N]`, N contiguous.
        epilogue: as for `m_grouped_fp8_gemm_nt_contiguous`; None where d is int32.

    Raises:
        ValueError, TypeError: as of `int8_gemm_nt`.
    """
    rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    operands = _operands(a, w, w_sums)
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    how = contiguous_fields(grouped_layout, rows) | step_fields(steps)
    if not run(**operands, **how, d=d, bias=bias, layout=NT[compiled_dims], recipe=recipe):
        if operands["b"].shape[0] == 0:
            write_empty_experts(d, grouped_layout, use_psum_layout, 0)
        else:
            m_grouped_int8_gemm_nt_contiguous(
                _with_k(a),
                _with_k(w),
                d,
                grouped_layout,
                compiled_dims,
                use_psum_layout,
                ensure_zero_padding,
                expected_m_for_psum_layout,
                bias=bias,
                epilogue=epilogue,
            )


@product()
def m_grouped_int8_gemm_nt_masked(
    a: Tokens,
    w: Quantised,
    d: Output,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    recipe: Recipe = None,
    bias: torch.Tensor | None = None,
    w_sums: torch.Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> None:
    """`int8_gemm_nt` of experts with matrices of their own: `d[g] = a[g] @ w[g].T + bias[g]`, of masked_m[g] rows.

    Args:
        a: int8 `[G, max_m, K]` with one scale for all, one for each row, `[G, max_m]` or `[G, max_m, 1]`, or one for
            each row and 128 of K; and perhaps with zero points, in the same shapes; rows from masked_m[g] on may hold
            anything.
        w, recipe, bias, w_sums: as for `m_grouped_int8_gemm_nt_contiguous`.
        d: bfloat16, float16 or float32 `[G, max_m, N]`; or int32, if a and w are plain tensors without scales.
        masked_m, expected_m: as for `m_grouped_fp8_gemm_nt_masked`.
        epilogue: as there; None where d is int32.
        compiled_dims: which of M, N, K are constants of the compiled kernel.

    Raises:
        ValueError, TypeError: as of `int8_gemm_nt`.
    """
    expected_m = integer("expected_m", expected_m)
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    how: dict[str, Any] = {"masked_m": masked_m, "expected_m": expected_m} | step_fields(steps)
    if not run(**_operands(a, w, w_sums), **how, d=d, bias=bias, layout=NT[compiled_dims], recipe=recipe):
        m_grouped_int8_gemm_nt_masked(
            _with_k(a), _with_k(w), d, masked_m, expected_m, compiled_dims, bias=bias, epilogue=epilogue
        )


@_layout
def int8_row_sums(b: torch.Tensor, scales: torch.Tensor | None = None, recipe: Recipe = None) -> torch.Tensor:
    """The sum of each row of weights, which zero points of activations are multiplied by.

    Make them once, when a model is loaded, and hand them to products as `b_sums` or `w_sums`. They have the bits that a
    product without them computes in each call. May be captured in a graph, which then follows weights that change.

    Args:
        b: int8 `[N, K]`, or `[G, N, K]` of experts, lying as it may lie for `int8_gemm_nt`.
        scales, recipe: those of b's groups of K or blocks, as `int8_gemm_nt` takes them, both or neither.

    Returns:
        int32 `[N]` or `[G, N]`, exact up to a K of 16777215; float32, times scales, where there are some.

    Raises:
        ValueError, TypeError: as of `int8_gemm_nt`.
    """
    sums = torch.empty(b.shape[:-1], dtype=torch.int32 if recipe is None else torch.float32, device=b.device)
    if b.numel() == 0:
        return sums.zero_()
    if not stands_in(b):
        C.int8_row_sums(b, scales, sums, recipe)
    return sums


def _operands(a: Any, w: Any, w_sums: torch.Tensor | None, name: str = "w") -> dict[str, Any]:
    """Fields of the record."""
    a_zeros, a_zero = zero_points(a)
    of_a = dict(zip(("a", "a_scales", "a_scale"), _parts("a", a), strict=True))
    of_w = dict(zip(("b", "b_scales", "b_scale"), _parts(name, w), strict=True))
    return {**of_a, **of_w, "a_zeros": a_zeros, "a_zero": a_zero, "a_element": INTEGERS, "b_sums": w_sums}


def _parts(name: str, operand: Any) -> tuple[torch.Tensor, torch.Tensor | None, int | None]:
    """An operand's data; its scales, if they are a tensor; and the bits of its scale, if it is a number."""
    if isinstance(operand, torch.Tensor):
        return operand, None, None
    data, scales = operand[0], operand[1]
    if isinstance(scales, (float, int)):
        return data, None, fp32_bits(f"{name}'s scale", scales)
    if scales.ndim == 0 and scales.device != data.device and scales.device.type == "cpu":
        return data, None, fp32_bits(f"{name}'s scale", scales.item())  # as torch's own operators mix them
    return data, scales, None


def _with_k(operand: Any) -> Any:
    """An operand of no K with some, which is zero: its products are the same."""
    data = operand if isinstance(operand, torch.Tensor) else operand[0]
    zeros = data.new_zeros((*data.shape[:-1], _SMALLEST_K))
    return zeros if isinstance(operand, torch.Tensor) else (zeros, 1.0)


def _finish(
    a: Any, b: Any, d: Output, c: torch.Tensor | None, compiled_dims: str, bias: Any, epilogue: Epilogue | None
) -> None:
    """What no kernel does: a K of nothing, or one that is too long for exact sums."""
    data_a, data_b = (x if isinstance(x, torch.Tensor) else x[0] for x in (a, b))
    k, step = data_a.shape[1], _EXACT_ASYMMETRIC_K if len(a) == 3 else _EXACT_K
    if k == 0 and bias is None and epilogue is None:
        write_empty(d, c)
    elif k == 0 and (epilogue is not None or not isinstance(d, torch.Tensor)):
        int8_gemm_nt(_with_k(a), _with_k(b), d, c, compiled_dims=compiled_dims, bias=bias, epilogue=epilogue)
    elif k == 0:
        assert bias is not None
        data_of(d).copy_(bias.float() if c is None else bias.float() + c)
    else:  # no epilogue but Identity: the runtime refuses others, and scales of d
        assert isinstance(d, torch.Tensor)
        total = d if d.dtype == torch.float32 else torch.empty(d.shape, dtype=torch.float32, device=d.device)
        added = c if c is None else c.float()
        for first in range(0, k, step):
            part = slice(first, first + step)
            part_a, part_b = (data_a[:, part], *a[1:]), (data_b[:, part], b[1])
            int8_gemm_nt(part_a, part_b, total, added, compiled_dims=compiled_dims, bias=bias)
            added, bias = total, None
        if total is not d:
            d.copy_(total)
