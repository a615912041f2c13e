"""`BF16StochasticRounding`: the bits that DeepGEMM's hash says, of the FP32 result of the same product."""

from __future__ import annotations

import pytest
import torch
from devices import EACH_ARCH, ONE_OF_EACH_ARCH
from epilogue_products import PRODUCTS, real_rows
from grouped_inputs import alignment_of
from inputs import GuardedOutput, random_values

import deep_gemm
from deep_gemm.epilogue import Alpha, BF16StochasticRounding, Chain, RowScale

WORD = 0xFFFFFFFF


def mixed(hash: torch.Tensor, factor: int) -> torch.Tensor:
    hash = times(hash, factor)
    return hash ^ hash >> 11


def times(x: torch.Tensor, factor: int) -> torch.Tensor:
    """Of 32-bit words in int64, which no product of halves exceeds."""
    return ((x & 0xFFFF) * factor + ((x >> 16) * (factor & 0xFFFF) << 16)) & WORD


def rounded(wide: torch.Tensor) -> torch.Tensor:
    """What upstream's kernel makes of FP32 results."""
    columns = wide.shape[-1]
    bits = wide.contiguous().view(torch.int32).long() & WORD
    quartets = torch.nn.functional.pad(bits, (0, -columns % 4)).unflatten(-1, (-1, 4))
    hash = torch.arange(quartets.shape[-2], device=wide.device).expand(quartets.shape[:-1])
    for place, factor in enumerate((0x5671D42B, 0x9995E499, 0xACE1B8A5, 0xE153538D)):
        hash = (hash + times(quartets[..., place], factor)) & WORD
    hash = times(hash ^ hash >> 23, 0x7FEB352D)
    hash = hash ^ hash >> 16
    pairs = [mixed(hash, factor) for factor in (0x846CA68B, 0xD35A2D97)]
    random = torch.stack([half for pair in pairs for half in (pair & 0xFFFF, pair >> 16)], -1)
    up = ((quartets & 0xFFFF) + random) >> 16
    words = ((quartets >> 16) + up).flatten(-2)[..., :columns]
    return words.to(torch.int32).to(torch.int16).view(torch.bfloat16)


pytestmark = pytest.mark.usefixtures("batch_invariant")


def check(product: str, device: torch.device, **more: object) -> None:
    with alignment_of(16):
        shape, call = PRODUCTS[product](device)
        wide, d = torch.zeros(shape, device=device), GuardedOutput(shape, torch.bfloat16, device)
        call(wide, **({"epilogue": more["wide"]} if more else {}))
        call(d.tensor, epilogue=more.get("epilogue", BF16StochasticRounding()))
    d.check(complete=False)
    found, wanted = (real_rows(product, x) for x in (d.tensor, rounded(wide)))
    assert wanted.any()
    assert torch.equal(found.view(torch.int16), wanted.view(torch.int16))


@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("product", PRODUCTS)
def test_every_product(device, product) -> None:
    check(product, device)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_behind_the_other_steps(device) -> None:
    weights = RowScale(random_values((48,), device, 3))
    check(
        "bf16_nt",
        device,
        wide=Chain(Alpha(0.3), weights),
        epilogue=Chain(Alpha(0.3), weights, BF16StochasticRounding()),
    )


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("m", "n"), [(5, 30), (129, 131), (200, 512)])
def test_columns_past_the_end_count_as_zero(device, m, n) -> None:
    a, b = (random_values((rows, 72), device, rows).bfloat16() for rows in (m, n))
    wide, d = torch.empty(m, n, device=device), GuardedOutput((m, n), torch.bfloat16, device)
    deep_gemm.bf16_gemm_nt(a, b, wide)
    deep_gemm.bf16_gemm_nt(a, b, d.tensor, epilogue=BF16StochasticRounding())
    d.check()
    assert torch.equal(d.tensor.view(torch.int16), rounded(wide).view(torch.int16))


def test_one_of_two_neighbours_and_on_average_right() -> None:
    a, b = random_values((64, 64), "cpu", 1).bfloat16(), random_values((512, 64), "cpu", 2).bfloat16()
    wide, d = torch.empty(64, 512), torch.empty(64, 512, dtype=torch.bfloat16)
    deep_gemm.bf16_gemm_nt(a, b, wide)
    deep_gemm.bf16_gemm_nt(a, b, d, epilogue=BF16StochasticRounding())
    again = torch.empty_like(d)
    deep_gemm.bf16_gemm_nt(a, b, again, epilogue=BF16StochasticRounding())
    assert torch.equal(d, again)
    low = (wide.view(torch.int32) & -65536).view(torch.float32)
    high = ((wide.view(torch.int32) & -65536) + 65536).view(torch.float32)
    assert ((d.float() == low) | (d.float() == high)).all()
    assert (d.float() != wide.bfloat16().float()).any()
    off = ((d.double() - wide.double()) / (high.double() - low.double())).flatten()
    # Of each, variance p (1 - p), a sixth on average.
    assert abs(off.sum()) < 4 * (off.numel() / 6) ** 0.5


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_what_has_nothing_to_round(device) -> None:
    """NaN, infinities and zeros stay; what is exact in BF16 too."""
    a, b = torch.eye(16, 128, device=device).bfloat16(), torch.zeros(64, 128, device=device).bfloat16()
    b[:, :4] = torch.tensor([float("nan"), float("inf"), -1.5, 0.0], device=device)
    d = torch.empty(16, 64, device=device, dtype=torch.bfloat16)
    deep_gemm.bf16_gemm_nt(a[:, :8].contiguous(), b[:, :8].contiguous(), d, epilogue=BF16StochasticRounding())
    assert d.isnan().all()  # of infinity times zero
    b[:, :2] = 3.0
    deep_gemm.bf16_gemm_nt(a, b, d, epilogue=BF16StochasticRounding())
    assert torch.equal(d[:3], torch.tensor([3.0, 3.0, -1.5], device=device)[:, None].expand(3, 64).bfloat16())
    assert not d[3:].any()


def test_what_is_refused() -> None:
    a, b = torch.ones(8, 64).bfloat16(), torch.ones(16, 64).bfloat16()
    d = torch.full((8, 16), float("nan"))
    with pytest.raises(TypeError, match="d must be bfloat16 where it is rounded at random, got float32"):
        deep_gemm.bf16_gemm_nt(a, b, d, epilogue=BF16StochasticRounding())
    with pytest.raises(ValueError, match="c must be None where d is rounded at random"):
        deep_gemm.bf16_gemm_nt(a, b, d.bfloat16(), d.bfloat16(), epilogue=BF16StochasticRounding())
    assert d.isnan().all()
