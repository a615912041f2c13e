"""mma.sync on the GPU against the simulator, from the same registers: integers to the bit, floats up to rounding."""

from __future__ import annotations

import pytest
import torch
from test_mma_sync import FLOATS, bits_of, packed_rows, random_matrix
from test_mma_sync_functions import KINDS, ROW_BYTES

from deep_gemm._extension import C

pytestmark = pytest.mark.gpu

KERNEL = """
#include <deep_gemm/ptx/mma_sync.cuh>
using namespace deep_gemm;
struct Params { const uint32_t *a, *b; const SUM* c; SUM* d; long steps; };
extern "C" __global__ void mma_agreement(const __grid_constant__ Params p) {
    const long lane = threadIdx.x;
    SUM sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = p.c[lane * 4 + i];
    for (long step = 0; step < p.steps; ++step) {
        uint32_t a[4], b[2];
        for (int i = 0; i < 4; ++i) a[i] = p.a[(step * 32 + lane) * 4 + i];
        for (int i = 0; i < 2; ++i) b[i] = p.b[(step * 32 + lane) * 2 + i];
        ptx::mma_KIND(sums, a, b);
    }
    for (int i = 0; i < 4; ++i) p.d[lane * 4 + i] = sums[i];
}
"""
STEPS = 32
LARGEST = 2.0**-17  # of |c| + sum |a||b|: a tensor core cuts terms off where the largest one's last bit is


def registers(kind: str, of_a: bool) -> torch.Tensor:
    """[steps, lanes, registers] of random elements."""
    count = 4 if of_a else 2
    k = ROW_BYTES * 8 // bits_of(kind)
    return packed_rows(kind, random_matrix(kind, STEPS * 4 * count, k)).view(STEPS, 32, count).contiguous()


def multiply(kinds: str, device: torch.device, *given: torch.Tensor) -> torch.Tensor:
    a, b, c = (tensor.to(device) for tensor in given)
    d = torch.zeros_like(c)
    text = KERNEL.replace("KIND", kinds).replace("SUM", "float" if c.is_floating_point() else "int32_t")
    C.jit_launch("mma_agreement", text, 1, 32, 1, 0, False, [a, b, c, d], [STEPS])
    return d.cpu()


@pytest.mark.parametrize("kinds", KINDS)
def test_the_simulator_agrees_with_the_gpu(cuda, kinds: str) -> None:
    kind_a, kind_b = kinds.split("_") if "_" in kinds else (kinds, kinds)
    torch.manual_seed(0)
    a, b = registers(kind_a, True), registers(kind_b, False)
    is_float = kind_a in FLOATS
    c = torch.randn(32, 4) if is_float else torch.randint(-(2**31), 2**31, (32, 4)).int()  # sums wrap around
    simulated, real = multiply(kinds, torch.device("cpu"), a, b, c), multiply(kinds, cuda, a, b, c)
    if not is_float:
        assert torch.equal(simulated, real)
        return
    # Signs off: what all terms of a sum add up to at most.
    sign = {16: 0x7FFF7FFF, 32: 0x7FFFFFFF, 8: 0x7F7F7F7F}[bits_of(kind_a)]
    magnitude = multiply(kinds, torch.device("cpu"), a & sign, b & sign, c.abs())
    assert ((simulated - real).abs() <= LARGEST * magnitude).all()
