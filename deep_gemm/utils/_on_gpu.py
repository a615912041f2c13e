"""Casts by the quantise kernels, where x is on a GPU and they have what is wanted: the bits of torch's formulas.

Each returns None where torch has to do it: on a CPU, where a gradient is asked for, where torch records a program
(which it fuses), of other groups. The kernels' modules are imported when they are needed: they need the utilities.
"""

from __future__ import annotations

import torch
from torch.compiler import is_dynamo_compiling

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_SMALLEST_CAPABILITY = 8
_SCALES_PER_WORD = 4


def serves(x: torch.Tensor) -> bool:
    """Whether a kernel can read x and somebody can run it."""
    if not x.is_cuda or is_dynamo_compiling() or x.numel() == 0 or x.dtype not in _DTYPES:
        return False
    return _has_kernels(x) and is_plain(x)


def _has_kernels(x: torch.Tensor) -> bool:
    from ..settings import get_compile_mode

    return torch.cuda.get_device_capability(x.device)[0] >= _SMALLEST_CAPABILITY and get_compile_mode() == 0


def is_plain(x: torch.Tensor) -> bool:
    """Whether x is memory that a kernel reads, K contiguous, and nothing but memory."""
    from ..operators import is_traced

    asks = torch.is_grad_enabled() and x.requires_grad
    return not asks and not x.is_neg() and x.stride(-1) == 1 and not is_traced([x])


def by_kernel(
    codes: str, x: torch.Tensor, group: int, use_ue8m0: bool, packed: bool = False
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """`x` `[m, n]` as `deep_gemm._quantize`'s `codes`; scales lie in rows, as torch's do."""
    if not serves(x):
        return None
    from .. import _quantize

    kind: _quantize.Codes = getattr(_quantize, codes)
    if group not in kind.groups:
        return None
    m, n = x.shape
    groups = -(-n // group)
    q = torch.empty((m, n // kind.per_byte), dtype=kind.dtype, device=x.device)
    if packed:
        s = torch.empty((m, -(-groups // _SCALES_PER_WORD)), dtype=torch.int32, device=x.device)
    else:
        rows = -(-m // _quantize.BLOCK) if kind.share == "block" else m
        s = torch.empty((rows, groups), dtype=torch.float32, device=x.device)
    form = "packed" if packed else "ue8m0" if use_ue8m0 else "fp32"
    _quantize.quantized(x, _quantize.plan_of(kind, group, form), (q, s))
    return q, s


def int8_by_kernel(x: torch.Tensor, symmetric: bool) -> tuple[torch.Tensor, ...] | None:
    """`x` `[.., n]`, a scale for each row."""
    if not serves(x):
        return None
    from .. import _quantize

    plan = _quantize.plan_of(_quantize.INT8, None, zeros=not symmetric)
    rows = x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2) if x.dim() > 3 else x
    results = _quantize.quantized(rows, plan)
    return tuple(result.view(x.shape if i == 0 else x.shape[:-1]) for i, result in enumerate(results))


def nvfp4_by_kernel(x: torch.Tensor, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """`x` `[m, n]` with the scale of all of it."""
    if not serves(x) or whole.numel() != 1:
        return None
    from .. import _quantize

    q, s = _quantize.quantized(x, _quantize.plan_of(_quantize.NVFP4, 16, "e4m3"), whole=whole)
    return q, s, whole
