"""Random calls of index logits, of every form on every target (tests/support/random_logits.py)."""

from __future__ import annotations

import pytest
from devices import ON_GPU, on_simulator
from random_logits import check_one

from deep_gemm import simulator

TARGETS = ("sm80", "sm90", "sm100", "sm_120a")
DEVICES = [*(device for target in TARGETS for device in on_simulator("any", arch=target)), *ON_GPU]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("seed", range(100))
def test_random_calls(device, seed) -> None:
    with simulator.options(num_sms=(1, 2, 4, 7)[seed % 4]):
        check_one(seed, device)
