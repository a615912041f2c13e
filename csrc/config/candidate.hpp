// What selection chooses among, and what it returns.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/tile/group_plan.cuh>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <string>
#include <string_view>

#include "../util/require.hpp"
#include "fields.hpp"
#include "problem.hpp"

namespace deep_gemm {

/// The operand of which a kernel before the product makes what its tensor cores multiply.
enum class Preconvert : int32_t { none, a, b };
template <>
struct Names<Preconvert> {
    static constexpr std::string_view kType = "Preconvert", kValues[] = {"none", "a", "b"};
};

/// The value of this place among an enumeration's names.
template <typename Enum>
Enum value_at(int64_t place, std::string_view what) {
    require(place >= 0 && place < std::ssize(Names<Enum>::kValues), what, " must be 0 to ",
            std::ssize(Names<Enum>::kValues) - 1, ", got ", place);
    return static_cast<Enum>(place);
}

/// What candidates of a problem differ in; all else of a config follows from it and the problem.
struct Tiling {
    bool swap_ab = false;
    int32_t tile_rows = 0, tile_cols = 0;
    ClusterShape cluster = {};
    int32_t k_warpgroups = 1;  // SplitK::warpgroups
    Preconvert preconvert = Preconvert::none;
};
template <>
inline constexpr auto kFieldsOf<Tiling> =
    std::tuple{Field{"swap_ab", &Tiling::swap_ab},           Field{"tile_rows", &Tiling::tile_rows},
               Field{"tile_cols", &Tiling::tile_cols},       Field{"cluster", &Tiling::cluster},
               Field{"k_warpgroups", &Tiling::k_warpgroups}, Field{"preconvert", &Tiling::preconvert}};

/// What a CTA takes.
struct Footprint {
    int32_t threads = 0, smem_bytes = 0;
    int32_t ctas_per_sm = 1;  // so many must fit an SM's registers
};

/// A config with what its launch needs and what selection thinks of it.
struct Candidate {
    Tiling tiling = {};
    GemmConfig config = {};
    Footprint footprint = {};
    int32_t num_ctas = 0;
    int32_t raster_group_blocks = 1;
    double cost_us = 0;
    std::string_view rejection = {};  // why not, a literal; empty for a legal candidate
};

/// Of each cluster, the place in the walk over tiles (GemmParams::cta_order).
using CtaOrder = std::array<uint8_t, kMaxClusters>;

/// How the copy engine moves operands, scales and D: what tensor maps say of a config.
struct CopyPlan {
    int32_t rows_box = 0, cols_box = 0;         // rows of an operand that one copy brings
    int32_t mn_box = 0;                         // the same where the operand is MN-major
    bool last_rows = false, last_cols = false;  // the last tile has a map of its own, of the rows that are left
    int32_t row_scale_entries = 1, col_scale_entries = 1;  // along K in the box of scales
    int32_t row_scale_box = 0, col_scale_box = 0;   // scales that come with the operands: so many rows of them at once
    int32_t zeros_box = 0, zero_groups = 0;         // the rows' zero points, likewise
    bool a_in_blocks = false, b_in_blocks = false;  // words of scales come in blocks of kWordBlockRows
    StoreChunk d = {};                              // where D is staged
    // What threads copy instead: there, a PlainMap says where it lies.
    bool plain_operands = false, plain_row_scales = false, plain_col_scales = false;
};

/// A legal candidate, with all else that its kernel's text and argument say and no call decides. GemmParams explains
/// the fields that it has too.
struct Choice : Candidate {
    CopyPlan copies = {};
    std::string hint = {};          // a line of the text, for what reads the machine code
    int64_t lines_below_bytes = 0;  // of operands of fewer bytes the L2 fetches lines of 128 bytes, not 256
    int32_t first_shared = 0;
    int32_t likely_blocks = 1;
    uint8_t fetched_ahead = 1;
    CtaOrder cta_order = {};
};

/// What a kernel multiplies of a problem, as calls give it.
inline GemmTask task_of(const Problem& p) {
    GemmTask task{.grouping = p.grouping, .a = p.a, .b = p.b, .output = p.output, .shape = p.compiled};
    task.b.near_scales = 0;  // what a config makes use of, it says itself
    return task;
}

/// A problem as the kernel of a config sees it, whatever has been converted before.
inline Problem seen_by(const Problem& p, const GemmConfig& c) {
    Problem seen = p;
    seen.a = c.a, seen.b = c.b;
    return seen;
}

/// Tiles of all clusters, the last ones included that only fill them up.
inline int64_t tile_count(const Problem& p, const GemmConfig& c) {
    const int64_t m_blocks = (most_blocks(p, c.tile_m()) + c.cluster_m() - 1) / c.cluster_m() * c.cluster_m();
    return m_blocks * align_up(ceil_div(p.n, c.tile_n()), c.cluster_n());
}

/// Groups whose tensor maps fit a kernel's argument of 32,764 bytes.
inline constexpr int32_t kMaxGroupMaps = 96;

/// Room in the table of groups: few different ones, so that a model has few kernels. None where the layout itself tells
/// a tile's expert.
inline int32_t table_capacity(const Problem& p, const GemmConfig& c) {
    if (p.group_maps) return p.num_groups <= 8 ? 8 : p.num_groups <= 32 ? 32 : kMaxGroupMaps;
    return has_group_table(c) || p.grouping == Grouping::k_contiguous
               ? std::max(32, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(p.num_groups))))
               : 0;
}

}  // namespace deep_gemm
