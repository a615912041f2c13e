"""Who issues the copies that store D: a warp of its own where there is a next tile to multiply, else each math warp."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import bf16_inputs
import pytest
import torch
from candidates import forced_tile
from inputs import GuardedOutput, Operand, random_blocks, random_rows, random_values
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator

N, K = 256, 400


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("m", "swapped", "rows", "cols", "store_warp"),
    [
        (1280, False, 128, 128, True),  # two partial accumulators
        (1280, False, 256, 128, True),  # looks ahead
        (1280, False, 128, 192, True),  # likewise
        (1280, False, 128, 144, True),
        (512, False, 128, 128, False),  # four tiles a CTA: a stage instead of buffers
        (512, False, 128, 192, False),
        (1280, False, 192, 128, False),  # in turn: each math warp its own
        (1280, False, 64, 64, False),  # one math warpgroup
        (1280, True, 128, 64, False),  # swapped
    ],
)
def test_who_issues_the_copies_of_a_tile(m, swapped, rows, cols, store_warp) -> None:
    cpu = torch.device("cpu")
    a, b = random_rows((m, K), cpu, 0), random_blocks((N, K), cpu, 1)
    out = GuardedOutput((m, N), torch.bfloat16, cpu)
    with simulator.options(num_sms=2), forced_tile(cpu, (m, N, K), swapped, rows, cols):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), "D")
    report = simulator.last_report()
    assert report is not None
    tiles = -(-(N if swapped else m) // rows) * -(-(m if swapped else N) // cols)
    groups = report.statistics["instructions"]["cp.async.bulk.commit_group"]
    # One group of stores for all of a tile, or one for each warp's 16 rows (fewer buffers than chunks: several).
    assert groups == tiles if store_warp else groups % (tiles * rows // 16) == 0


@pytest.mark.parametrize(
    ("rows", "tiles", "paced"),
    [
        (256, 4, False),  # few tiles: each math warp stores its own
        (256, 5, True),
        (256, 7, True),
        (128, 7, False),  # two partial accumulators: not stored under the next tile's first wgmma
    ],
)
def test_copies_are_spread_over_the_next_tile(rows, tiles, paced) -> None:
    cpu = torch.device("cpu")
    m, n, k = rows, 128 * tiles, 1280
    a, b = random_rows((m, k), cpu, 0), random_blocks((n, k), cpu, 1)
    out = GuardedOutput((m, n), torch.bfloat16, cpu)
    with simulator.options(num_sms=1), forced_tile(cpu, (m, n, k), False, rows, 128):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), "D")
    report = simulator.last_report()
    assert report is not None
    assert (report.statistics["instructions"].get("nanosleep.u32", 0) > 0) == paced


def instructions_of_a_gradient(m: int, n: int, k: int, swapped: bool, rows: int, cols: int, fp32: bool = True) -> dict:
    """What the simulator counted while D = C + A B^T, with scales per row of both, went into C."""
    cpu = torch.device("cpu")
    a, b, c = random_rows((m, k), cpu, 0), random_rows((n, k), cpu, 1), random_values((m, n), cpu, 2)
    out = GuardedOutput((m, n), torch.float32 if fp32 else torch.bfloat16, cpu)
    out.tensor.copy_(c)
    with simulator.options(num_sms=2), forced_tile(cpu, (m, n, k), swapped, rows, cols):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor, c=out.tensor if fp32 else None, recipe=(1, 1, 128))
    out.check()
    assert_matches(out.tensor, product_nt(a, b, c if fp32 else None), "D")
    report = simulator.last_report()
    assert report is not None
    return report.statistics["instructions"]


FETCHED = "cp.async.bulk.prefetch.tensor.3d.L2.global"
ADDED = "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group"


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("m", "k", "swapped", "rows", "cols"),
    [
        (640, 384, False, 128, 128),  # five tiles by two CTAs
        (600, 384, False, 128, 128),  # boxes beyond D are as harmless as their additions
        (640, 400, False, 128, 128),  # rows of operands start within lines
        (640, 384, True, 128, 128),
        (640, 400, True, 128, 128),  # boxes of 64 bytes
        (128, 384, False, 128, 128),  # one tile
        (640, 1280, False, 128, 128),  # many K blocks: fewer shares ahead
    ],
)
def test_the_l2_is_asked_once_for_what_is_added_to(m, k, swapped, rows, cols) -> None:
    found = instructions_of_a_gradient(m, 128, k, swapped, rows, cols)
    assert found[FETCHED] == found[ADDED]


def test_the_l2_is_asked_once_though_it_has_no_room_for_all_of_d() -> None:
    """Fourteen groups of 4 MB, of which one has a K: other shares ahead."""
    cpu = torch.device("cpu")
    m = n = 1024
    ks = [256, *[0] * 13]
    a, b = random_rows((m, 256), cpu, 0), random_rows((n, 256), cpu, 1)
    flat = [Operand(x.data.flatten(), x.scales.T.contiguous()) for x in (a, b)]
    d = torch.ones((len(ks), m, n), dtype=torch.float32)
    layout = torch.tensor(ks, dtype=torch.int32)
    with simulator.options(num_sms=2), forced_tile(cpu, (m, n, 256), False, 128, 128):
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*flat, d, ks, layout, c=d)
    assert_matches(d[0], product_nt(a, b, torch.ones(m, n)), "D")
    assert torch.equal(d[1:], torch.ones_like(d[1:]))
    report = simulator.last_report()
    assert report is not None
    found = report.statistics["instructions"]
    assert found[FETCHED] == found[ADDED] == 64 * 8 * 4  # tiles, warps, boxes


AHEAD = """
#include <cstdio>
#include "config/sm90/l2.hpp"

int main() {
    using deep_gemm::Grouping;
    const auto ahead = [](Grouping grouping, int m, int n, int k, int groups) {
        std::printf("%d ", deep_gemm::sm90::fetched_ahead({.grouping = grouping, .m = m, .n = n, .k = k,
                                                           .num_groups = groups}));
    };
    ahead(Grouping::dense, 4096, 4096, 7168, 1);
    ahead(Grouping::dense, 4096, 4096, 1024, 1);  // 67 MB of D
    ahead(Grouping::dense, 4096, 2048, 640, 1);  // 34 MB
    ahead(Grouping::k_contiguous, 1536, 2048, 128 * 256, 128);
    ahead(Grouping::k_contiguous, 7168, 2048, 16 * 2048, 16);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_how_far_ahead_the_l2_is_asked(tmp_path) -> None:
    """As was fastest: sooner behind few K blocks, and where the L2 has room."""
    root = Path(__file__).resolve().parents[2]
    (tmp_path / "ahead.cpp").write_text(AHEAD)
    folders = (root / "csrc", root / "deep_gemm" / "include")
    command = ["g++", "-std=c++20", *(f"-I{folder}" for folder in folders), "ahead.cpp", "-o", "ahead"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = subprocess.run([tmp_path / "ahead"], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["2", "3", "6", "4", "2"]


def test_the_l2_is_asked_for_what_registers_are_added_to() -> None:
    """Rows of D are no multiples of 16 bytes. A warp's 16 rows of 512 bytes are 64 lines, two for each lane."""
    found = instructions_of_a_gradient(256, 130, 384, False, 128, 128)
    assert FETCHED not in found
    assert found["prefetch.global.L2"] == 4 * 8 * 2  # tiles, warps
    assert "prefetch.global.L2" not in instructions_of_a_gradient(256, 128, 384, False, 128, 128)


def test_nothing_is_asked_for_where_nothing_is_added() -> None:
    found = instructions_of_a_gradient(640, 128, 384, False, 128, 128, fp32=False)
    assert FETCHED not in found


def test_additions_to_d_are_spread_though_it_is_not_stored_late() -> None:
    """BF16 operands: nothing is promoted, so no tile is stored under the next one's wgmma."""
    cpu = torch.device("cpu")
    m, n, k = 128, 128 * 7, 1280
    a, b = bf16_inputs.operands(m, n, k, cpu)
    out = GuardedOutput((m, n), torch.float32, cpu)
    out.tensor.zero_()
    with simulator.options(num_sms=1), forced_tile(cpu, (m, n, k), False, 128, 128):
        deep_gemm.bf16_gemm_nt(a, b, out.tensor, c=out.tensor)
    out.check()
    bf16_inputs.matches(out.tensor, a, b)
    report = simulator.last_report()
    assert report is not None
    assert report.statistics["instructions"].get("nanosleep.u32", 0) > 0
