"""A product never leaves a D without its gradient in silence: inputs that ask for one are refused in grad mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deep_gemm

M, N, K = 8, 16, 128


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, K, generator=generator).bfloat16() for rows in (M, N))
    return a, b, torch.full((M, N), float("nan"))


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_refused_by_name_before_anything_is_written(name) -> None:
    a, b, d = operands()
    tensors = {"a": a, "b": b, "d": d, "c": torch.zeros(M, N)}
    tensors[name].requires_grad_()
    with pytest.raises(
        RuntimeError, match=rf"bf16_gemm_nt writes d, so .*, but {name} must have a gradient: .*no_grad"
    ):
        deep_gemm.bf16_gemm_nt(**tensors)
    assert d.isnan().all()


def test_quantised_operands_made_of_those() -> None:
    a = torch.randn(M, K, requires_grad=True)
    pair = a.to(torch.float8_e4m3fn), torch.ones(M, 1)
    b = torch.randn(N, K).to(torch.float8_e4m3fn), torch.ones(1, 1)
    with pytest.raises(RuntimeError, match=r"fp8_gemm_nt .*, but a must have a gradient"):
        deep_gemm.fp8_gemm_nt(pair, b, torch.empty(M, N))
    with pytest.raises(RuntimeError, match=r", but b's scales must have a gradient"):
        deep_gemm.fp8_gemm_nt(b, (pair[0].detach(), torch.ones(1, 1, requires_grad=True)), torch.empty(N, M))


def test_a_call_that_ran_before_under_no_grad() -> None:
    """The same tensors at the same places, of which a launch lies ready."""
    a, b, d = operands()
    a.requires_grad_()
    with torch.no_grad():
        for _ in range(4):
            deep_gemm.bf16_gemm_nt(a, b, d)
    with pytest.raises(RuntimeError, match="a must have a gradient"):
        deep_gemm.bf16_gemm_nt(a, b, d)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_nothing_is_recorded_all_is_as_before(mode) -> None:
    a, b, d = operands()
    wanted = a.double() @ b.double().T
    b.requires_grad_()
    with mode():
        deep_gemm.bf16_gemm_nt(a, b, d)
    assert torch.allclose(d.double(), wanted, rtol=1e-5, atol=1e-5)


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(b)
        d = torch.empty(a.shape[0], b.shape[0])
        deep_gemm.bf16_gemm_nt(a, b, d)
        return d

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (b,) = ctx.saved_tensors
        of_a = torch.empty(gradient.shape[0], b.shape[1])
        deep_gemm.bf16_gemm_nn(gradient.bfloat16(), b, of_a)
        return of_a.bfloat16(), None


def test_inside_a_function_with_a_backward() -> None:
    a, b, _ = operands()
    a.requires_grad_()
    Linear.apply(a, b).sum().backward()
    assert torch.allclose(a.grad.double(), b.double().sum(0).expand(M, K), rtol=1e-2)


def test_operators_and_compiled_programs_refuse_too() -> None:
    a, b, d = operands()
    operator = torch.ops.deep_gemm_jit.bf16_gemm_nt
    operator(a, b, d)
    assert d.isfinite().all()
    a.requires_grad_()
    with torch.no_grad():
        operator(a, b, d)
    with pytest.raises(RuntimeError, match=r"bf16_gemm_nt .*, but a must have a gradient"):
        operator(a, b, d)
    compiled = torch.compile(lambda: deep_gemm.bf16_gemm_nt(a, b, d), backend="aot_eager")
    with pytest.raises(RuntimeError, match="a must have a gradient"):
        compiled()
