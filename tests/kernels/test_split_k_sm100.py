"""SM100: CTAs of a cluster, any number of up to eight, share K of a tile and add up."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from devices import SCHEDULES, on_simulator
from inputs import GuardedOutput, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator

ON_SM100 = pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm100"), indirect=True)


@pytest.mark.sampled(16)
@ON_SM100
@pytest.mark.parametrize(("m", "cols"), [(5, 16), (70, 80)])
@pytest.mark.parametrize("ctas", range(2, 9))
@pytest.mark.parametrize("fp32_scales", [False, True])
def test_any_number_of_ctas(device, ctas, m, cols, fp32_scales) -> None:
    """Chunks of the tile are fewer or more than CTAs; of six K blocks some CTAs have none."""
    n, k = 200, 128 * 6
    a, b = random_rows((m, k), device, ctas), random_blocks((n, k), device, 2)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with simulator.options(num_sms=2 * ctas), forced_tile(device, (m, n, k), True, 128, cols, (1, 1, ctas)):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, disable_ue8m0_cast=fp32_scales)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))
    report = simulator.last_report()
    assert report is not None
    assert report.statistics["blocks"] == 2 * ctas
    assert report.kernel.endswith(f"cluster1x1x{ctas}")
