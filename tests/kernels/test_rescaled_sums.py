"""One set of sums for groups of K, rescaled between them (SM80, weights packed with near scales beside 16 bits)."""

from __future__ import annotations

import bf16_weight_inputs as inputs
import pytest
import torch
from bf16_weight_inputs import KINDS, activations, check
from call_checks import settings
from devices import devices_of
from guarded_products import guarded_product

import deep_gemm
from deep_gemm import jit
from deep_gemm.nn import QuantLinear
from deep_gemm.weights import PackedWeights, pack_weights
from deep_gemm.weights.blank import blank_weights

TILES = {"int4": (128, 256), "int8": (128, 256), "fp8": (128, 256), "int4-zeros": (128, 128), "int8-zeros": (128, 128)}


def weights(name: str, n: int, k: int, generator: torch.Generator, spread: int):
    """Packed, with scales of a row up to 2^spread apart and a row of zeros; and in FP64."""
    kind = KINDS[name]
    count = (n, -(-k // kind.group))
    scales = torch.exp2(torch.randint(-spread, 1, count, generator=generator).float()) / 16
    scales *= 1 + torch.randint(0, 2, count, generator=generator)
    scales[:, :2] = torch.tensor([1 / 16, 2.0 ** -(4 + spread)])[: count[1]]
    scales[min(3, n - 1)] = 0
    return inputs.weights(kind, (n, k), generator, scales=scales)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", devices_of("sm80", "lazy", "random"), indirect=True)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("k", [100, 128, 640, 1152])
@pytest.mark.parametrize("spread", [3, 22])
@pytest.mark.parametrize("name", TILES)
def test_against_fp64(device, name, spread, k, dtype) -> None:
    """Of one K block, and of a K that ends within one; several tiles a CTA."""
    m, n = 130, 200
    generator = torch.Generator().manual_seed(k + spread)
    a = activations((m, k), dtype, generator)
    w, exact = weights(name, n, k, generator, spread)
    assert w.near_scales
    results = []
    for num_sms in (2, 1):
        with settings(device, num_sms=num_sms):
            d = guarded_product(KINDS[name], a, w, device, tile=(True, *TILES[name]))
        check(d, a, exact)
        results.append(d)
    assert torch.equal(*results)


def kernels_of(w: PackedWeights, m: int, **settings: bool) -> str:
    """That serve so many rows of BF16 on an A100."""
    with jit.record("sm_80") as recording:
        if settings:
            deep_gemm.set_batch_invariant(True)
        try:
            a, d = (jit.placeholder(m, size, dtype=torch.bfloat16) for size in (w.shape[1], w.shape[0]))
            deep_gemm.bf16_int4_gemm_nt(a, w, d)
        finally:
            deep_gemm.set_batch_invariant(False)
    return "".join(kernel.text for kernel in recording.kernels)


def test_who_is_served_so() -> None:
    """Many tokens; not a few, nor where bits must not depend on how many there are, nor scales that are far apart."""
    near, far = (blank_weights((4096, 7168), "int4", "bf16", 128, "s4b", near_scales=near) for near in (True, False))
    rescales = ".near_scales = 1"
    assert rescales in kernels_of(near, 4096)
    assert rescales not in kernels_of(near, 16)
    assert rescales not in kernels_of(far, 4096)
    assert rescales not in kernels_of(near, 4096, batch_invariant=True)


@pytest.mark.parametrize(
    ("change", "near"),
    [
        ([], True),
        ([(0, 0, 0.0)], False),
        ([(0, 0, 2.0**-30)], False),
        ([(0, 0, -0.5)], True),
        ([(0, slice(None), 0.0)], True),
        ([(slice(None), slice(None), 2.0**-120)], False),
    ],
    ids=["ones", "one of zero", "one far away", "a negative one", "a row of zeros", "all too small"],
)
def test_what_near_means(change, near) -> None:
    scales = torch.ones(64, 3)
    for row, group, scale in change:
        scales[row, group] = scale
    values = torch.ones(64, 384, dtype=torch.int8)
    packed = pack_weights(values, scales, element="int4", activations="bf16", group_size=128)
    assert packed.near_scales is near
    beside_fp8 = pack_weights(values, scales, element="int4", activations="fp8", group_size=128)
    assert beside_fp8.near_scales is bool((scales == scales[:, :1]).all())


def test_it_is_kept_and_guarded() -> None:
    """With what is stored, in parts, and when an expert is written; older releases' metadata say nothing."""
    generator = torch.Generator().manual_seed(1)
    near, far = (weights("int4", 128, 384, generator, spread)[0] for spread in (3, 30))
    assert PackedWeights.from_state_dict(near.state_dict()).near_scales
    assert near.slice_n(0, 64).near_scales
    tensors, metadata = near.tensors()
    assert not PackedWeights.from_tensors(
        tensors, {k: v for k, v in metadata.items() if k != "near_scales"}
    ).near_scales
    lying = {**far.state_dict(), "metadata": near.state_dict()["metadata"]}
    with pytest.raises(ValueError, match=r"scales of each row must be within 2\^24 .* near_scales"):
        PackedWeights.from_state_dict(lying)
    layer = QuantLinear(near)
    with pytest.raises(ValueError, match=r"scales of each row must be within 2\^24 .* near_scales"):
        layer.load_state_dict({**QuantLinear(far).state_dict(), "metadata": layer.state_dict()["metadata"]})
    assert torch.equal(layer.state_dict()["scales"], near.scales)
    before = near.codes.clone()
    with pytest.raises(ValueError, match=r"scales of each row must be within 2\^24 .* pack the whole stack again"):
        near.write(0, far)
    assert torch.equal(near.codes, before)
    far.write(0, near)
