"""What happens to a complete sum before it is stored: the `epilogue=` of the products.

    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout, epilogue=deep_gemm.epilogue.Alpha(0.5))

`None` and `Identity()` store the sum as it is, `Alpha` multiplies it, `RowScale` each row of D, `Chain` joins the two.
`FP8CastWithClamp` and `BF16StochasticRounding`, which the public API has too, are refused by every product for now,
with a NotImplementedError and before anything is launched.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from ._numbers import fp32_bits
from ._output import Output

__all__ = ["Alpha", "BF16StochasticRounding", "Chain", "Epilogue", "FP8CastWithClamp", "Identity", "RowScale"]


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


class RowScale(Epilogue):
    """Each row of D times a number of its own, in FP32 before rounding: the weight that a router gave a token's expert.

    It multiplies all of the row, C and the bias too; rows of padding become zero all the same.

    Args:
        weights: float32 `[M]` of dense and contiguous products (of rows of padding it may hold anything), `[G, max_m]`
            of masked ones, on `a`'s device, any strides. The kernel reads them, so they may change between replays.

    Taken where D is no integer by dense products and experts of FP8, BF16, FP16, FP4 and FP8 with FP4 weights; not by
    batched products, nor by groups of K.
    """

    def __init__(self, weights: torch.Tensor) -> None:
        if not isinstance(weights, torch.Tensor):
            raise TypeError(f"weights must be a tensor, got {weights!r}")
        self.weights = weights


class Chain(Epilogue):
    """Several, in this order: `Chain(Alpha(0.5), RowScale(weights))`. Of each kind there is at most one."""

    def __init__(self, *steps: Epilogue) -> None:
        self.steps = steps
        kinds = [type(step) for step in steps if type(step) is not Identity]
        if kinds not in ([], [Alpha], [RowScale], [Alpha, RowScale]):
            names = ", ".join(type(step).__name__ for step in steps)
            raise ValueError(f"steps must be Alpha, RowScale, each at most once and in this order, got {names}")

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.steps))})"


def steps_of(
    alpha: float | torch.Tensor | None, epilogue: Epilogue | None
) -> tuple[float | torch.Tensor | None, torch.Tensor | None]:
    """What a call's `alpha` and `epilogue` say: the factor of complete sums, numbers of rows. Others are refused."""
    if epilogue is None:
        return alpha, None
    if alpha is not None:
        raise ValueError(f"alpha must be None where there is an epilogue, got alpha={alpha!r} and {epilogue!r}")
    factor, weights = None, None
    for step in epilogue.steps if isinstance(epilogue, Chain) else (epilogue,):
        if isinstance(step, Alpha):
            factor = step.alpha
        elif isinstance(step, RowScale):
            weights = step.weights
        elif type(step) is not Identity:
            _refuse(step)
    return factor, weights


def step_arguments(alpha: float | None, epilogue: Epilogue | None) -> tuple[int | None, torch.Tensor | None]:
    """The same as the runtime takes it, where alpha is no tensor: the bits of an FP32 number, and a tensor."""
    factor, weights = steps_of(alpha, epilogue)
    if isinstance(factor, torch.Tensor):
        raise TypeError(f"alpha must be a number here, got a {factor.ndim}-dimensional tensor")
    return None if factor is None else fp32_bits("alpha", factor), weights


def alpha_bits(epilogue: Epilogue | None) -> int | None:
    """Of calls that take no RowScale."""
    bits, weights = step_arguments(None, epilogue)
    if weights is not None:
        raise ValueError("epilogue must have no RowScale where products are batched or grouped along K")
    return bits


def scale_rows(d: Output, weights: torch.Tensor | None) -> None:
    """What RowScale does where there is nothing to multiply, so that D is C."""
    if weights is not None and isinstance(d, torch.Tensor):
        d.mul_(weights.unsqueeze(-1))


def _refuse(epilogue: object) -> NoReturn:
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue must be an Epilogue of deep_gemm.epilogue or None, got {epilogue!r}")
    raise NotImplementedError(f"epilogue must be Identity, Alpha or RowScale for now, got {type(epilogue).__name__}")
