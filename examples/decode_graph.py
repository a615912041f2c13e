"""A decode step of a small transformer MLP stack, captured once in a CUDA graph and replayed for every token.

    python -m examples.decode_graph

A step is dozens of short kernels, and launching them one by one costs more than running them: a graph launches all at
once. Everything that a call allocates comes from torch's graph pool, and new inputs are copied into the captured
tensors. Without a GPU the same layers run on the simulator, once and without a graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

import deep_gemm
from deep_gemm.testing import get_arch_major
from deep_gemm.utils import ceil_to_ue8m0, per_block_cast_to_fp8


def scales_by_exponents(device: torch.device) -> bool:
    """Blackwell multiplies by powers of two."""
    return get_arch_major(device) == 10


class Mlp(torch.nn.Module):
    """Up projection, activation, down projection, residual."""

    def __init__(self, hidden: int, inner: int, device: torch.device) -> None:
        super().__init__()
        exponents = scales_by_exponents(device)
        self.up = per_block_cast_to_fp8(torch.randn(inner, hidden, device=device) / hidden**0.5, use_ue8m0=exponents)
        self.down = per_block_cast_to_fp8(torch.randn(hidden, inner, device=device) / inner**0.5, use_ue8m0=exponents)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + product(torch.nn.functional.silu(product(x, self.up)), self.down)


def product(x: torch.Tensor, weight: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    y = torch.empty((x.shape[0], weight[0].shape[0]), dtype=torch.bfloat16, device=x.device)
    deep_gemm.fp8_gemm_nt(quantise(x), weight, y)
    return y


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per token and 128 features, with operations that a graph may contain (no host read)."""
    groups = x.float().view(x.shape[0], -1, 128)
    scales = groups.abs().amax(dim=2).clamp(min=1e-4) / 448
    if scales_by_exponents(x.device):
        scales = ceil_to_ue8m0(scales)
    return (groups / scales[..., None]).to(torch.float8_e4m3fn).view(x.shape), scales


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    device = torch.device("cuda" if gpu else "cpu")
    layers, tokens, hidden, inner = (8, 64, 4096, 7168) if gpu else (1, 4, 256, 384)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Mlp(hidden, inner, device) for _ in range(layers)))

    with torch.inference_mode():
        if not gpu:
            y = model(torch.randn(tokens, hidden).bfloat16())
            print(f"{layers} layer on the simulator: {tuple(y.shape)}; no graph on a CPU")
            if not y.isfinite().all():
                raise SystemExit("not all of it is finite")
            return

        x = torch.randn(tokens, hidden, device=device).bfloat16()
        for _ in range(3):  # compiles the kernels, which no capture may contain
            model(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)

        for _ in range(3):  # new tokens, the same graph
            fresh = torch.randn(tokens, hidden, device=device).bfloat16()
            x.copy_(fresh)
            graph.replay()
            if not torch.equal(y, model(fresh)):
                raise SystemExit("a replay differs from the same calls made one by one")

        def seconds(step: Callable[[], object], steps: int = 200) -> float:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
            return (time.perf_counter() - begin) / steps

        one_by_one, replayed = seconds(lambda: model(x)), seconds(graph.replay)
    print(f"{layers} layers, {tokens} tokens: a step takes {one_by_one * 1e6:.0f} us call by call")
    print(f"and {replayed * 1e6:.0f} us replayed")


if __name__ == "__main__":
    main()
