"""Selection is the same for every architecture (csrc/config/select.hpp): what differs is what a spec says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
#include <cstdio>
#include "config/select.hpp"
using namespace deep_gemm;

/// Three heights, of which the lowest is cheapest but refused, and the highest wasteful.
struct Toy {
    static std::vector<Tiling> tilings(const Problem&) { return {{false, 64, 64}, {false, 256, 64}, {false, 128, 64}}; }
    static bool has_tiling(const Problem&, const Tiling&) { return true; }
    static GemmConfig configure(const Problem&, const Tiling& tiling) {
        return {{}, {}, {.tile = {tiling.tile_rows, tiling.tile_cols, 128}, .stages = 0}, Arch::sm100};
    }
    static std::string_view rejection(const Problem&, const GemmConfig& c, int64_t) {
        return c.tile.rows == 64 ? "too low" : "";
    }
    static std::string_view spills(const Problem&, const GemmConfig&) { return ""; }
    static int32_t resident_ctas(const Problem& p, const GemmConfig&) { return p.num_sms; }
    static void divide_smem(const Problem&, GemmConfig& c, double) { c.stages = 5; }
    static Footprint footprint(const GemmConfig&) { return {.threads = 256, .smem_bytes = 1024}; }
    static std::string_view smem_rejection(const GemmConfig&) { return ""; }
    static std::string_view waste(const Problem& p, const GemmConfig& c) { return c.tile.rows > p.m ? "high" : ""; }
    static void choose_walk(const Problem&, Candidate& candidate) { candidate.raster_group_blocks = 3; }
    static double cost_constants(const Problem&) { return 1000; }
    static double cost_us(const Problem&, const Candidate& candidate, double most) {
        return most - candidate.config.tile.rows;
    }
    static double least_us(const Problem& p, const Candidate& candidate, double most) {
        return cost_us(p, candidate, most);
    }
    static Choice finish(const Problem&, const Candidate& candidate) {
        Choice choice{candidate};
        choice.likely_blocks = 7;
        return choice;
    }
};

int main() {
    for (const int32_t m : {1000, 200, 8}) {
        const Choice x = select<Toy>({.arch = Arch::sm100, .m = m, .n = 640, .k = 512, .num_sms = 12});
        std::printf("%d %d %d %d %d\\n", x.config.tile.rows, x.config.stages, x.num_ctas, x.raster_group_blocks,
                    x.likely_blocks);
    }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_another_architecture_is_selected_for_by_its_own_rules(tmp_path: Path) -> None:
    """The cheapest that is not refused; a wasteful one only where no other is left; with what `finish` decides."""
    (tmp_path / "toy.cpp").write_text(SOURCE)
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'deep_gemm' / 'include'}"]
    subprocess.run(
        ["g++", "-std=c++20", *include, "toy.cpp", ROOT / "csrc/util/require.cpp", "-o", "toy"],
        cwd=tmp_path,
        check=True,
    )
    run = subprocess.run([tmp_path / "toy"], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines() == ["256 5 12 3 7", "128 5 12 3 7", "256 5 10 3 7"]
