"""A decode step of a mixture-of-experts layer with masked experts, captured in a CUDA graph.

    python -m examples.moe_decode

How many tokens an expert gets is known on the device alone, and a captured graph cannot ask. So each expert has a
matrix of fixed height, and the kernel reads from `masked_m` how many of its rows count: replays follow the routing of
their own tokens. Without a GPU the same step runs on the simulator, without a graph.
"""

from __future__ import annotations

import torch

import deep_gemm
from deep_gemm.testing import get_arch_major
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8

Scaled = tuple[torch.Tensor, torch.Tensor]


def scales_by_exponents(device: torch.device) -> bool:
    """Blackwell multiplies by powers of two."""
    return get_arch_major(device) == 10


def quantise_rows(x: torch.Tensor) -> Scaled:
    """[G, rows, features] with a scale for each row and 128 features. Reads nothing on the host."""
    data, scales = per_token_cast_to_fp8(x.reshape(-1, x.shape[-1]), scales_by_exponents(x.device))
    return data.view(x.shape), scales.view(*x.shape[:-1], -1)


def quantise_weights(weights: torch.Tensor) -> Scaled:
    exponents = scales_by_exponents(weights.device)
    data, scales = zip(*(per_block_cast_to_fp8(weight, exponents) for weight in weights), strict=True)
    return torch.stack(data), torch.stack(scales)


class MoeDecode:
    """Router, gated experts and weighted sum, for a fixed number of tokens. For inference."""

    def __init__(self, tokens: int, hidden: int, inner: int, experts: int, choices: int, device: torch.device) -> None:
        self.experts, self.choices, self.inner = experts, choices, inner
        self.router = torch.randn(hidden, experts, device=device) / hidden**0.5
        self.exact_up = torch.randn(experts, 2 * inner, hidden, device=device) / hidden**0.5
        self.exact_down = torch.randn(experts, hidden, inner, device=device) / inner**0.5
        self.up, self.down = quantise_weights(self.exact_up), quantise_weights(self.exact_down)
        self.max_m = tokens  # all tokens may choose the same expert
        # Only tells selection what to expect; any counts give right results.
        self.expected_m = max(1, tokens * choices // experts)

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x.float() @ self.router).softmax(dim=1).topk(self.choices, dim=1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] -> the same, BF16. Every shape is fixed, nothing is read back: a graph may hold it."""
        weights, chosen = self.choose(x)
        flat = chosen.flatten()
        one_hot = flat[:, None] == torch.arange(self.experts, device=x.device)
        counts = one_hot.sum(dim=0, dtype=torch.int32)
        slot = (one_hot.cumsum(dim=0) - 1).gather(1, flat[:, None])[:, 0]  # place among the expert's rows
        place = flat * self.max_m + slot

        hidden = x.shape[1]
        rows = x.new_empty(self.experts * self.max_m, hidden)  # rows past the counts may hold anything
        rows.index_copy_(0, place, x.repeat_interleave(self.choices, dim=0))
        both = self.product(rows.view(self.experts, self.max_m, hidden), self.up, 2 * self.inner, counts)
        gate, up = both.float().chunk(2, dim=2)
        outer = self.product((torch.nn.functional.silu(gate) * up).bfloat16(), self.down, hidden, counts)
        each = outer.view(-1, hidden)[place].view(x.shape[0], self.choices, hidden)
        return (each.float() * weights[..., None]).sum(dim=1).bfloat16()

    def product(self, rows: torch.Tensor, weights: Scaled, features: int, counts: torch.Tensor) -> torch.Tensor:
        y = torch.empty((self.experts, self.max_m, features), dtype=torch.bfloat16, device=rows.device)
        deep_gemm.m_grouped_fp8_gemm_nt_masked(quantise_rows(rows), weights, y, counts, self.expected_m)
        return y

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        """The same in FP32 without quantisation, every expert for every token."""
        weights, chosen = self.choose(x)
        gate, up = torch.einsum("th,gih->tgi", x.float(), self.exact_up).chunk(2, dim=2)
        outer = torch.einsum("tgi,ghi->tgh", torch.nn.functional.silu(gate) * up, self.exact_down)
        each = outer.gather(1, chosen[..., None].expand(-1, -1, x.shape[1]))
        return (each * weights[..., None]).sum(dim=1)


def check(step: MoeDecode, x: torch.Tensor, y: torch.Tensor) -> float:
    exact = step.exact(x)
    relative = ((y.float() - exact).norm() / exact.norm()).item()
    if not relative < 0.1:
        raise SystemExit(f"relative error {relative:.3f}: more than quantisation explains")
    return relative


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    device = torch.device("cuda" if gpu else "cpu")
    tokens, hidden, inner, experts, choices = (64, 2048, 768, 64, 8) if gpu else (6, 128, 128, 4, 2)
    torch.manual_seed(0)

    with torch.inference_mode():
        step = MoeDecode(tokens, hidden, inner, experts, choices, device)
        x = torch.randn(tokens, hidden, device=device).bfloat16()
        if not gpu:
            print(f"{tokens} tokens, {choices} of {experts} experts on the simulator; no graph on a CPU")
            print(f"relative error against FP32 {check(step, x, step(x)):.3f}")
            return

        step(x)  # compiles the kernels
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = step(x)
        for _ in range(3):  # other tokens, other routing, the same graph
            x.copy_(torch.randn(tokens, hidden, device=device))
            graph.replay()
            print(f"replay: relative error against FP32 {check(step, x, y):.3f}")


if __name__ == "__main__":
    main()
