"""What happens to a complete sum before it is stored: the `epilogue=` of the products.

    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout, epilogue=deep_gemm.epilogue.Alpha(0.5))

`None` and `Identity()` store the sum as it is, `Alpha` multiplies it, `SwiGLU` and `GeGLU` make one column of D of two
of the product, `RowScale` multiplies each row of D, `Chain` joins them.
`FP8CastWithClamp` and `BF16StochasticRounding`, which the public API has too, are refused by every product for now,
with a NotImplementedError and before anything is launched.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import torch

from ._gates import Gate, gate_record
from ._numbers import fp32_bits
from ._output import Output

__all__ = [
    "Alpha",
    "BF16StochasticRounding",
    "Chain",
    "Epilogue",
    "FP8CastWithClamp",
    "GeGLU",
    "Identity",
    "RowScale",
    "SwiGLU",
]


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


class _Gated(Epilogue):
    record: Gate


class SwiGLU(_Gated):
    """D has N/2 columns, `gate * sigmoid(alpha * gate) * (up + up_shift)` of the N columns of the product.

    `C + alpha * (A @ B)` comes first, C being `[M, N]`, and all of it is FP32 up to the one rounding to D. Weights lie
    as checkpoints have them; no call permutes or copies them.

    Args:
        limit: before the activation, gates become at most this, and ups at most so far from 0. None: no limit.
        alpha: within the sigmoid.
        up_shift: what is added to ups.
        layout: where the rows of B are: 'halves', N/2 of gates and then N/2 of ups; or 'interleaved', a gate and its
            up in turn.

    gpt-oss has `SwiGLU(limit=7.0, alpha=1.702, up_shift=1.0, layout='interleaved')`, DeepSeek-V4 `SwiGLU(limit=10.0)`.

    Taken by dense products and experts of BF16, FP16 and FP8, beside packed weights where `pack_weights` was told this
    layout as `gate_up` (bias and C lie as rows did before). B must have K contiguous, and N must be a multiple of 16;
    in halves, with FP32 scales of 128x128 blocks of B, N/2 one of 128. Others refuse it. On SM90 `d` may be a
    pair `(q, s)`: what the activation makes is quantised.
    """

    def __init__(
        self, limit: float | None = None, alpha: float = 1.0, up_shift: float = 0.0, layout: str = "halves"
    ) -> None:
        self.record = gate_record("swiglu", layout, limit, alpha, up_shift)
        self.limit, self.alpha, self.up_shift, self.layout = limit, alpha, up_shift, layout

    def __repr__(self) -> str:
        return f"SwiGLU(limit={self.limit}, alpha={self.alpha}, up_shift={self.up_shift}, layout={self.layout!r})"


class GeGLU(_Gated):
    """D has N/2 columns, `GELU(gate) * up`. Otherwise as `SwiGLU`.

    Args:
        layout: as there.
        approximate: of GELU: 'tanh', or 'none' for that of erf.
    """

    def __init__(self, layout: str = "halves", approximate: str = "tanh") -> None:
        if approximate not in ("tanh", "none"):
            raise ValueError(f"approximate must be 'tanh' or 'none', got {approximate!r}")
        self.record = gate_record("geglu_tanh" if approximate == "tanh" else "geglu_erf", layout)
        self.layout, self.approximate = layout, approximate

    def __repr__(self) -> str:
        return f"GeGLU(layout={self.layout!r}, approximate={self.approximate!r})"


class _RecordedGate(_Gated):
    """As operators of torch hand it on."""

    def __init__(self, record: Gate) -> None:
        self.record = record


class Chain(Epilogue):
    """Several, in this order: `Chain(Alpha(0.5), SwiGLU(), RowScale(weights))`. Of each kind there is at most one."""

    def __init__(self, *steps: Epilogue) -> None:
        self.steps = steps
        order = (Alpha, _Gated, RowScale)
        places = [
            next((place for place, kind in enumerate(order) if isinstance(step, kind)), -1)
            for step in steps
            if type(step) is not Identity
        ]
        if -1 in places or places != sorted(set(places)):
            names = ", ".join(type(step).__name__ for step in steps)
            raise ValueError(
                f"steps must be Alpha, SwiGLU or GeGLU, RowScale, each at most once and in this order, got {names}"
            )

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.steps))})"


class Steps(NamedTuple):
    """What a call's `alpha` and `epilogue` say: the factor of complete sums, a gated activation, numbers of rows."""

    factor: float | torch.Tensor | None = None
    weights: torch.Tensor | None = None
    gate: Gate | None = None


def steps_of(alpha: float | torch.Tensor | None, epilogue: Epilogue | None) -> Steps:
    """Others are refused."""
    if epilogue is None:
        return Steps(alpha)
    if alpha is not None:
        raise ValueError(f"alpha must be None where there is an epilogue, got alpha={alpha!r} and {epilogue!r}")
    factor, weights, gate = None, None, None
    for step in epilogue.steps if isinstance(epilogue, Chain) else (epilogue,):
        if isinstance(step, Alpha):
            factor = step.alpha
        elif isinstance(step, RowScale):
            weights = step.weights
        elif isinstance(step, _Gated):
            gate = step.record
        elif type(step) is not Identity:
            _refuse(step)
    return Steps(factor, weights, gate)


def step_arguments(
    alpha: float | None, epilogue: Epilogue | None
) -> tuple[int | None, torch.Tensor | None, Gate | None]:
    """The same as the runtime takes it, where alpha is no tensor: the bits of an FP32 number, a tensor, a record."""
    factor, weights, gate = steps_of(alpha, epilogue)
    if isinstance(factor, torch.Tensor):
        raise TypeError(f"alpha must be a number here, got a {factor.ndim}-dimensional tensor")
    return None if factor is None else fp32_bits("alpha", factor), weights, gate


def ungated_arguments(alpha: float | None, epilogue: Epilogue | None) -> tuple[int | None, torch.Tensor | None]:
    """Of calls that take no gated activation."""
    bits, weights, gate = step_arguments(alpha, epilogue)
    refuse_gate(gate)
    return bits, weights


def refuse_gate(gate: Gate | None) -> None:
    if gate is not None:
        raise ValueError(
            "epilogue must have no SwiGLU or GeGLU yet beside packed or FP4 weights, or where products are batched or "
            "grouped along K: apply it to d afterwards"
        )


def alpha_bits(epilogue: Epilogue | None) -> int | None:
    """Of calls that take Alpha only."""
    bits, weights = ungated_arguments(None, epilogue)
    if weights is not None:
        raise ValueError("epilogue must have no RowScale where products are batched or grouped along K")
    return bits


def scale_rows(d: Output, weights: torch.Tensor | None) -> None:
    """What RowScale does where there is nothing to multiply, so that D is C."""
    if weights is not None and isinstance(d, torch.Tensor):
        d.mul_(weights.unsqueeze(-1))


def epilogue_of(factor: float | None, weights: torch.Tensor | None, gate: list[int] | None) -> Epilogue | None:
    """The inverse of `steps_of`, for operators of torch."""
    steps: list[Epilogue] = [] if factor is None else [Alpha(factor)]
    if gate is not None:
        steps.append(_RecordedGate(tuple(gate)))
    if weights is not None:
        steps.append(RowScale(weights))
    return Chain(*steps) if steps else None


def _refuse(epilogue: object) -> NoReturn:
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue must be an Epilogue of deep_gemm.epilogue or None, got {epilogue!r}")
    raise NotImplementedError(
        f"epilogue must be Identity, Alpha, SwiGLU, GeGLU or RowScale for now, got {type(epilogue).__name__}"
    )
