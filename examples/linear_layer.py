"""A linear layer that multiplies in FP8: quantised once, used for every batch; and its gradients.

    python -m examples.linear_layer

On a machine with a Hopper GPU it runs there at a real size; elsewhere on the simulator at a small one, as the GPU that
DG_SIM_TARGET names.
"""

from __future__ import annotations

import torch

from deep_gemm import nn
from deep_gemm.testing import calc_diff


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.detach().float() - exact.detach()).norm() / exact.detach().norm())


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    device = torch.device("cuda" if gpu else "cpu")
    batch, tokens, features_in, features_out = (8, 512, 7168, 2048) if gpu else (2, 20, 512, 256)

    torch.manual_seed(0)
    linear = torch.nn.Linear(features_in, features_out, bias=False, device=device)
    layer = nn.FP8Linear.from_linear(linear)  # with the same parameter
    x = torch.randn(batch, tokens, features_in, device=device, requires_grad=True)
    dy = torch.randn(batch, tokens, features_out, device=device)

    found, exact = ([y, *torch.autograd.grad(y, [x, linear.weight], dy)] for y in (layer(x), linear(x)))
    print(f"{tuple(x.shape)} -> {tuple(dy.shape)} on the {'GPU' if gpu else 'simulator'}")
    for name, mine, wanted in zip(("y", "dx", "dw"), found, exact, strict=True):
        error = relative(mine, wanted)
        print(
            f"{name} against FP32 without quantisation: relative {error:.3f}, calc_diff {calc_diff(mine, wanted):.1e}"
        )
        # E4M3 keeps three bits behind the leading one: each operand is off by about 2.6 %, and errors of both add up.
        if not error < 0.05:
            raise SystemExit("the error is larger than quantisation explains")


if __name__ == "__main__":
    main()
