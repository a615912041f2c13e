"""Experts: while their sizes are on the way, each CTA asks the L2 for the tile that it likely begins with."""

from __future__ import annotations

import pytest
import sass
import torch
from field_calls import explain, kernel_of
from grouped_inputs import contiguous, masked

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

FETCHED = "cp.async.bulk.prefetch.tensor.3d.L2.global"
# A CTA's first tile by the table of groups, and the likely one: group, row, col of each; -1 for none.
KERNEL = """
#include <deep_gemm/load/sm90/likely_tile.cuh>
using namespace deep_gemm;
constexpr GemmConfig kConfig{{.grouping = Grouping::KIND}, {},
                             {.swap_ab = SWAPPED, .tile = {128, 32, 128}, .group_capacity = 32}};
struct Params { const int* sizes; int* found; long n; long groups; long strip; long blocks; };

DG_DEVICE void write(int* to, bool any, const Tile& tile) {
    to[0] = any ? tile.group : -1, to[1] = any ? tile.row : -1, to[2] = any ? tile.col : -1;
}

extern "C" __global__ void __launch_bounds__(32) likely_tile(const __grid_constant__ Params given) {
    __shared__ __align__(16) unsigned char table[group_table_bytes(kConfig)];
    GemmParams params;
    params.grouped_layout = given.sizes, params.m_alignment = kConfig.tile_m(), params.zero_padding = 0;
    params.m = 4096, params.n = int(given.n), params.k = 256, params.num_groups = int(given.groups);
    params.likely_blocks = int(given.blocks);
    params.raster_group_blocks = FastDivisor(unsigned(given.strip));
    params.raster_group_tiles =
        FastDivisor(unsigned(given.strip * ((given.n + kConfig.tile_n() - 1) / kConfig.tile_n())));
    const GroupTable<kConfig> groups{static_cast<uint32_t>(__cvta_generic_to_shared(table))};
    groups.fill<32>(params);
    __syncwarp();
    TileScheduler<kConfig> tiles(params, groups);
    Tile tile = {}, likely = {};
    const bool any = tiles.next(tile);
    tiles.place(tile);
    const bool guessed = likely_first_tile<kConfig>(params, likely);
    if (threadIdx.x > 0) return;
    write(given.found + blockIdx.x * 6, any, tile);
    write(given.found + blockIdx.x * 6 + 3, guessed, likely);
}
"""


@pytest.mark.parametrize("kind", ["masked", "m_psum"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("rows", "strip"), [(20, 1), (128, 1), (300, 2), (300, 4)])
def test_it_is_the_first_tile_where_sizes_are_as_expected(device, kind, swapped, rows, strip) -> None:
    height = 32 if swapped else 128
    blocks, groups, ctas = -(-rows // height), 5, 250
    begins = torch.arange(groups) * (0 if kind == "masked" else blocks * height)
    sizes = (begins + rows).to(device, torch.int32)  # or ends
    found = torch.full((ctas, 6), -2, dtype=torch.int32, device=device)
    source = KERNEL.replace("SWAPPED", str(swapped).lower()).replace("KIND", kind)
    C.jit_launch("likely_tile", source, ctas, 32, 1, 0, False, [sizes, found], [400, groups, strip, blocks])
    assert torch.equal(found[:, :3], found[:, 3:])
    tiles = groups * blocks * -(-400 // (128 if swapped else 32))
    assert len({tuple(tile) for tile in found[:, :3].tolist()} - {(-1, -1, -1)}) == tiles < ctas


def boxes() -> int:
    """That were asked for by the last kernel."""
    report = simulator.last_report()
    assert report is not None
    return report.statistics["instructions"].get(FETCHED, 0)


def fetched(counts: list[int], expected_m: int, k: int) -> int:
    """Boxes that two CTAs asked for; 200 columns, of which a CTA has 128 at most."""
    case = masked(counts, 300, 200, k, torch.device("cpu"))
    out = case.output()
    with simulator.options(num_sms=2):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, case.counts, expected_m)
    out.check(complete=False)
    case.check(out.tensor)
    return boxes()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("counts", [[16, 16], [0, 16], [0, 0], [300, 1]], ids=str)
@pytest.mark.parametrize("expected_m", [16, 5000])
def test_results_are_right_whatever_the_counts_are(counts, expected_m) -> None:
    """As expected, fewer, none, more: what is asked for is the same, as nobody knows yet."""
    assert fetched(counts, expected_m, 128 * 9) == fetched([1, 1], expected_m, 128 * 9) > 0


@pytest.mark.parametrize("counts", [[128, 128], [0, 200], [300, 1]], ids=str)
def test_contiguous(counts) -> None:
    case = contiguous(counts, 200, 128 * 9, torch.device("cpu"))
    out = case.output()
    with simulator.options(num_sms=2):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
    out.check(complete=False)
    case.check(out.tensor)
    assert boxes() > 0


def test_no_more_k_blocks_than_there_are() -> None:
    assert fetched([16, 16], 16, 128) == 2 * 3  # weights, tokens, and scales of tokens
    assert fetched([16, 16], 16, 128 * 9) == 2 * 3  # 24 KB of weights at most, of which a K block of 128 is 16
    assert fetched([300, 300], 16, 128 * 9) == 2 * 3


def test_nobody_asks_before_the_preceding_kernel_has_ended() -> None:
    """Operands may be what it writes."""
    fields = {"num_sms": HOPPER_SMS, "m": 4096, "expected_m": 20, "n": 6144, "k": 7168, "groups": 32}
    kernel = kernel_of("masked", fields)
    ptx = bytes(C.jit_compile(kernel["name"], kernel["text"], HOPPER_TARGET, "ptx")).decode()
    assert 0 < ptx.index("griddepcontrol.wait") < ptx.index("cp.async.bulk.prefetch.tensor")


def test_where_padding_is_left_out_nobody_guesses() -> None:
    """Blocks with padding are walked behind the others."""
    fields = {"m": 4096, "expected_m": 192, "n": 6144, "k": 7168, "groups": 32}
    assert "256x128" in str(explain("masked", {"num_sms": HOPPER_SMS, **fields})).splitlines()[0]
    assert sass.UTMAPF not in [word & sass.OPCODE for word in sass.of_problem("masked", fields)]
    few = fields | {"expected_m": 20}
    assert sass.UTMAPF in [word & sass.OPCODE for word in sass.of_problem("masked", few)]
