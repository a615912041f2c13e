"""Every tile of GPUs without wgmma, straight and swapped, gives the right result in each layout and grouping that it
may serve: extents end inside tiles of every size."""

from __future__ import annotations

from collections.abc import Callable

import bf16_inputs
import int8_inputs
import k_grouped_inputs as k_grouped
import pytest
import torch
from candidates import Candidate, can_serve, forced, parse
from devices import SCHEDULES, on_simulator
from field_calls import explain
from grouped_inputs import contiguous, masked, run_experts
from inputs import GuardedOutput, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator

M, N, K = 259, 287, 336  # two tiles of 128 and a few rows; K ends inside a block of 64 as of 128
COUNTS = [5, 0, 130]  # experts' rows
MOST = 140
KS = [144, 0, 272]  # of groups
FEW_SMS = 3  # several tiles to each

Run = Callable[[torch.device], None]


def bf16(layout: str) -> Run:
    def run(device: torch.device) -> None:
        a, b = bf16_inputs.operands(M, N, K, device)
        out = GuardedOutput((M, N), torch.bfloat16, device)
        bf16_inputs.call(layout, a, b, out.tensor)
        out.check()
        bf16_inputs.matches(out.tensor, a, b)

    return run


def fp8(per_row: bool) -> Run:
    def run(device: torch.device) -> None:
        a, b = random_rows((M, K), device, 0), (random_rows if per_row else random_blocks)((N, K), device, 1)
        out = GuardedOutput((M, N), torch.float32, device)
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, **({"recipe": (1, 1, 128)} if per_row else {}))
        out.check()
        assert_matches(out.tensor, product_nt(a, b))

    return run


def int8(device: torch.device) -> None:
    a, b = int8_inputs.operands(M, N, K, device)
    out = GuardedOutput((M, N), torch.int32, device)
    deep_gemm.int8_gemm_nt(a, b, out.tensor)
    out.check()
    assert torch.equal(out.tensor.long(), int8_inputs.exact(a, b))


def experts(kind: str) -> Run:
    def run(device: torch.device) -> None:
        case = masked(COUNTS, MOST, N, K, device) if kind == "masked" else contiguous(COUNTS, N, K, device, 128)
        out = case.output()
        run_experts(case, out.tensor, 64, psum=kind == "m_psum")
        out.check(complete=False)
        case.check(out.tensor)

    return run


def k_groups(device: torch.device) -> None:
    k_grouped.run(k_grouped.groups(M, N, KS, device), "tn", "c_is_d")


SIZES = {"m": M, "n": N, "k": K}
OF_EXPERTS = {"m": 128 + 256, "n": N, "k": K, "groups": len(COUNTS), "alignment": 128}
ROW_PADDING = {"m": M + 5, "n": N + 1}  # MN-major operands lie in lines that begin at multiples of 16 bytes
KINDS: dict[str, tuple[str, dict[str, int], Run]] = {
    **{
        f"bf16-{layout}": (
            "dense",
            {
                **SIZES,
                **ROW_PADDING,
                "bf16": 1,
                "mn_major_a": int(layout[0] == "t"),
                "mn_major_b": int(layout[1] == "n"),
            },
            bf16(layout),
        )
        for layout in ("nt", "nn", "tn", "tt")
    },
    "fp8-blocks": ("dense", SIZES, fp8(per_row=False)),
    "fp8-rows": ("dense", {**SIZES, "per_row_b": 1, "fp32_output": 1}, fp8(per_row=True)),
    "int8": ("dense", {**SIZES, "s8": 1, "s32_output": 1}, int8),
    "indices": ("m_contiguous", OF_EXPERTS, experts("m_contiguous")),
    "psum": ("m_psum", OF_EXPERTS, experts("m_psum")),
    "masked": ("masked", {**OF_EXPERTS, "m": MOST, "expected_m": 64}, experts("masked")),
    "k-groups": (
        "k_contiguous",
        {**SIZES, "k": sum(KS), "groups": len(KS), "per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1},
        k_groups,
    ),
}


def parameter_sets() -> list:
    sets = []
    for name, (grouping, fields, _) in KINDS.items():
        found = parse(explain(grouping, {"num_sms": FEW_SMS, **fields}, "sm_80"))
        for number, candidate in enumerate(filter(can_serve, found)):
            (device,) = on_simulator(SCHEDULES[number % len(SCHEDULES)], arch="sm80")
            frame = "swapped" if candidate.swapped else "straight"
            tile = f"{frame}-{candidate.rows}x{candidate.cols}x{candidate.k_warpgroups}-{candidate.preconvert}"
            sets.append(pytest.param(device.values[0], candidate, name, id=f"{name}-{tile}"))
    return sets


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("device", "candidate", "kind"), parameter_sets(), indirect=["device"])
def test_every_tile_is_right(device, candidate: Candidate, kind) -> None:
    m = sum(-(-count // 128) * 128 for count in COUNTS) if kind in ("indices", "psum") else M
    with simulator.options(num_sms=FEW_SMS), forced(device, m, N, K, candidate):
        KINDS[kind][2](device)


def test_the_tiles_are_all_of_them() -> None:
    """Each that selection knows serves some kind of call."""
    known = {
        (x.swapped, x.rows, x.cols, x.k_warpgroups)
        for x in parse(explain("dense", {"num_sms": FEW_SMS, **SIZES, "bf16": 1}, "sm_80"))
    }
    tested = {(x.swapped, x.rows, x.cols, x.k_warpgroups) for x in (each.values[1] for each in parameter_sets())}
    assert known == tested
