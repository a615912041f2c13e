"""Gated activations in FP64, and operands of products in front of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from inputs import random_blocks, random_rows, random_values

import deep_gemm
from deep_gemm.epilogue import GeGLU, SwiGLU

LIMIT, SLOPE = (torch.tensor(number).item() for number in (0.7, 1.702))  # as FP32 has them
LAYOUTS = ("halves", "interleaved")
GATES: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "swiglu": (SwiGLU, lambda gate, up: gate * torch.sigmoid(gate) * up),
    "gpt-oss": (
        lambda layout: SwiGLU(limit=LIMIT, alpha=SLOPE, up_shift=1.0, layout=layout),
        lambda gate, up: gpt_oss(gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)),
    ),
    "geglu": (GeGLU, lambda gate, up: torch.nn.functional.gelu(gate, approximate="tanh") * up),
    "geglu erf": (
        lambda layout: GeGLU(layout, approximate="none"),
        lambda gate, up: torch.nn.functional.gelu(gate) * up,
    ),
}


def gpt_oss(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return gate * torch.sigmoid(SLOPE * gate) * (up + 1)


def expected(product: torch.Tensor, layout: str, gate: str = "swiglu") -> torch.Tensor:
    """In FP64."""
    product = product.double()
    gates, ups = product.chunk(2, -1) if layout == "halves" else (product[..., ::2], product[..., 1::2])
    return GATES[gate][1](gates, ups)


def assert_close(d: torch.Tensor, wanted: torch.Tensor) -> None:
    """A sum has nearly the same bits without a gate (K may be split otherwise): what is left is D's rounding, and on a
    GPU what is left of large gates and ups whose sums were added up in another order."""
    step = {torch.float32: 2**-18, torch.bfloat16: 2**-8, torch.float16: 2**-10}[d.dtype]
    least = 1e-5 + (3e-6 * float(wanted.abs().max()) if d.is_cuda else 0)
    assert torch.allclose(d.double(), wanted, rtol=step, atol=least), (d.double() - wanted).abs().max()


def operands(pair: str, m: int, n: int, k: int, device: torch.device) -> tuple[Any, Any, Callable[..., None]]:
    if pair.startswith("fp8"):
        a, b = random_rows((m, k), device, 1), (random_blocks if pair == "fp8" else random_rows)((n, k), device, 2)
        recipe = {"recipe": (1, 1, 128)} if pair == "fp8 rows" else {}
        return (a.data, 0.125 * a.scales), tuple(b), partial(deep_gemm.fp8_gemm_nt, **recipe)
    dtype = torch.bfloat16 if pair == "bf16" else torch.float16
    values = (random_values(shape, device, seed) for seed, shape in enumerate([(m, k), (n, k)]))
    a, b = ((0.25 * value).to(dtype) for value in values)
    return a, b, deep_gemm.bf16_gemm_nt
