"""GPUs without wgmma differ: in shared memory, and in whether they multiply E4M3. Each of their targets gets kernels of
its own, which run on the simulator as such a GPU."""

from __future__ import annotations

import re
from binascii import crc32
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from devices import SCHEDULES, TARGETS, on_simulator
from field_calls import kernel_of
from inputs import CONVERTING_TARGETS, FP8, GuardedOutput, Operand, converts_e4m3, random_rows
from matrix import Case, cases
from reference import assert_matches, product_nt
from test_matrix import SIZES, run_case

import deep_gemm
from deep_gemm._targets import BLACKWELL_TARGETS, GPUS, HOPPER_TARGET

TARGETS_OF_SM80 = [target for target in GPUS if target != HOPPER_TARGET and target not in BLACKWELL_TARGETS]
ROWS = {"recipe": (1, 1, 128)}
ONE_OF_EACH = pytest.mark.parametrize(
    "device", [*on_simulator("any", arch="sm_80"), *on_simulator("any", arch="sm_89")], indirect=True
)


@dataclass(frozen=True)
class Drawn:
    case: Case
    size: tuple[int, int, int]


def parameter_sets() -> list:
    """Every case of the pair table on every target that test_matrix.py leaves out, each with one size and schedule."""
    sets = []
    of_arch = [case for case in cases() if case.pair.arch == "sm80"]
    for number, (case, target) in enumerate(product(of_arch, TARGETS_OF_SM80)):
        if target == TARGETS["sm80"]:
            continue
        (device,) = on_simulator(SCHEDULES[number % len(SCHEDULES)], arch=target)
        drawn = Drawn(case, SIZES[crc32(f"{case} {target}".encode()) % len(SIZES)])
        sets.append(pytest.param(device.values[0], drawn, id=f"{target}-{case}"))
    return sets


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("device", "drawn"), parameter_sets(), indirect=["device"])
def test_what_the_pair_table_has_is_multiplied_on_each_target(device, drawn, request) -> None:
    run_case(drawn.case, device, drawn.size, request.node.name)


@pytest.mark.parametrize("target", TARGETS_OF_SM80)
def test_e4m3_is_multiplied_by_chips_that_can_and_converted_elsewhere(target) -> None:
    text = str(kernel_of("dense", {"m": 64, "n": 256, "k": 512, "num_sms": 80}, target)["text"])
    (multiplied_as,) = re.findall(r"multiplied_as = Element::(\w+)", text)
    assert multiplied_as == ("fp16" if target in CONVERTING_TARGETS else "e4m3")


@ONE_OF_EACH
def test_every_e4m3_value_is_multiplied_exactly(device) -> None:
    """Subnormal ones too. (NaN: test_nan_codes.py.)"""
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    data = torch.zeros((256, 16), dtype=torch.uint8, device=device)
    data[:, 3] = codes
    a = Operand(data.view(FP8), torch.ones((256, 1), device=device))
    b = Operand(data.flip(0).contiguous().view(FP8), a.scales)
    d = torch.empty((256, 256), device=device)
    deep_gemm.fp8_gemm_nt(a, b, d, **ROWS)
    values = codes.view(FP8).double()
    if converts_e4m3(device):
        values[values.isnan()] = torch.tensor([480.0, -480.0], dtype=torch.float64)
    expected = values[:, None] * values.flip(0)
    assert torch.equal(d.double().isnan(), expected.isnan())
    assert torch.equal(d.double().nan_to_num(0), expected.nan_to_num(0))


@ONE_OF_EACH
@pytest.mark.parametrize("log2", [(120, -110), (-110, 120), (100, 0), (0, -100), (63, 37), (-50, -50)])
def test_scales_as_large_and_small_as_fp32_has(device, log2) -> None:
    """No sum is multiplied by one of them before the other: 2^120 times a sum of 2^20 is infinite."""
    a, b = random_rows((70, 400), device, 0), random_rows((40, 400), device, 1)
    a, b = (Operand(x.data, x.scales * 2.0**each) for x, each in zip((a, b), log2, strict=True))
    out = GuardedOutput((70, 40), torch.float32, device)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, **ROWS)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))


@ONE_OF_EACH
@pytest.mark.parametrize("what", ["data", "scales"])
def test_zeros(device, what) -> None:
    """Of one K block of A, and of all of a row: nothing else changes."""
    a, b = random_rows((20, 400), device, 0), random_rows((40, 400), device, 1)
    if what == "data":
        data = a.data.view(torch.uint8).clone()
        data[:, 128:256], data[3] = 0x80, 0  # of either sign
        a = Operand(data.view(FP8), a.scales)
    else:
        a.scales[:, 1] = a.scales[3] = 0
    out = GuardedOutput((20, 40), torch.float32, device)
    deep_gemm.fp8_gemm_nt(a, b, out.tensor, **ROWS)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))
    assert not out.tensor[3].any()
