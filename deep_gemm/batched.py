"""Products of batches of matrices, named by an einsum expression, each in one launch.

See `deep_gemm.fp8` for what the functions have in common.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from ._call import run
from ._extension import C
from ._output import Output, write_empty
from ._product import product
from .epilogue import NO_STEPS, Epilogue, FP8CastWithClamp, StepFields, step_arguments
from .fp8 import Scaled

__all__ = ["einsum", "fp8_einsum"]


class _Forms(dict[str, int]):
    """From an expression to the number that stands for it."""

    def __missing__(self, expr: str) -> NoReturn:
        known = ", ".join(map(repr, self))
        raise ValueError(f"expr must be one of {known}, got {expr!r}")


_FORMS = _Forms((str(expr), number) for number, expr in enumerate(C.batched_forms().split()))
_FORMS_EACH = _Forms((expr, number) for expr, number in _FORMS.items() if expr != "bmk,bnk->mn")


@product()
def einsum(
    expr: str,
    a: torch.Tensor,
    b: torch.Tensor,
    d: Output,
    c: torch.Tensor | None = None,
    use_cublaslt: bool | Epilogue | None = False,
    epilogue: Epilogue | None = None,
) -> None:
    """`d = c + torch.einsum(expr, a, b)` of BF16 operands, summed in FP32.

    Args:
        expr: one of 'bhr,hdr->bhd', 'bhd,hdr->bhr' and 'bhd,bhr->hdr' (a product for each h), or 'bmk,bnk->mn' (the sum
            over b).
        a, b: bfloat16 with the dimensions that `expr` names, in any strides of which the two of a product's matrix have
            one contiguous. Lines at multiples of 16 bytes are read in place, others copied first.
        d: bfloat16, float32 or float16, its last dimension contiguous. Written.
        c: added in FP32 before rounding; `d`'s shape and dtype, and may be `d` itself.
        use_cublaslt: through torch instead, as a baseline. DeepGEMM from 2.8 on has epilogue at this place, so an
            Epilogue or None here is that.
        epilogue: as for `fp8_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    if isinstance(use_cublaslt, Epilogue):
        return einsum(expr, a, b, d, c, epilogue=use_cublaslt)
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    if use_cublaslt:
        if any(field is not None for field in steps):
            raise ValueError("use_cublaslt must be False where there is an epilogue")
        if not isinstance(d, torch.Tensor):
            raise ValueError("use_cublaslt must be False where d has scales")
        _through_torch(expr, a, b, d, c)
    else:
        _run(a, None, b, None, d, c, _FORMS[expr], None, steps)


@product()
def fp8_einsum(
    expr: str,
    a: Scaled,
    b: Scaled,
    d: Output,
    c: torch.Tensor | None = None,
    recipe: tuple[int, int, int] = (1, 128, 128),
    epilogue: Epilogue | None = None,
) -> None:
    """`d = c + torch.einsum(expr, a, b)` of FP8 operands with scales.

    Args:
        expr: one of 'bhr,hdr->bhd', 'bhd,hdr->bhr' and 'bhd,bhr->hdr': a product for each h.
        a, b: float8_e4m3fn with the dimensions that `expr` names, each with scales of as many dimensions, of any of the
            kinds that `deep_gemm.fp8` names. Of `a`, the dimension that is summed over has a scale for each 128; of
            `b` as well, and where the recipe says so, the one that is `d`'s last. Operands in which the summed
            dimension is not contiguous are read in place on SM100, and transposed into a workspace first elsewhere,
            where tensor cores read FP8 along it only.
        d: bfloat16, float32 or float16, its last dimension contiguous; or a pair (q, s), as of `fp8_gemm_nt`, s with
            q's dimensions and the first one contiguous. Or with s `[b, h * n / 128]`, as DeepGEMM has it: then q is
            cast from the result rounded to BF16 (`FP8CastWithClamp`). Written.
        c: added in FP32 before rounding; `d`'s shape and dtype, and may be `d` itself. (FP32 in place is added by the
            L2, which flushes subnormal numbers to zero.)
        recipe: how many of `a`'s rows, of `b`'s rows and of the summed dimension share a scale: (1, 128, 128) or
            (1, 1, 128), which packed scales of `b` need. The last one may be 32, on SM100 not after
            `set_fp32_scales(True)`.
        epilogue: as for `fp8_gemm_nt`.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
    if isinstance(d, (tuple, list)) and len(d) == 2 and d[0].ndim == 3 and d[1].ndim == 2:
        if epilogue is not None:
            raise ValueError("epilogue must be None where d is a pair of DeepGEMM's form")
        return fp8_einsum(expr, a, b, d[0], c, recipe, FP8CastWithClamp(d[1]))
    (a_data, a_scales), (b_data, b_scales) = a, b
    steps = NO_STEPS if epilogue is None else step_arguments(None, epilogue)
    _run(a_data, a_scales, b_data, b_scales, d, c, _FORMS_EACH[expr], recipe, steps)


def _run(
    a: torch.Tensor,
    a_scales: torch.Tensor | None,
    b: torch.Tensor,
    b_scales: torch.Tensor | None,
    d: Output,
    c: torch.Tensor | None,
    form: int,
    recipe: tuple[int, int, int] | None,
    steps: StepFields,
) -> None:
    alpha_bits, row_scale, gate = steps
    if not run(
        a=a,
        a_scales=a_scales,
        b=b,
        b_scales=b_scales,
        d=d,
        c=c,
        batched_form=form,
        recipe=recipe,
        alpha_bits=alpha_bits,
        row_scale=row_scale,
        gate=gate,
    ):
        write_empty(d, c, steps)


def _through_torch(expr: str, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None) -> None:
    same_dtype = a.dtype == d.dtype
    result = torch.einsum(expr, a if same_dtype else a.to(d.dtype), b if same_dtype else b.to(d.dtype))
    if c is None:
        d.copy_(result)
    else:
        torch.add(result, c, out=d)
