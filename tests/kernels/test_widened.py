"""Where tensor cores take no E4M3, a kernel ahead of a large product converts A, which its warps would convert again
and again: each sum keeps every bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from batched_inputs import fp8_batch
from candidates import forced_tile, parse
from devices import devices_of
from field_calls import explain, kernel_of
from grouped_inputs import contiguous, masked, run_experts
from inputs import FP8, GuardedOutput, Operand, random_blocks, random_rows, with_row_padding
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator
from deep_gemm._targets import GPUS

DEVICES = pytest.mark.parametrize("device", devices_of("sm80", "any"), indirect=True)
N, K = 72, 400  # K ends inside a block of 128
COUNTS = [5, 0, 130, 1]  # experts' rows
ROWS = {"recipe": (1, 1, 128)}

Run = Callable[[torch.device], torch.Tensor]


def dense(rows: Callable[[Operand], Operand], per_row: bool = False) -> Run:
    def run(device: torch.device) -> torch.Tensor:
        a, b = random_rows((70, K), device, 0), (random_rows if per_row else random_blocks)((N, K), device, 1)
        out = GuardedOutput((70, N), torch.float32, device)
        deep_gemm.fp8_gemm_nt(rows(a), b, out.tensor, **(ROWS if per_row else {}))
        out.check()
        assert_matches(out.tensor, product_nt(a, b))
        return out.tensor

    return run


def mn_major_a(device: torch.device) -> torch.Tensor:
    a, b, d = random_rows((80, K), device, 0), random_blocks((N, K), device, 1), torch.empty((80, N), device=device)
    deep_gemm.fp8_gemm_tn((a.data.T.contiguous(), a.scales.T), (b.data.T.contiguous(), b.scales.T), d)
    assert_matches(d, product_nt(a, b))
    return d


def experts(kind: str) -> Run:
    def run(device: torch.device) -> torch.Tensor:
        case = masked(COUNTS, 140, N, K, device) if kind == "masked" else contiguous(COUNTS, N, K, device)
        out = case.output()
        run_experts(case, out.tensor, 64, psum=kind == "m_psum")
        case.check(out.tensor)
        return torch.cat([out.tensor[i, :count] for i, count in enumerate(COUNTS)]) if kind == "masked" else out.tensor

    return run


def batched(device: torch.device) -> torch.Tensor:
    batch = fp8_batch("bhr,hdr->bhd", 3, 70, N, K, device)
    d = torch.zeros((70, 3, N), dtype=torch.bfloat16, device=device)
    batch.run(d)
    batch.check(d)
    return d


RUNS: dict[str, Run] = {
    "dense": dense(lambda a: a),
    "strided-rows": dense(lambda a: Operand(with_row_padding(a.data, 32), a.scales)),
    "rows-off-16-bytes": dense(lambda a: Operand(with_row_padding(a.data, 3), a.scales)),
    "scales-of-both-rows": dense(lambda a: a, per_row=True),
    "mn-major": mn_major_a,
    **{kind: experts(kind) for kind in ("m_contiguous", "m_psum", "masked")},
    "batched": batched,
}


@DEVICES
@pytest.mark.parametrize("kind", RUNS)
def test_sums_are_those_of_conversion_in_registers(device, kind) -> None:
    with simulator.options(num_sms=3):
        found = []
        for preconvert in ("none", "a"):
            with forced_tile(device, (70, N, K), False, 64, 64, preconvert=preconvert):
                found.append(RUNS[kind](device))
    assert torch.equal(*(d.contiguous().view(torch.int8 if d.itemsize == 1 else torch.uint8) for d in found))


@DEVICES
def test_every_value_and_scale_is_multiplied_exactly(device) -> None:
    """All codes by all codes, a product a sum, times large and small scales. NaN counts as 480."""
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    data = torch.zeros((256, 16), dtype=torch.uint8, device=device)
    data[:, 3] = codes
    scales = torch.full((256, 1), 2.0**120, device=device)
    a = Operand(data.view(FP8), scales)
    b = Operand(data.flip(0).contiguous().view(FP8), torch.full_like(scales, 2.0**-110))
    d = torch.empty((256, 256), device=device)
    with simulator.options(num_sms=3), forced_tile(device, (256, 256, 16), False, 64, 64, preconvert="a"):
        deep_gemm.fp8_gemm_nt(a, b, d, **ROWS)
    values = codes.view(FP8).double()
    values[values.isnan()] = torch.tensor([480.0, -480.0], dtype=torch.float64, device=device)
    assert torch.equal(d.double(), values[:, None] * values.flip(0) * 2.0**10)


@DEVICES
def test_a_is_converted_anew_in_each_call(device) -> None:
    a, b = random_rows((64, 128), device, 0), random_blocks((64, 128), device, 1)
    d = torch.empty((64, 64), device=device)
    with forced_tile(device, (64, 64, 128), False, 64, 64, preconvert="a"):
        for seed in range(3):
            a.data.view(torch.uint8).copy_(random_rows((64, 128), device, seed).data.view(torch.uint8))
            deep_gemm.fp8_gemm_nt(a, b, d)
            assert_matches(d, product_nt(a, b))


def widens(target: str, m: int, grouping: str = "dense", **fields: int) -> bool:
    problem = {"m": m, "n": 4096, "k": 7168, "num_sms": GPUS[target].sms, **fields}
    return parse(explain(grouping, problem, target))[0].preconvert == "a"


@pytest.mark.parametrize(
    ("target", "m", "wanted"),
    [
        ("sm_80", 4096, True),
        ("sm_80", 64, False),
        ("sm_80", 1, False),
        ("sm_89", 4096, False),
        ("sm_90a", 4096, False),
    ],
)
def test_a_is_converted_ahead_of_products_of_many_tokens_where_chips_have_no_e4m3(target, m, wanted) -> None:
    assert widens(target, m) == wanted


def test_a_is_converted_ahead_for_large_experts_only() -> None:
    assert widens("sm_80", 8192, "m_contiguous", groups=4)
    assert widens("sm_80", 2048, "masked", groups=8, expected_m=1024)
    assert not widens("sm_80", 2048, "masked", groups=8, expected_m=20)


def test_only_a_of_e4m3_pairs_is_converted_ahead_and_not_of_k_groups() -> None:
    tile = {"m": 256, "n": 256, "k": 256, "num_sms": 108, "tile_rows": 64, "tile_cols": 64, "preconvert": 1}
    assert "_widened" in str(kernel_of("dense", tile, "sm_80")["name"])
    for target, more, grouping in (
        ("sm_80", {"bf16": 1}, "dense"),
        ("sm_80", {"s8": 1}, "dense"),
        ("sm_80", {"per_row_b": 1, "fp32_output": 1, "groups": 2}, "k_contiguous"),
        ("sm_89", {}, "dense"),
        ("sm_90a", {}, "dense"),
    ):
        with pytest.raises(ValueError, match="the config cannot serve the problem: selection knows no such config"):
            kernel_of(grouping, tile | more, target)
