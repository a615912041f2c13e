"""A linear layer whose weight is FP8: quantised once, used for every batch.

    python -m examples.linear_layer

On a machine with a Hopper GPU it runs there at a real size; elsewhere on the simulator at a small one, as the GPU that
DG_SIM_TARGET names.
"""

from __future__ import annotations

import torch

import deep_gemm
from deep_gemm.testing import calc_diff, get_arch_major
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8


class Fp8Linear(torch.nn.Module):
    """y = x @ weight.T, with FP8 operands, FP32 accumulation and BF16 output. For inference: it has no backward."""

    def __init__(self, weight: torch.Tensor) -> None:
        """`weight` is [out features, in features]; one FP32 scale is kept for each 128x128 block of it."""
        super().__init__()
        self.use_ue8m0 = get_arch_major(weight.device) == 10  # B200 and B300 scale by powers of two
        data, scales = per_block_cast_to_fp8(weight.float(), use_ue8m0=self.use_ue8m0)
        self.register_buffer("weight", data)
        self.register_buffer("weight_scales", scales)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        # One scale for each token and 128 features: an outlier spoils the precision of its own 128 numbers only.
        data, scales = per_token_cast_to_fp8(rows.float(), use_ue8m0=self.use_ue8m0)
        y = torch.empty((rows.shape[0], self.weight.shape[0]), dtype=torch.bfloat16, device=x.device)
        deep_gemm.fp8_gemm_nt((data, scales), (self.weight, self.weight_scales), y)
        return y.reshape(*x.shape[:-1], -1)


def main() -> None:
    gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    device = torch.device("cuda" if gpu else "cpu")
    batch, tokens, features_in, features_out = (8, 512, 7168, 2048) if gpu else (2, 20, 512, 256)

    torch.manual_seed(0)
    weight = torch.randn(features_out, features_in, device=device) / features_in**0.5
    x = torch.randn(batch, tokens, features_in, device=device)

    layer = Fp8Linear(weight)
    y = layer(x)
    exact = x @ weight.T
    relative = ((y.float() - exact).norm() / exact.norm()).item()
    print(f"{tuple(x.shape)} -> {tuple(y.shape)} on the {'GPU' if gpu else 'simulator'}")
    print(f"against FP32 without quantisation: relative error {relative:.3f}, calc_diff {calc_diff(y, exact):.1e}")
    # E4M3 keeps three bits behind the leading one: each operand is off by about 2.6 %, and errors of both add up.
    if not relative < 0.05:
        raise SystemExit("the error is larger than quantisation explains")


if __name__ == "__main__":
    main()
