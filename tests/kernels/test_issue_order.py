"""Warpgroups issue one after the other, from the first to the last, whatever else holds them up."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import sass  # noqa: E402

from deep_gemm._extension import C  # noqa: E402

ROUNDS = 20
KERNEL = """
#include <deep_gemm/mma/sm90/issue_order.cuh>
#include <deep_gemm/ptx/memory.cuh>
using namespace deep_gemm;
constexpr GemmConfig kConfig{{}, {}, {.tile = {128, 192, 128}}, Arch::sm90,
                             {}, {.math_warpgroups = 2, .look_ahead = LOOK_AHEAD}};
struct Params { int* turns; int* count; long rounds; };
extern "C" __global__ void __launch_bounds__(256) issue_order(const __grid_constant__ Params params) {
    const int warpgroup = threadIdx.x / 128;
    IssueOrder<kConfig> order(warpgroup);
    for (int round = 0; round < params.rounds; ++round) {
        // Now this one is late, now the other.
        if (round % 5 == 2 * warpgroup) ptx::sleep_nanoseconds(2000);
        order.wait();
        if (threadIdx.x % 128 == 0) params.turns[atomicAdd(params.count, 1)] = warpgroup;
        __threadfence();
        order.pass();
    }
    order.end();
}
"""


def turns(device, look_ahead: bool) -> list[int]:
    found = torch.full((2 * ROUNDS,), -1, dtype=torch.int32, device=device)
    count = torch.zeros(1, dtype=torch.int32, device=device)
    text = KERNEL.replace("LOOK_AHEAD", str(look_ahead).lower())
    C.jit_launch("issue_order", text, 1, 256, 1, 0, False, [found, count], [ROUNDS])
    return found.tolist()


def test_one_after_the_other(device) -> None:
    assert turns(device, True) == [0, 1] * ROUNDS


def test_else_as_they_come(device) -> None:
    found = turns(device, False)
    assert sorted(found) == [0] * ROUNDS + [1] * ROUNDS
    assert found != [0, 1] * ROUNDS


@pytest.mark.parametrize(
    ("fields", "barriers"),
    [
        ({"tile_rows": 128, "tile_cols": 192}, 2),
        ({"tile_rows": 256, "tile_cols": 128}, 0),  # each has its other half to multiply
        ({"tile_rows": 128, "tile_cols": 128, "per_row_b": 1}, 0),  # products of scales: an order held them up
        ({"tile_rows": 128, "tile_cols": 96, "per_row_b": 1}, 0),
    ],
)
def test_where_an_order_pays(fields, barriers) -> None:
    """In machine code: a round of the loop over K waits for its turn and passes it on."""
    code = sass.of_problem("dense", {"m": 4096, "n": 4096, "k": 4096, **fields})
    [loop] = sass.wgmma_loops(code)
    assert sum(code[index] & sass.OPCODE == sass.BAR_BY_REGISTER for index in loop) == barriers


@pytest.mark.parametrize(
    ("columns", "group", "ordered"), [(192, 128, False), (256, 128, True), (256, 64, False), (256, 32, True)]
)
def test_groups_rescale_in_order(columns, group, ordered) -> None:
    """Beside 16 bits, in the widest tiles."""
    fields = {"bf16": 1, "s4b": 1, "gran_k_b": group, "swap_ab": 1, "tile_rows": 128, "tile_cols": columns}
    code = sass.of_problem("dense", {"m": 4096, "n": 4096, "k": 4096, **fields})
    assert any(word & sass.OPCODE == sass.BAR_BY_REGISTER for word in code) == ordered
