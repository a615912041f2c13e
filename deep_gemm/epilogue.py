"""What happens to a complete sum before it is stored: the `epilogue=` of the products.

    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout, epilogue=deep_gemm.epilogue.Alpha(0.5))

`None` and `Identity()` store the sum as it is, `Alpha` multiplies it, a gated activation (`SwiGLU`, ...) makes one
column of D of two of the product, `RowScale` multiplies each row of D, `BF16StochasticRounding` rounds it at random,
`FP8CastWithClamp` quantises it, `Chain` joins them. ValueError or TypeError says what cannot be right: when a step is
made, or by the product that does not take it.
"""

from __future__ import annotations

import math
from typing import NamedTuple, NoReturn

import torch

from . import _gates
from ._compiled import constant_when_compiled
from ._gates import *  # noqa: F403  the gated activations, each of which is public
from ._gates import GATES, Gate, Gated, RecordedGate
from ._numbers import NO_FACTOR, ROUND_AT_RANDOM, fp32_bits
from ._output import Counted, Output
from ._step import Epilogue

__all__ = [
    "Alpha",
    "BF16StochasticRounding",
    "Chain",
    "Epilogue",
    "FP8CastWithClamp",
    "Identity",
    "RowScale",
]
__all__ += _gates.__all__


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
    """D in E4M3 with scales: the result is rounded to BF16 first, and bounded where `clamp_value` is given.

    So `q, sf` are `per_token_cast_to_fp8` of the clamped BF16 result, to the bit, where `d=(q, sf)` alone is that of
    the FP32 result. `d` is q, float8_e4m3fn.

    Args:
        sfd: the scales to write, as of `d=(q, sfd)`: int32 words of UE8M0 exponents for 32 columns, as DeepGEMM has
            them, or for 128 where that is another number of words; or float32 for 128. Of a batched `[b, h, n]` also
            `[b, h * n / 128]`, as the next product takes it.
        clamp_value: a number above 0, which is rounded to BF16. Values become at most this far from zero.
        clamped_count: uint32 (or int32) of one element, on `d`'s device, which becomes the number of values that were
            further, NaN among them; 0 without `clamp_value`.

    Taken by all products that take `d=(q, s)` and an epilogue, also as the last step of a `Chain`.
    """

    def __init__(
        self, sfd: torch.Tensor, clamp_value: float | None = None, clamped_count: torch.Tensor | None = None
    ) -> None:
        self.sfd, self.clamp_value, self.clamped_count = sfd, clamp_value, clamped_count


class _Bounded(Epilogue):
    """What is left of that where d is a pair: the bits of the bound as FP32."""

    def __init__(self, bits: int) -> None:
        self.bits = bits


class BF16StochasticRounding(Epilogue):
    """D in BF16, rounded up or down at random, up so much the likelier as the result is nearer there.

    There is no seed: the random bits are a hash of four neighbours of a row of the FP32 result and of their place in
    it, so that the same result gives the same bits, and equal rows equal ones. (As DeepGEMM's, to the bit.)

    Taken where `d` is bfloat16 and `c` is None by all products that take `Alpha`, and as the last step of a `Chain`.
    """


class RowScale(Epilogue):
    """Each row of D times a number of its own, in FP32 before rounding: the weight that a router gave a token's expert.

    It multiplies all of the row, C and the bias too; rows of padding become zero all the same.

    Args:
        weights: float32 `[M]` of dense and contiguous products (of rows of padding it may hold anything), `[G, max_m]`
            of masked ones, D's shape without its last dimension of `einsum`s, on `a`'s device, any strides. The kernel
            reads them, so they may change between replays.

    Taken where D is no integer by dense products, experts and batches of all operands; not where a batch is added up,
    nor by groups of K.
    """

    def __init__(self, weights: torch.Tensor) -> None:
        if not isinstance(weights, torch.Tensor):
            raise TypeError(f"weights must be a tensor, got {weights!r}")
        self.weights = weights


class Chain(Epilogue):
    """Several steps in this order: `Chain(Alpha(0.5), SwiGLU(), RowScale(weights))`. Of each kind at most one."""

    def __init__(self, *steps: Epilogue) -> None:
        self.steps = steps
        rounding = (BF16StochasticRounding, FP8CastWithClamp, _Bounded)
        order: tuple[type | tuple[type, ...], ...] = (Alpha, Gated, RowScale, rounding)
        places = [
            next((place for place, kind in enumerate(order) if isinstance(step, kind)), -1)
            for step in steps
            if type(step) is not Identity
        ]
        if -1 in places or places != sorted(set(places)):
            names = ", ".join(type(step).__name__ for step in steps)
            gates = " or ".join(gate.__name__ for gate in GATES)
            raise ValueError(
                f"steps must be Alpha, {gates}, RowScale, BF16StochasticRounding or FP8CastWithClamp, each at most "
                f"once and in this order, got {names}"
            )

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.steps))})"


class Steps(NamedTuple):
    """What a call's `alpha` and `epilogue` say: the factor of complete sums, a gated activation, numbers of rows; and
    how D is rounded: ROUND_AT_RANDOM, the bits of a bound, or as usual."""

    factor: float | torch.Tensor | None = None
    weights: torch.Tensor | None = None
    gate: Gate | None = None
    rounding: int | None = None


def steps_of(alpha: float | torch.Tensor | None, epilogue: Epilogue | None) -> Steps:
    """Others are refused."""
    if epilogue is None:
        return Steps(alpha)
    if alpha is not None:
        raise ValueError(f"alpha must be None where there is an epilogue, got alpha={alpha!r} and {epilogue!r}")
    factor, weights, gate, rounding = None, None, None, None
    for step in epilogue.steps if isinstance(epilogue, Chain) else (epilogue,):
        if isinstance(step, Alpha):
            factor = step.alpha
        elif isinstance(step, RowScale):
            weights = step.weights
        elif isinstance(step, Gated):
            gate = step.record
        elif isinstance(step, BF16StochasticRounding):
            rounding = ROUND_AT_RANDOM
        elif isinstance(step, _Bounded):
            rounding = step.bits
        elif type(step) is not Identity:
            _refuse(step)
    return Steps(factor, weights, gate, rounding)


StepFields = tuple[int | None, torch.Tensor | None, Gate | None]  # alpha_bits, row_scale, gate of a record
NO_STEPS: StepFields = (None, None, None)


def step_arguments(alpha: float | None, epilogue: Epilogue | None) -> StepFields:
    """The same as the runtime takes it, where alpha is no tensor: `sum_record`, a tensor, a record."""
    factor, weights, gate, rounding = steps_of(alpha, epilogue)
    if isinstance(factor, torch.Tensor):
        raise TypeError(f"alpha must be a number here, got a {factor.ndim}-dimensional tensor")
    return sum_record(factor, rounding), weights, gate


def sum_record(factor: float | None, rounding: int | None) -> int | None:
    """The bits of an FP32 number, or NO_FACTOR; above them how D is rounded. None where there is nothing to say."""
    if rounding is None:
        return None if factor is None else fp32_bits("alpha", factor)
    return rounding << 32 | (NO_FACTOR if factor is None else fp32_bits("alpha", factor))


def cast_of(epilogue: Epilogue) -> FP8CastWithClamp | None:
    """What a call does ahead of the others."""
    last = epilogue.steps[-1] if isinstance(epilogue, Chain) and epilogue.steps else epilogue
    return last if isinstance(last, FP8CastWithClamp) else None


def without_cast(epilogue: Epilogue, cast: FP8CastWithClamp) -> Epilogue:
    """The same for a d that comes with its scales."""
    bound = _Bounded(_bound_bits(cast.clamp_value))
    return Chain(*epilogue.steps[:-1], bound) if isinstance(epilogue, Chain) else bound


def cast_parts(cast: FP8CastWithClamp, d: object) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """What such a call writes: with a counter of its own, so that nothing is written where the call is refused."""
    if not isinstance(d, torch.Tensor):
        raise ValueError("d must be a tensor where FP8CastWithClamp has its scales")
    scales, count = cast.sfd, cast.clamped_count
    if not isinstance(scales, torch.Tensor):
        raise TypeError(f"sfd must be a tensor, got {scales!r}")
    if d.ndim == 3 and scales.ndim == 2:
        words = d.shape[2] // 128
        if d.shape[2] % 128 != 0 or scales.shape != (d.shape[0], d.shape[1] * words):
            raise ValueError(
                f"sfd must be [b, h * n / 128] of a d [b, h, n] with n a multiple of 128, got shapes {[*scales.shape]} "
                f"and {[*d.shape]}"
            )
        scales = scales.unflatten(1, (d.shape[1], words))
    if count is None:
        return d, scales, None
    if not isinstance(count, torch.Tensor) or count.dtype not in (torch.uint32, torch.int32) or count.numel() != 1:
        raise TypeError(f"clamped_count must be a uint32 tensor of one element, got {count!r}")
    if count.device != d.device:
        raise ValueError(f"clamped_count must be on {d.device} like d, but is on {count.device}")
    if cast.clamp_value is None:
        return d, scales, None
    return d, scales, torch.zeros(1, dtype=torch.int32, device=d.device)


def written_by(d: torch.Tensor, scales: torch.Tensor, count: torch.Tensor | None) -> Output | Counted:
    return (d, scales) if count is None else Counted((d, scales, count))


def store_count(cast: FP8CastWithClamp, found: torch.Tensor | None) -> None:
    if cast.clamped_count is None:
        return
    count = cast.clamped_count.view(torch.int32)
    if found is None:
        count.zero_()
    else:
        count.copy_(found.view(count.shape))


@constant_when_compiled
def _bound_bits(clamp_value: float | None) -> int:
    """Of a number rounded to BF16; infinite where there is none."""
    if clamp_value is None:
        return fp32_bits("clamp_value", math.inf)
    fp32_bits("clamp_value", clamp_value)
    bound = torch.tensor(clamp_value, dtype=torch.float32).bfloat16().item()
    if not 0 < bound < math.inf:
        raise ValueError(f"clamp_value must be None or a number above 0 that BF16 can hold, got {clamp_value!r}")
    return fp32_bits("clamp_value", bound)


def epilogue_of(
    factor: float | None, weights: torch.Tensor | None, gate: list[int] | None, rounding: int | None
) -> Epilogue | None:
    """The inverse of `steps_of`, for operators of torch."""
    steps: list[Epilogue] = [] if factor is None else [Alpha(factor)]
    if gate is not None:
        steps.append(RecordedGate(tuple(gate)))
    if weights is not None:
        steps.append(RowScale(weights))
    if rounding is not None:
        steps.append(BF16StochasticRounding() if rounding == ROUND_AT_RANDOM else _Bounded(rounding))
    return Chain(*steps) if steps else None


def _refuse(epilogue: object) -> NoReturn:
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue must be an Epilogue of deep_gemm.epilogue or None, got {epilogue!r}")
    raise TypeError(f"epilogue must be a class of deep_gemm.epilogue, got {type(epilogue).__name__}")
