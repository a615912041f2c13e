"""`d=(q, s)` behind a gated activation: to the bit what deep_gemm.utils makes of the FP32 result of the same call."""

from __future__ import annotations

import random

import pytest
import torch
from candidates import can_serve, candidates, forced
from devices import EACH_ARCH, on_simulator
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div, random_values
from quantised_output import ALIGNMENT, SCALES, K, QuantisedOutput, dense, of_experts, operands

import deep_gemm
from deep_gemm._extension import C
from deep_gemm.epilogue import Alpha, Chain, GeGLU, RowScale, SwiGLU

DEVICES = EACH_ARCH
TARGETS = {"sm90": "sm_90a", "sm80": "sm_80", "sm100": "sm_100a"}
LAYOUTS = ("halves", "interleaved")


pytestmark = pytest.mark.usefixtures("batch_invariant")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("stem", ["fp8", "bf16"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "columns"), [(1, 8), (7, 128), (129, 256), (16, 512), (300, 384), (70, 150)])
def test_dense(device, stem, scales, layout, m, columns) -> None:
    if stem == "fp8" and layout == "halves":
        columns = ceil_div(columns, 128) * 128
    product = dense(stem, device, m, 2 * columns, columns=columns)
    product.check(scales, device, epilogue=SwiGLU(layout=layout))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("stem", ["fp8", "bf16"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
@pytest.mark.parametrize(("columns", "one"), [(256, False), (384, False), (128, True)])
def test_experts(device, stem, scales, layout, grouping, columns, one) -> None:
    with alignment_of(ALIGNMENT):
        product = of_experts(stem, grouping, device, 2 * columns, columns=columns, one=one)
        product.check(scales, device, epilogue=SwiGLU(limit=7.0, alpha=1.702, up_shift=1.0, layout=layout))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "columns"), [(5, 256), (70, 133), (150, 384)])
def test_batched(device, scales, layout, m, columns) -> None:
    """Matrices in the middle of A and D, in front of B."""
    a, b = operands("bf16", device, (m, 3, K), (3, 2 * columns, K))
    gate = SwiGLU(layout=layout)
    wide, out = torch.empty(3, m, columns, device=device), QuantisedOutput((3, m, columns), scales, device)
    deep_gemm.einsum("bhr,hdr->bhd", a, b, wide.transpose(0, 1), epilogue=gate)
    deep_gemm.einsum("bhr,hdr->bhd", a, b, tuple(part.transpose(0, 1) for part in out.pair), epilogue=gate)
    every = torch.ones(3, m, dtype=torch.bool, device=device)
    out.check(wide, every, ~every)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("scales", SCALES)
def test_behind_the_other_steps(device, scales) -> None:
    weights = random_values((40,), device, 3)
    for gate in (GeGLU(), GeGLU("interleaved", approximate="none")):
        dense("bf16", device, 40, 272, columns=136).check(
            scales, device, epilogue=Chain(Alpha(-0.3), gate, RowScale(weights))
        )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", on_simulator("any"), indirect=True)
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("draw", range(16))
def test_every_tile(device, arch, scales, draw) -> None:
    """Sums of small integers, exact in any order: the same bits from whatever tile a call may be forced to take."""
    deep_gemm.set_batch_invariant(False)  # split K too
    m, k = 150, 768
    generator = random.Random(f"{scales} {draw}")
    columns = generator.choice([512, 507])
    layout = generator.choice(LAYOUTS)
    a, b = (random_values(shape, device, 6).mul(2).round().bfloat16() for shape in ((m, k), (2 * columns, k)))
    field = {f"quantised{'_words' if SCALES[scales][2] == 4 else ''}": SCALES[scales][1]}
    gate = SwiGLU(layout=layout)
    wide, out = torch.empty(m, columns), QuantisedOutput((m, columns), scales, device)
    deep_gemm.bf16_gemm_nt(a, b, wide, epilogue=gate)
    with deep_gemm.simulator.options(target=TARGETS[arch]):
        sms = C.device_facts(True, 0)["num_sms"]
        found = [c for c in candidates(m, 2 * columns, k, sms, TARGETS[arch], bf16=1, gate=1, **field) if can_serve(c)]
        assert {c.swapped for c in found} == {False, True}
        assert any(c.cluster > 1 for c in found) == (arch != "sm80")
        kinds = sorted({(c.swapped, c.cluster_shape, c.k_warpgroups) for c in found})
        kind = kinds[draw % len(kinds)]
        candidate = generator.choice([c for c in found if (c.swapped, c.cluster_shape, c.k_warpgroups) == kind])
        with forced(device, m, 2 * columns, k, candidate):
            deep_gemm.bf16_gemm_nt(a, b, out.pair, epilogue=gate)
    every = torch.ones(m, dtype=torch.bool)
    out.check(wide, every, ~every)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_int8(device) -> None:
    product = dense("bf16", device, 33, 528, columns=264)
    wide = torch.empty(33, 264, device=device)
    q, s = GuardedOutput((33, 264), torch.int8, device), GuardedOutput((3, 36), torch.float32, device)
    product.call(wide, epilogue=SwiGLU())
    product.call((q.tensor, s.tensor[:, :33].T), epilogue=SwiGLU())
    q.check(complete=False)
    groups = torch.nn.functional.pad(wide, (0, 120)).view(33, 3, 128)
    most = torch.full((), 127.0, device=device)  # on the device: torch multiplies by the reciprocal of a number
    scales = groups.abs().amax(-1).clamp(min=1e-4) / most
    codes = torch.round(groups / scales[..., None]).clamp(-127, 127).view(33, 384)[:, :264]
    assert torch.equal(s.tensor[:, :33].T, scales)
    assert torch.equal(q.tensor, codes.to(torch.int8))
