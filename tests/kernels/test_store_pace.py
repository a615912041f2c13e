"""The store role spreads a tile's copies over 3/4 of what the next tile will take, as far as the last one tells."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from deep_gemm._extension import C  # noqa: E402

BLOCKS = 16  # K blocks of each tile but the one that comes next
MAX_CYCLES = 2 * 1024  # of a K block of 256x128: twice what the tensor cores take
KERNEL = """
#include <deep_gemm/store/sm90/store_role.cuh>
using namespace deep_gemm;
constexpr GemmConfig kConfig{{}, {}, {.tile = {256, 128, 128}}, Arch::sm90, {},
                             {.math_warpgroups = 2, .look_ahead = true}};
struct Params { long* cycles; long between; long blocks; long blocks_after; };
using Pace = StorePace<kConfig>;

__device__ long spread(Pace& pace) {
    const int64_t begin = ptx::clock_cycles();
    for (int step = 0; step < 8; ++step) pace.wait();
    return ptx::clock_cycles() - begin;
}

extern "C" __global__ void __launch_bounds__(32) store_pace(const __grid_constant__ Params params) {
    if (threadIdx.x > 0) return;
    Pace pace;
    Tile tile = {}, after = {};
    tile.k_blocks = int(params.blocks), after.k_blocks = int(params.blocks_after);
    const int64_t begin = ptx::clock_cycles();
    pace.begin(tile, true, tile);
    params.cycles[0] = spread(pace);
    ptx::sleep_nanoseconds(uint32_t(params.between));
    params.cycles[1] = ptx::clock_cycles() - begin;
    pace.begin(tile, true, after);
    params.cycles[2] = spread(pace);
    ptx::sleep_nanoseconds(uint32_t(params.between));
    pace.begin(tile, false, after);
    params.cycles[3] = spread(pace);
}
"""


@pytest.mark.parametrize(
    ("between", "blocks_after"),
    [
        (12_000, BLOCKS),
        (12_000, BLOCKS // 4),  # a shorter tile is next
        (400_000, BLOCKS),  # stopped in between, because another process had the GPU
    ],
)
def test_spread(device, between, blocks_after) -> None:
    cycles = torch.full((4,), -1, dtype=torch.int64, device=device)
    C.jit_launch("store_pace", KERNEL, 1, 32, 1, 0, False, [cycles], [between, BLOCKS, blocks_after])
    first, elapsed, spread, last = cycles.tolist()
    # The last of eight steps begins after seven of them; a sleep may be longer than asked for.
    expected = 7 / 8 * 3 / 4 * min(elapsed / BLOCKS, MAX_CYCLES) * blocks_after
    slack = 1500
    assert first < slack  # nothing is known yet
    assert expected - slack < spread < expected + slack
    assert last < slack  # nothing follows
