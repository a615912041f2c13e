"""What GPUs of one target differ in (csrc/config/cards.hpp) decides picks, by the cost model."""

from __future__ import annotations

import math

import pytest
from candidates import Candidate, parse
from estimates import constants_of
from fake_driver import lines_of
from field_calls import explain, kernel_of

import deep_gemm
from deep_gemm._extension import C
from deep_gemm._targets import GPUS

H100, H200, H20 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA H20"
A100, A800, RTX_4090 = "NVIDIA A100-SXM4-80GB", "NVIDIA A800-SXM4-80GB", "NVIDIA GeForce RTX 4090"
CARDS = C.gpus().split(", ")
READING = {"m": 75, "n": 42304, "k": 12928}  # 547 MB of weights


def pick(gpu: str | None, target: str = "sm_90a", **fields: int) -> Candidate:
    return parse(explain("dense", fields, target, gpu))[0]


def config(gpu: str | None, target: str = "sm_90a", **fields: int) -> tuple:
    best = pick(gpu, target, **fields)
    return best.swapped, best.rows, best.cols, best.cluster_shape, best.k_warpgroups


@pytest.mark.parametrize("gpu", CARDS)
def test_tensor_cores_multiply_what_they_can(gpu) -> None:
    """A power of two a cycle and SM, up to a sheet that gives rates at a lower clock than the boost clock: what a slip
    of the pen in SMs, clock or rates would break."""
    facts = C.card_facts(gpu)
    assert facts["watts"] > 0
    for name in ("products_per_cycle", "integer_products_per_cycle"):
        power = 2 ** round(math.log2(facts[name]))
        assert 0.92 * power < facts[name] < 1.01 * power, name


def test_the_first_gpu_of_a_target_stands_for_it() -> None:
    numbers = [C.card_facts(gpu)["target"] for gpu in CARDS]
    for number in set(numbers):
        target = next(name for name in GPUS if name.rstrip("af") == f"sm_{number}")
        first = CARDS[numbers.index(number)]
        assert C.card_facts(first)["num_sms"] == GPUS[target].sms
        assert config(None, target, **READING) == config(first, target, **READING)


def test_where_reading_is_all_an_h100_takes_longer_than_an_h200_and_another_tile() -> None:
    ours, theirs = pick(H200, **READING), pick(H100, **READING)
    assert config(H200, **READING) != config(H100, **READING)
    assert 1.2 < theirs.cost / ours.cost < 4800 / 3350


def test_where_products_are_all_they_do_not_differ() -> None:
    sizes = {"m": 4096, "n": 7168, "k": 16384}
    assert config(H200, **sizes) == config(H100, **sizes)
    assert pick(H100, **sizes).cost < 1.02 * pick(H200, **sizes).cost


def test_an_h20_has_slower_tensor_cores_and_fewer_sms() -> None:
    sizes = {"m": 4096, "n": 7168, "k": 16384}
    slower = pick(H20, **sizes).cost / pick(H200, **sizes).cost
    assert slower > 4  # 296 TFLOPS of FP8 for 1,979
    few = {"m": 1, "n": 7168, "k": 16384}
    assert pick(H20, **few).cost < 1.5 * pick(H200, **few).cost


def test_half_the_power_is_less_than_fewer_sms_take() -> None:
    """Of an H100 PCIe: with an H200's watts its SMs and their clock would make it 1.31 times."""
    sizes = {"m": 4096, "n": 7168, "k": 16384}
    slower = pick("NVIDIA H100 PCIe", **sizes).cost / pick(H200, **sizes).cost
    assert 1.45 < slower < 2


def tile_on_a_fake_gpu(**driver: str) -> str:
    """Of the kernel that a GPU gets whose name no table has."""
    code = """
m, n, k = 32, 32768, 512
a, b, d = fp8(m, k), fp8(n, k), torch.zeros(m, n).bfloat16()
sfa, sfb = torch.ones(k // 128, m).T, torch.ones(n // 128, k // 128)
a, sfa, b, sfb, d = [pose_as_cuda(each, 0) for each in (a, sfa, b, sfb, d)]
deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
"""
    (entry,) = (line for line in lines_of(code, "9.0", **driver) if line.startswith("entry "))
    return entry.rpartition("dense")[2]


def test_a_gpu_that_no_table_has_is_what_its_driver_says() -> None:
    """Of an H100's memory clock, it gets an H100's kernel; of an H200's, or of none, an H200's."""
    sizes = {"m": 32, "n": 32768, "k": 512}
    of_h100, of_h200 = (str(kernel_of("dense", sizes, gpu=gpu)["name"]).rpartition("dense")[2] for gpu in (H100, H200))
    assert of_h100 != of_h200
    clock = {"FAKE_CLOCK_KHZ": "1980000"}
    assert tile_on_a_fake_gpu(**clock, FAKE_MEMORY_CLOCK_KHZ="2619000") == of_h100
    assert tile_on_a_fake_gpu(**clock, FAKE_MEMORY_CLOCK_KHZ="3750000") == of_h200
    assert tile_on_a_fake_gpu() == of_h200


def sm80_constants(gpu: str, target: str) -> dict[str, float]:
    return constants_of("dense", {"m": 64, "n": 4096, "k": 4096}, target, gpu)


def test_an_h100_that_stands_in_has_what_constants_were_fitted_to() -> None:
    constants = sm80_constants(H100, "sm_80")
    fitted = {"clock_mhz": 1750, "memory_bytes_per_cycle": 13, "products_per_cycle": 1024, "bytes_under_way": 36 << 10}
    assert {name: constants[name] for name in fitted} == pytest.approx(fitted)


def test_each_gpu_of_the_sm80_family_has_its_own_figures() -> None:
    assert sm80_constants(A100, "sm_80") == sm80_constants(A800, "sm_80")
    assert sm80_constants(A100, "sm_80")["clock_mhz"] < 1300
    targets = {gpu: f"sm_{C.card_facts(gpu)['target']}" for gpu in CARDS if C.card_facts(gpu)["target"] < 90}
    constants = {gpu: sm80_constants(gpu, target) for gpu, target in targets.items()}
    for gpu, found in constants.items():
        facts = C.card_facts(gpu)
        read = found["memory_bytes_per_cycle"] * found["clock_mhz"] * facts["num_sms"] / 1e3
        assert 0.85 * facts["memory_gb_per_s"] < read < 0.95 * facts["memory_gb_per_s"]
    # A GeForce adds products of 16 bits up in FP32 at half of the rate, integers at all of it.
    geforce, other = constants[RTX_4090], constants["NVIDIA L40S"]
    assert other["products_per_cycle"] == pytest.approx(2 * geforce["products_per_cycle"], rel=0.02)
    assert geforce["integer_products_per_cycle"] == other["integer_products_per_cycle"]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with (
        pytest.raises(ValueError, match=r"^gpu must be one of NVIDIA H200, .*, got 'H200'$"),
        deep_gemm.jit.record("sm_90a", gpu="H200"),
    ):
        pass


@pytest.mark.parametrize(("target", "gpu"), [("sm_90a", "NVIDIA L4"), ("sm_100a", H200), ("sm_89", "NVIDIA A10")])
def test_a_gpu_that_cannot_run_the_target_is_refused(target, gpu) -> None:
    says = rf"^gpu must run code for {target}, got {gpu}, which runs that for sm_{C.card_facts(gpu)['target']}$"
    with pytest.raises(ValueError, match=says), deep_gemm.jit.record(target, gpu=gpu):
        pass
