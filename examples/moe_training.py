"""A mixture-of-experts layer trained in FP8: every large product of the forward and the backward pass is one call.

    python -m examples.moe_training

For an expert's linear layer y = x @ W.T, with the rows of all experts in one matrix:

    forward   y[rows of g]  = x[rows of g] @ W[g].T             m_grouped_fp8_gemm_nt_contiguous
    dgrad     dx[rows of g] = dy[rows of g] @ W[g]              m_grouped_fp8_gemm_nn_contiguous
    wgrad     dW[g] += dy[rows of g].T @ x[rows of g], FP32     k_grouped_fp8_gemm_tn_contiguous

Operands are quantised along the dimension that a product sums over, so x and dy are quantised twice: by rows for
forward and dgrad, by columns for wgrad. Master weights and gradients stay FP32. On a machine with a Hopper GPU it runs
there at a real size; elsewhere on the simulator at a small one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

import deep_gemm
from deep_gemm.testing import get_arch_major
from deep_gemm.utils import align, per_block_cast_to_fp8, per_channel_cast_to_fp8, per_token_cast_to_fp8


@dataclass
class Routing:
    """Which row of the experts' matrix each (token, choice) takes. Experts start at multiples of the alignment."""

    rows: torch.Tensor  # [tokens * choices], row of each choice
    experts: torch.Tensor  # int32 [M], the expert of each row, -1 for padding
    sizes: list[int]  # of the experts, padding included
    sizes_on_device: torch.Tensor

    @classmethod
    def of(cls, chosen: torch.Tensor, experts: int) -> Routing:
        flat = chosen.flatten()
        alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
        counts = torch.bincount(flat, minlength=experts).tolist()  # waits for the device: sizes are host knowledge here
        sizes = [align(count, alignment) for count in counts]
        starts = torch.tensor([0, *sizes[:-1]], device=flat.device).cumsum(0)
        order = flat.argsort(stable=True)
        within = torch.arange(flat.numel(), device=flat.device) - torch.tensor(
            [0, *counts[:-1]], device=flat.device
        ).cumsum(0).gather(0, flat[order])
        rows = torch.empty_like(flat)
        rows[order] = starts[flat[order]] + within
        owner = torch.full((sum(sizes),), -1, dtype=torch.int32, device=flat.device)
        owner[rows] = flat.int()
        return cls(rows, owner, sizes, torch.tensor(sizes, dtype=torch.int32, device=flat.device))


def scales_by_exponents(device: torch.device) -> bool:
    """Blackwell multiplies by powers of two."""
    return get_arch_major(device) == 10


def quantise_weights(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[G, out, in] with one scale for each 128x128 block."""
    exponents = scales_by_exponents(weights.device)
    data, scales = zip(*(per_block_cast_to_fp8(weight, exponents) for weight in weights), strict=True)
    return torch.stack(data), torch.stack(scales)


class GroupedLinear(torch.autograd.Function):
    """Rows of experts times their weights. Padding rows of x and dy are zero, so they add nothing to dW."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
        quantised = quantise_weights(weights)
        y = torch.zeros((x.shape[0], weights.shape[1]), dtype=torch.bfloat16, device=x.device)
        rows = per_token_cast_to_fp8(x, scales_by_exponents(x.device))
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(rows, quantised, y, routing.experts)
        ctx.save_for_backward(x, *quantised)
        ctx.routing, ctx.weights_shape = routing, weights.shape
        # Padding that shares a tile with real rows holds garbage.
        return y.masked_fill_((routing.experts < 0)[:, None], 0)

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weights, weight_scales = ctx.saved_tensors
        routing, padding = ctx.routing, (ctx.routing.experts < 0)[:, None]
        dy = dy.contiguous()

        dx = torch.zeros((x.shape[0], ctx.weights_shape[2]), dtype=torch.bfloat16, device=x.device)
        exponents = scales_by_exponents(dy.device)
        rows = per_token_cast_to_fp8(dy, exponents)
        deep_gemm.m_grouped_fp8_gemm_nn_contiguous(rows, (weights, weight_scales), dx, routing.experts)
        dx.masked_fill_(padding, 0)

        # Experts start at multiples of 128 rows here, so no block of 128 rows that shares a scale has two experts.
        dw = torch.zeros(ctx.weights_shape, dtype=torch.float32, device=x.device)
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
            per_channel_cast_to_fp8(dy, exponents),
            per_channel_cast_to_fp8(x, exponents),
            dw,
            routing.sizes,
            routing.sizes_on_device,
            c=dw,
        )
        return dx, dw, None


class MoeLayer(torch.nn.Module):
    """Router, experts (up, SiLU, down) for the best `choices` of them, weighted sum."""

    def __init__(self, hidden: int, inner: int, experts: int, choices: int) -> None:
        super().__init__()
        self.experts, self.choices = experts, choices
        self.router = torch.nn.Linear(hidden, experts, bias=False)
        self.up = torch.nn.Parameter(torch.randn(experts, inner, hidden) / hidden**0.5)
        self.down = torch.nn.Parameter(torch.randn(experts, hidden, inner) / inner**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] -> the same, BF16."""
        weights, chosen = self.router(x.float()).softmax(dim=1).topk(self.choices, dim=1)
        routing = Routing.of(chosen, self.experts)
        repeated = x.repeat_interleave(self.choices, dim=0)
        rows = x.new_zeros(len(routing.experts), x.shape[1]).index_copy(0, routing.rows, repeated)
        inner = torch.nn.functional.silu(GroupedLinear.apply(rows, self.up, routing))
        outer = GroupedLinear.apply(inner, self.down, routing)
        each = outer[routing.rows].view(x.shape[0], self.choices, -1)
        return (each.float() * weights[..., None]).sum(dim=1).bfloat16()

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        """The same without quantisation, in FP32, every expert for every token."""
        weights, chosen = self.router(x.float()).softmax(dim=1).topk(self.choices, dim=1)
        inner = torch.nn.functional.silu(torch.einsum("th,gih->gti", x.float(), self.up))
        outer = torch.einsum("gti,ghi->tgh", inner, self.down)
        each = outer.gather(1, chosen[..., None].expand(-1, -1, outer.shape[2]))
        return (each * weights[..., None]).sum(dim=1)


def compare_gradients(layer: MoeLayer, x: torch.Tensor, target: torch.Tensor) -> dict[str, float]:
    """Relative difference of each gradient from that of the FP32 layer."""
    found = []
    for forward in (layer, layer.exact):
        layer.zero_grad()
        (forward(x).float() - target.float()).square().mean().backward()
        found.append({name: parameter.grad.clone() for name, parameter in layer.named_parameters()})
    layer.zero_grad()
    return {name: ((found[0][name] - exact).norm() / exact.norm()).item() for name, exact in found[1].items()}


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    device = torch.device("cuda" if gpu else "cpu")
    hidden, inner, experts, choices, tokens, steps = (2048, 1408, 32, 4, 4096, 50) if gpu else (128, 128, 3, 2, 40, 4)

    torch.manual_seed(0)
    layer, teacher = (MoeLayer(hidden, inner, experts, choices).to(device) for _ in range(2))
    x = torch.randn(tokens, hidden, device=device).bfloat16()
    with torch.no_grad():
        target = teacher.exact(x).bfloat16()

    differences = compare_gradients(layer, x, target)
    print(f"{tokens} tokens, {choices} of {experts} experts, on the {'GPU' if gpu else 'simulator'}")
    print("gradients against FP32: " + ", ".join(f"{name} {value:.3f}" for name, value in differences.items()))
    if not max(differences.values()) < 0.15:
        raise SystemExit("a gradient is further off than quantisation explains")

    optimiser = torch.optim.Adam(layer.parameters(), lr=3e-3 if gpu else 1e-2)
    losses = []
    for _ in range(steps):
        loss = (layer(x).float() - target.float()).square().mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"loss: {losses[0]:.4f} -> {losses[-1]:.4f} in {steps} steps")
    if not losses[-1] < losses[0]:
        raise SystemExit("the loss did not fall")


if __name__ == "__main__":
    main()
