"""The functions that multiply one kind of activations by packed weights: of one matrix, and of experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from ._output import Output
from ._packed import AcceptedWeights, Unpacked, run_contiguous, run_dense, run_masked, with_epilogue
from ._product import named, product
from .epilogue import Epilogue
from .weights import PackedWeights

A = TypeVar("A", contravariant=True)
W = TypeVar("W", contravariant=True)


class DenseProduct(Protocol[A, W]):
    def __call__(
        self,
        a: A,
        w: W,
        d: Output,
        c: torch.Tensor | None = None,
        compiled_dims: str = "nk",
        *,
        bias: torch.Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> None: ...


class ContiguousProduct(Protocol[A, W]):
    def __call__(
        self,
        a: A,
        w: W,
        d: Output,
        grouped_layout: torch.Tensor,
        compiled_dims: str = "nk",
        use_psum_layout: bool = False,
        ensure_zero_padding: bool = True,
        expected_m_for_psum_layout: int | None = None,
        *,
        bias: torch.Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> None: ...


class MaskedProduct(Protocol[A, W]):
    def __call__(
        self,
        a: A,
        w: W,
        d: Output,
        masked_m: torch.Tensor,
        expected_m: int,
        compiled_dims: str = "nk",
        *,
        bias: torch.Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> None: ...


_DENSE = """{summary}

    {sums}

    Args:
        a: {a}
        w: {weights} `[N, K]`, packed for '{activations}' activations{w_more}.
        d: bfloat16, float16 or float32 `[M, N]`, N contiguous, any row stride. Written.{d_more}
        c: added; `d`'s shape and dtype, and may be `d` itself.
        compiled_dims: which of M, N, K are constants of the compiled kernel.
        bias: bfloat16, float16 or float32 `[N]`, added in FP32.
        epilogue: None, or what happens to complete sums: `deep_gemm.epilogue`. A gated activation wants weights packed
            with its layout as `gate_up`; rows of C and bias lie as the checkpoint's do.

    Raises:
        ValueError, TypeError: an argument cannot be right; nothing was launched and nothing written.
        RuntimeError: the machine failed: no driver, a compile error, a launch error.
    """
_CONTIGUOUS = """`{stem}_gemm_nt` of experts whose rows follow each other: `d[rows of g] = a[rows of g] @ w[g].T`.

    Args:
        a: as for `{stem}_gemm_nt`; rows of padding may hold anything.
        w: {weights} `[G, N, K]`, packed for '{activations}' activations{pair}.
        d: bfloat16, float16 or float32 `[M, N]`.
        grouped_layout, use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout: as for
            `m_grouped_fp8_gemm_nt_contiguous`.
        bias: bfloat16, float16 or float32 `[G, N]`, added in FP32.
        compiled_dims, epilogue: as for `{stem}_gemm_nt`.

    Raises:
        ValueError, TypeError, RuntimeError: as of `{stem}_gemm_nt`.
    """
_MASKED = """`{stem}_gemm_nt` of experts with matrices of their own: `d[g] = a[g] @ w[g].T` for the first
    masked_m[g] rows.

    Args:
        a: as for `{stem}_gemm_nt`, `[G, max_m, ...]`; other rows may hold anything.
        w: {weights} `[G, N, K]`, packed for '{activations}' activations{pair}.
        d: bfloat16, float16 or float32 `[G, max_m, N]`.
        masked_m: int32 `[G]` on the device.
        expected_m: rows of an expert that the caller expects; a hint.
        bias: bfloat16, float16 or float32 `[G, N]`, added in FP32.
        compiled_dims, epilogue: as for `{stem}_gemm_nt`.

    Raises:
        ValueError, TypeError, RuntimeError: as of `{stem}_gemm_nt`.
    """


@dataclass(frozen=True)
class Family(Generic[A, W]):
    """What tells its functions apart from others'. A and W are the types of activations and weights."""

    module: str
    stem: str  # of their names
    accepted: AcceptedWeights
    kinds: tuple[str, str]  # A and W, by the names of _arguments.KINDS
    summary: str
    sums: str
    a: str
    weights: str
    w_more: str = ""
    d_more: str = ""
    pair: str = ""
    read: Callable[[Any], PackedWeights | Unpacked] | None = None  # where w may be a pair that each call packs

    def dense(self) -> DenseProduct[A, W]:
        accepted, read = self.accepted, self.read

        def function(
            a: Any,
            w: Any,
            d: Output,
            c: torch.Tensor | None = None,
            compiled_dims: str = "nk",
            *,
            bias: torch.Tensor | None = None,
            epilogue: Epilogue | None = None,
        ) -> None:
            run_dense(a, w if read is None else read(w), d, c, bias, compiled_dims, accepted, with_epilogue(epilogue))

        return product()(self._named(function, "{}_gemm_nt", _DENSE))

    def contiguous(self) -> ContiguousProduct[A, W]:
        accepted, read = self.accepted, self.read

        def function(
            a: Any,
            w: Any,
            d: Output,
            grouped_layout: torch.Tensor,
            compiled_dims: str = "nk",
            use_psum_layout: bool = False,
            ensure_zero_padding: bool = True,
            expected_m_for_psum_layout: int | None = None,
            *,
            bias: torch.Tensor | None = None,
            epilogue: Epilogue | None = None,
        ) -> None:
            rows = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
            run_contiguous(
                a,
                w if read is None else read(w),
                d,
                grouped_layout,
                compiled_dims,
                rows,
                accepted,
                bias,
                with_epilogue(epilogue),
            )

        return product()(self._named(function, "m_grouped_{}_gemm_nt_contiguous", _CONTIGUOUS))

    def masked(self) -> MaskedProduct[A, W]:
        accepted, read = self.accepted, self.read

        def function(
            a: Any,
            w: Any,
            d: Output,
            masked_m: torch.Tensor,
            expected_m: int,
            compiled_dims: str = "nk",
            *,
            bias: torch.Tensor | None = None,
            epilogue: Epilogue | None = None,
        ) -> None:
            run_masked(
                a,
                w if read is None else read(w),
                d,
                masked_m,
                expected_m,
                compiled_dims,
                accepted,
                bias,
                with_epilogue(epilogue),
            )

        return product()(self._named(function, "m_grouped_{}_gemm_nt_masked", _MASKED))

    def _named(self, function: Any, name: str, doc: str) -> Any:
        """As if it were written out in the family's module."""
        function.__module__ = self.module
        function.__annotations__.update(zip(("a", "w"), self.kinds, strict=True))
        return named(function, name.format(self.stem), doc.format(**vars(self), activations=self.accepted.activations))
