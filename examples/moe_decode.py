"""A decode step of a mixture-of-experts layer with masked experts, captured in a CUDA graph.

    python -m examples.moe_decode

How many tokens an expert gets is known on the device alone, and a captured graph cannot ask. So each expert has a
matrix of fixed height, and the kernel reads from `masked_m` how many of its rows count: replays follow the routing of
their own tokens. Without a GPU the same step runs on the simulator, without a graph.
"""

from __future__ import annotations

import torch

import deep_gemm
from deep_gemm import quantize, routing
from deep_gemm.testing import get_arch_major


class MoeDecode:
    """Router, gated experts and weighted sum, for a fixed number of tokens. For inference."""

    def __init__(self, tokens: int, hidden: int, inner: int, experts: int, choices: int, device: torch.device) -> None:
        self.experts, self.choices, self.inner = experts, choices, inner
        self.router = torch.randn(hidden, experts, device=device) / hidden**0.5
        self.exact_up = torch.randn(experts, 2 * inner, hidden, device=device) / hidden**0.5
        self.exact_down = torch.randn(experts, hidden, inner, device=device) / inner**0.5
        self.scales = "ue8m0" if get_arch_major(device) == 10 else "fp32"  # Blackwell multiplies by powers of two
        self.up, self.down = (quantize.fp8_blocks(w, scales=self.scales) for w in (self.exact_up, self.exact_down))
        # Only tells selection what to expect; any counts give right results.
        self.expected_m = max(1, tokens * choices // experts)

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = (x.float() @ self.router).softmax(dim=1).topk(self.choices, dim=1)
        return weights, chosen

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] -> the same, BF16. Every shape is fixed, nothing is read back: a graph may hold it."""
        weights, chosen = self.choose(x)
        # All tokens may choose the same expert, so each has a row for every token.
        found = routing.route(chosen, self.experts, kind="masked")
        grouping = found.grouping(self.expected_m)
        rows = routing.gather(quantize.fp8(x, scales=self.scales), found)
        both = x.new_empty(*found.source.shape, 2 * self.inner)
        deep_gemm.gemm(rows, self.up, both, grouping=grouping)
        inner = quantize.swiglu_fp8(both, scales=self.scales, grouping=grouping)
        outer = x.new_empty(*found.source.shape, x.shape[1])
        deep_gemm.gemm(inner, self.down, outer, grouping=grouping)
        return routing.combine(outer, found, weights)

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        """The same in FP32 without quantisation, every expert for every token."""
        weights, chosen = self.choose(x)
        gate, up = torch.einsum("th,gih->tgi", x.float(), self.exact_up).chunk(2, dim=2)
        outer = torch.einsum("tgi,ghi->tgh", torch.nn.functional.silu(gate) * up, self.exact_down)
        each = outer.gather(1, chosen[..., None].expand(-1, -1, x.shape[1]))
        return (each * weights[..., None]).sum(dim=1)


def check(step: MoeDecode, x: torch.Tensor, y: torch.Tensor) -> float:
    exact = step.exact(x)
    relative = float((y.float() - exact).norm() / exact.norm())
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
