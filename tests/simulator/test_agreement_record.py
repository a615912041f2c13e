"""What an H200 computed, against today's simulator: the record of test_agreement.py, run again without a GPU.

The file is written on a GPU by `DG_TEST_RECORD=FILE python3 -m pytest -m gpu tests/simulator/test_agreement.py`. Where
a pair holds digests, the simulator must still compute those very bytes: then what the record says of the GPU's result
(how many elements are equal, how far the others are) holds for the simulator of today.
"""

from __future__ import annotations

from pathlib import Path

import agreement
import pytest
import torch
from candidates import forced
from reference import TOLERANCES, product_nt

from deep_gemm import simulator
from deep_gemm._targets import HOPPER_SMS

RECORD = Path(__file__).resolve().parents[1] / "data" / "h200_agreement.jsonl"
HEADERS, PAIRS = agreement.read(RECORD)
FEWEST_PAIRS = 20
# FP64 products add up in another order on another machine.
ROUNDING_OF_ERRORS = 1e-12


def name(pair: dict) -> str:
    return "{m}x{n}x{k}-{frame}-".format(**pair) + "x".join(map(str, [*pair["tile"], *pair["cluster"]]))


def test_the_record_says_where_it_comes_from() -> None:
    assert HEADERS
    for header in HEADERS:
        assert all(header[fact] for fact in ("gpu", "driver", "compiler", "compared"))


def test_the_record_has_every_kind_of_config() -> None:
    assert len(PAIRS) >= FEWEST_PAIRS, f"{RECORD} holds {len(PAIRS)} pairs: record on a GPU again"
    found = [agreement.config_of(pair) for pair in PAIRS]
    missing = [kind for kind, is_of_kind in agreement.KINDS.items() if not any(map(is_of_kind, found))]
    assert not missing, f"no pair in {RECORD} has a config of these kinds: {missing}"


@pytest.mark.parametrize("pair", PAIRS, ids=name)
def test_the_gpu_agreed(pair) -> None:
    """FP8 tensor cores keep fewer bits than the simulator: most elements are equal in BF16, none is far away."""
    largest = TOLERANCES["cuda"][0]
    assert pair["largest_difference"] <= largest
    assert pair["gpu_error"] <= largest
    assert pair["equal_elements"] > 0.9


@pytest.mark.sampled(12)
@pytest.mark.parametrize("pair", PAIRS, ids=name)
def test_the_simulator_still_computes_what_it_did(pair) -> None:
    m, n, k = (pair[extent] for extent in "mnk")
    a, b = agreement.operands(m, n, k)
    cpu = torch.device("cpu")
    with simulator.options(num_sms=HOPPER_SMS), forced(cpu, m, n, k, agreement.config_of(pair)):
        simulated = agreement.multiply(a, b, cpu)
    found = agreement.simulated_part(a, b, simulated, product_nt(a, b))
    recorded = {key: pair[key] for key in ("inputs_sha256", "simulator_sha256") if key in pair}
    assert {key: found[key] for key in recorded} == recorded
    assert found["simulator_error"] == pytest.approx(pair["simulator_error"], abs=ROUNDING_OF_ERRORS)
    # Equal bytes on the GPU and here, or not, as the record says.
    if "gpu_sha256" in pair:
        assert (found["simulator_sha256"] == pair["gpu_sha256"]) == (pair["equal_elements"] == 1)
