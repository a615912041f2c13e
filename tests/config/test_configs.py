"""Every config that selection may choose gives the right result, not only those that it chooses for the other tests."""

from __future__ import annotations

import pytest
import torch
from candidates import candidates, forced, straight, target_of
from devices import FEW, ON_EACH_ARCH
from inputs import GuardedOutput, is_blackwell, random_blocks, random_rows
from reference import BLACKWELL_TOLERANCES, Product, difference, product_nt
from reference import TOLERANCES as ALLOWED

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import HOPPER_SMS

# Rows and columns that end inside tiles of every size, and shapes whose blocks divide into clusters.
GPU_PROBLEMS = [(129, 264, 400), (512, 768, 1152), (40, 1032, 784), (1000, 2112, 528)]
SIMULATOR_PROBLEMS = [(130, 264, 272), (256, 256, 384)]
PARTS = 12


def check_configs(device: torch.device, m: int, n: int, k: int, chosen: slice) -> None:
    a, b = random_rows((m, k), device, 0), random_blocks((n, k), device, 1)
    expected: Product = product_nt(a, b)
    wrong = []
    scales = {"fp32_scales": int(deep_gemm.get_fp32_scales(device))}
    every = candidates(m, n, k, HOPPER_SMS, target_of(device), **scales)
    legal = [candidate for candidate in every if candidate.rejection is None]
    for candidate in legal[chosen]:
        out = GuardedOutput((m, n), torch.bfloat16, device)
        # CTAs that split K have one tile each; others have several.
        some = simulator.options(num_sms=HOPPER_SMS if candidate.cluster_shape[2] > 1 else 4)
        with some, forced(device, m, n, k, candidate):
            deep_gemm.fp8_gemm_nt(a, b, out.tensor)
        try:
            out.check()
            found = difference(out.tensor, expected)
            allowed = BLACKWELL_TOLERANCES if is_blackwell(device) else ALLOWED
            assert found.within(allowed[device.type]), str(found)
        except AssertionError as error:
            wrong.append(f"{candidate}: {error}")
    assert legal
    assert not wrong, f"{len(wrong)} of {len(legal[chosen])} configs are wrong:\n" + "\n".join(wrong)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k"), GPU_PROBLEMS)
def test_on_the_gpu(cuda, m, n, k) -> None:
    check_configs(cuda, m, n, k, slice(None))


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", ON_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("m", "n", "k"), SIMULATOR_PROBLEMS)
def test_on_the_simulator(device, m, n, k, part) -> None:
    """A third of them: each must be compiled."""
    check_configs(device, m, n, k, slice(3 * part, None, 3 * PARTS))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("cluster_cols", [1, 2])
@pytest.mark.parametrize("k", [64, 128, 144, 256, 400])
def test_few_k_blocks_of_two_times_64_rows(device, k, cluster_cols) -> None:
    """256x128 has half a K block before its loop, and half of one behind it."""
    m, n = 300, 392
    a, b = random_rows((m, k), device, 2), random_blocks((n, k), device, 3)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with forced(device, m, n, k, straight(candidates(m, n, k, HOPPER_SMS), 256, 128, (1, cluster_cols, 1))):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert difference(out.tensor, product_nt(a, b)).within(ALLOWED[device.type])
