"""Dtypes that older torch lacks, so that no tensor has them there: float8_e8m0fnu (2.7), float4_e2m1fn_x2 (2.8)."""

import torch

Dtypes = tuple[torch.dtype, ...]

_E8M0 = getattr(torch, "float8_e8m0fnu", None)
_FP4_PAIR = getattr(torch, "float4_e2m1fn_x2", None)
# Of one dtype, or of none.
E8M0: Dtypes = () if _E8M0 is None else (_E8M0,)
FP4_PAIR: Dtypes = () if _FP4_PAIR is None else (_FP4_PAIR,)


def e8m0() -> torch.dtype:
    """Where bytes must be viewed as it."""
    if not E8M0:
        raise NotImplementedError(f"torch must be 2.7 or newer for scales that are exponents, got {torch.__version__}")
    return E8M0[0]
