"""What happens to a complete sum before it is stored: the `epilogue=` of the products.

    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout, epilogue=deep_gemm.epilogue.Alpha(0.5))

`None` and `Identity()` store the sum as it is. Of the public classes, `FP8CastWithClamp` and `BF16StochasticRounding`
can be made, but no product takes them yet: it raises NotImplementedError before anything is launched.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from ._numbers import fp32_bits

__all__ = ["Alpha", "BF16StochasticRounding", "Epilogue", "FP8CastWithClamp", "Identity"]


class Epilogue:
    """The base of what `epilogue=` takes."""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({values})"


class Identity(Epilogue):
    """The sum as it is, which is what happens without an epilogue too."""


class Alpha(Epilogue):
    """`d = c + alpha * (a @ b)`: the complete sum is multiplied in FP32, before C is added and before rounding.

    Args:
        alpha: a number that FP32 can hold. It goes into a CUDA graph as it is when the call is captured.

    Taken by all dense, grouped, K-grouped and batched products that the public API of DeepGEMM has, but not by the sum
    over a batch, 'bmk,bnk->mn'.
    """

    def __init__(self, alpha: float) -> None:
        fp32_bits("alpha", alpha)
        self.alpha = alpha


class FP8CastWithClamp(Epilogue):
    """D in E4M3 with packed UE8M0 scales for 32 columns each, clamped first where `clamp_value` is given.

    Args:
        sfd: int32, the scales to write.
        clamp_value: values become at most this far from zero.
        clamped_count: uint32 of one element, which becomes the number of values that were further.

    Not taken by any product yet.
    """

    def __init__(
        self, sfd: torch.Tensor, clamp_value: float | None = None, clamped_count: torch.Tensor | None = None
    ) -> None:
        self.sfd, self.clamp_value, self.clamped_count = sfd, clamp_value, clamped_count


class BF16StochasticRounding(Epilogue):
    """D in BF16, rounded up or down at random by what the sum has beyond BF16. Not taken by any product yet."""


def alpha_of(alpha: float | torch.Tensor | None, epilogue: Epilogue | None) -> float | torch.Tensor | None:
    """The factor of complete sums that a call's `alpha` and `epilogue` say. Others than those are refused."""
    if epilogue is None:
        return alpha
    if alpha is not None:
        raise ValueError(f"alpha must be None where there is an epilogue, got alpha={alpha!r} and {epilogue!r}")
    if isinstance(epilogue, Alpha):
        return epilogue.alpha
    if type(epilogue) is Identity:
        return None
    _refuse(epilogue)


def alpha_bits(alpha: float | None, epilogue: Epilogue | None) -> int | None:
    """The same as the runtime takes it: the bits of an FP32 number."""
    factor = alpha_of(alpha, epilogue)
    if isinstance(factor, torch.Tensor):
        raise TypeError(f"alpha must be a number here, got {factor.ndim}-dimensional tensor")
    return None if factor is None else fp32_bits("alpha", factor)


def _refuse(epilogue: object) -> NoReturn:
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue must be an Epilogue of deep_gemm.epilogue or None, got {epilogue!r}")
    raise NotImplementedError(f"epilogue must be Identity or Alpha for now, got {type(epilogue).__name__}")
