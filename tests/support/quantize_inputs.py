"""Numbers to quantise, and what the quantise kernels must make of them."""

from __future__ import annotations

import torch
from logits_inputs import generator_of

from deep_gemm.utils import per_token_cast_to_fp8


def values(*shape: int, dtype: torch.dtype = torch.bfloat16, device: torch.device | str = "cpu") -> torch.Tensor:
    """Rows of very different magnitudes, with zeros of both signs."""
    generator = generator_of(sum(shape))
    x = torch.randn(shape, generator=generator) * torch.exp(4 * torch.randn((*shape[:-1], 1), generator=generator))
    x[..., ::7], x[..., 3::11] = 0.0, -0.0
    return x.to(device, dtype)


def cast(x: torch.Tensor, group: int, scales: str) -> tuple[torch.Tensor, torch.Tensor]:
    q, s = per_token_cast_to_fp8(x.cpu(), scales != "fp32", group, scales == "packed")
    return q.to(x.device), s.to(x.device)


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same bits; but a NaN is as good as any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    integers = torch.uint8 if a.element_size() == 1 else torch.int32
    nan = a.float().isnan() & b.float().isnan()
    return bool(((a.contiguous().view(integers) == b.contiguous().view(integers)) | nan).all())


def activated(name: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """In FP64."""
    gate, up = gate.double(), up.double()
    if name.startswith("geglu"):
        return torch.nn.functional.gelu(gate, approximate="none" if name == "geglu erf" else "tanh") * up
    if name == "limited":
        gate, up = gate.clamp(max=7), up.clamp(-7, 7)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return gate * torch.sigmoid(gate) * up
