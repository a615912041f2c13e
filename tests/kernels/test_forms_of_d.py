"""D of 16 bits is the FP32 one that was added to zeros, rounded, bit by bit (batches, sums over one, K groups),
whatever D's dtype and C decide of the kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from devices import EACH_ARCH, ONE_OF_EACH_ARCH
from inputs import random_blocks, random_rows, random_values

import deep_gemm

Call = Callable[[torch.Tensor, torch.Tensor | None], None]


def check(call: Call, shape: tuple[int, ...], device: torch.device) -> None:
    def d_of(dtype: torch.dtype, c: str) -> torch.Tensor:
        d = torch.zeros(shape, dtype=dtype, device=device)
        call(d, {"none": None, "d": d, "apart": torch.zeros_like(d)}[c])
        return d

    wanted = d_of(torch.float32, "d")
    assert wanted.any()
    assert torch.equal(d_of(torch.float32, "none"), wanted)
    for c in ("none", "apart"):
        assert torch.equal(d_of(torch.bfloat16, c), wanted.bfloat16()), c


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(
    ("expr", "b", "h", "d", "r"),
    [("bhr,hdr->bhd", 4, 1, 24, 1544), ("bhd,hdr->bhr", 4, 1, 1544, 20), ("bhr,hdr->bhd", 40, 2, 64, 520)],
)
def test_einsum(device, expr, b, h, d, r) -> None:
    """Few tiles: K is cut where an architecture does that."""
    shapes = dict(zip("bhdr", (b, h, d, r), strict=True))
    x, y, into = (tuple(shapes[name] for name in names) for names in expr.replace("->", ",").split(","))
    left, right = (random_values(shape, device, seed).bfloat16() for seed, shape in enumerate((x, y)))
    check(lambda out, c: deep_gemm.einsum(expr, left, right, out, c), into, device)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_sum_over_a_batch(device) -> None:
    x, y = random_values((2, 40, 192), device, 0).bfloat16(), random_values((2, 24, 192), device, 1).bfloat16()
    check(lambda out, c: deep_gemm.einsum("bmk,bnk->mn", x, y, out, c), (40, 24), device)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("rows_of_b", [1, 128])
def test_fp8_einsum(device, rows_of_b) -> None:
    a = random_rows((1, 136, 400), device, 0)
    b = (random_rows if rows_of_b == 1 else random_blocks)((1, 72, 400), device, 1)
    left, recipe = (a.data.transpose(0, 1), a.scales.transpose(0, 1)), (1, rows_of_b, 128)
    check(
        lambda out, c: deep_gemm.fp8_einsum("bhr,hdr->bhd", left, tuple(b), out, c, recipe=recipe), (136, 1, 72), device
    )


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_k_groups_of_bf16(device) -> None:
    ks, m, n = [64, 0, 200], 72, 40
    x, y = (random_values((sum(ks), mn), device, mn).bfloat16() for mn in (m, n))
    sizes = torch.tensor(ks, dtype=torch.int32, device=device)
    check(lambda out, c: deep_gemm.k_grouped_bf16_gemm_tn_contiguous(x, y, out, ks, sizes, c), (3, m, n), device)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_k_groups_of_fp8(device) -> None:
    """Tensor cores multiply scales in some tiles."""
    ks, m, n = [128, 384], 136, 72
    x, y = (random_rows((mn, sum(ks)), device, mn) for mn in (m, n))
    sizes = torch.tensor(ks, dtype=torch.int32, device=device)
    (a, sfa), (b, sfb) = ((each.data.T.contiguous(), each.scales.T.contiguous()) for each in (x, y))
    check(
        lambda out, c: deep_gemm.k_grouped_fp8_gemm_tn_contiguous((a, sfa), (b, sfb), out, ks, sizes, c),
        (2, m, n),
        device,
    )
