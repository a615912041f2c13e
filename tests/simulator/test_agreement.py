"""The simulator against the GPU: the same kernel on the same inputs, config by config.

Both add up the same products in the same blocks of 128 of K; only the order inside an instruction, and Hopper's 13 bits
there, differ. With DG_TEST_RECORD=FILE what was found is written there; tests/data/h200_agreement.jsonl is such a file,
and tests/simulator/test_agreement_record.py runs the simulator's half again on machines without a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import agreement
import pytest
import torch
from candidates import forced
from reference import TOLERANCES, difference, product_nt

from deep_gemm import jit, simulator
from deep_gemm._targets import HOPPER_SMS

pytestmark = pytest.mark.gpu


def header() -> dict:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip(),
        "compiler": jit.compiler_info()["identity"],
        "torch": torch.__version__,
        "compared": "fp8_gemm_nt, BF16 output: the GPU's against the simulator's (both of the same inputs and config) "
        "and each against FP64. Errors are relative to sum |a||b|, less the rounding to BF16",
    }


def write(path: Path, records: list[dict]) -> None:
    with path.open("a") as file:
        if file.tell() == 0:
            records = [header(), *records]
        file.writelines(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(("m", "n", "k"), agreement.PROBLEMS)
def test_the_simulator_agrees_with_the_gpu(cuda, m, n, k) -> None:
    a, b = agreement.operands(m, n, k)
    expected = product_nt(a, b)
    records = []
    for config in agreement.configs(m, n, k):
        with (
            simulator.options(num_sms=HOPPER_SMS),
            forced(torch.device("cpu"), m, n, k, config),
            forced(cuda, m, n, k, config),
        ):
            simulated, real = agreement.multiply(a, b, torch.device("cpu")), agreement.multiply(a, b, cuda)
        # Rounding to BF16 may turn a tiny difference into one unit in the last place, which is 2**-7 of the value.
        apart = (simulated.double() - real.double()).abs() - 2.0**-7 * expected.value.abs()
        largest = (apart / expected.magnitude).max().item()
        records.append(
            {
                **agreement.config_part(m, n, k, config),
                **agreement.simulated_part(a, b, simulated, expected),
                "gpu_sha256": agreement.digest(real),
                "gpu_error": difference(real, expected).largest,
                "equal_elements": (simulated == real).double().mean().item(),
                "largest_difference": largest,
            }
        )
        assert largest <= TOLERANCES["cuda"][0], records[-1]
    if "DG_TEST_RECORD" in os.environ:
        write(Path(os.environ["DG_TEST_RECORD"]), records)
