"""The simulator against the GPU: the same kernel on the same inputs, config by config.

Both add up the same products in the same blocks of 128 of K; only the order inside an instruction, and Hopper's 13 bits
there, differ. With DG_TEST_RECORD=FILE what was found is written there as JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from candidates import HOPPER_SMS, candidates, forced
from inputs import Operand, random_blocks, random_rows
from reference import TOLERANCES, difference, product_nt

import deep_gemm
from deep_gemm import simulator

pytestmark = pytest.mark.gpu

PROBLEMS = [(1, 136, 272), (33, 100, 400), (64, 256, 512), (129, 264, 640), (200, 512, 1024), (256, 384, 784)]
CONFIGS_OF_EACH = 5


def run(a: Operand, b: Operand, device: torch.device) -> torch.Tensor:
    a, b = (Operand(operand.data.to(device), operand.scales.to(device)) for operand in (a, b))
    d = torch.full((a.data.shape[0], b.data.shape[0]), float("nan"), dtype=torch.bfloat16, device=device)
    deep_gemm.fp8_gemm_nt(a, b, d)
    return d.cpu()


@pytest.mark.parametrize(("m", "n", "k"), PROBLEMS)
def test_the_simulator_agrees_with_the_gpu(cuda, m, n, k) -> None:
    a, b = random_rows((m, k), "cpu", 0), random_blocks((n, k), "cpu", 1)
    expected = product_nt(a, b)
    legal = [candidate for candidate in candidates(m, n, k, HOPPER_SMS) if candidate.refusal is None]
    records = []
    for candidate in legal[:: max(1, len(legal) // CONFIGS_OF_EACH)]:
        with (
            simulator.options(num_sms=HOPPER_SMS),
            forced(torch.device("cpu"), m, n, k, candidate),
            forced(cuda, m, n, k, candidate),
        ):
            simulated, real = run(a, b, torch.device("cpu")), run(a, b, cuda)
        # Rounding to BF16 may turn a tiny difference into one unit in the last place, which is 2**-7 of the value.
        apart = (simulated.double() - real.double()).abs() - 2.0**-7 * expected.value.abs()
        largest = (apart / expected.magnitude).max().item()
        records.append(
            {
                "m": m,
                "n": n,
                "k": k,
                "config": str(candidate),
                "equal_elements": (simulated == real).double().mean().item(),
                "largest_difference": largest,
                "simulator_error": difference(simulated, expected).largest,
                "gpu_error": difference(real, expected).largest,
            }
        )
        assert largest <= TOLERANCES["cuda"][0], records[-1]
    if "DG_TEST_RECORD" in os.environ:
        with Path(os.environ["DG_TEST_RECORD"]).open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
