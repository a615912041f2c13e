"""Kernels of the family target and of B300's, which run on the simulator as such a GPU."""

from __future__ import annotations

from binascii import crc32
from itertools import product

import pytest
from devices import SCHEDULES, TARGETS, on_simulator
from field_calls import kernel_of
from matrix import Case, cases
from test_matrix import SIZES, run_case

from deep_gemm._targets import BLACKWELL_TARGETS, GPUS


def parameter_sets() -> list:
    """Every case of the pair table on the targets that test_matrix.py leaves out, each with one size and schedule."""
    sets = []
    of_arch = [case for case in cases() if case.pair.arch == "sm100" and case.pair.sum != "s32"]  # sm_100a's alone
    for number, (case, target) in enumerate(product(of_arch, BLACKWELL_TARGETS)):
        if target == TARGETS["sm100"]:
            continue
        (device,) = on_simulator(SCHEDULES[number % len(SCHEDULES)], arch=target)
        size = SIZES[crc32(f"{case} {target}".encode()) % len(SIZES)]
        sets.append(pytest.param(device.values[0], case, size, id=f"{target}-{case}"))
    return sets


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("device", "case", "size"), parameter_sets(), indirect=["device"])
def test_what_the_pair_table_has_is_multiplied_on_each_target(device, case: Case, size, request) -> None:
    run_case(case, device, size, request.node.name)


@pytest.mark.parametrize("fields", [{}, {"fp32_scales": 1}, {"bf16": 1}, {"e2m1r": 1}], ids=str)
def test_targets_have_one_source(fields) -> None:
    problem = {"m": 300, "n": 4096, "k": 7168, "num_sms": GPUS["sm_103a"].sms, **fields}
    assert len({str(kernel_of("dense", problem, target)["text"]) for target in BLACKWELL_TARGETS}) == 1
