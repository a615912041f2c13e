// Hopper: the tile shapes that exist, and what is so about them. Facts only; `select.hpp` decides.
#pragma once

#include <deep_gemm/plan.cuh>

#include <algorithm>
#include <optional>
#include <vector>

#include "problem.hpp"
#include "sm90_clusters.hpp"

namespace deep_gemm::sm90 {

/// Tiles worth considering, whatever the problem. Accumulators bound them: a thread holds cols / 2 floats for each 64
/// rows, and of FP8 another cols / 2 for the K block under way.
inline std::vector<TileShape> tile_shapes(ElementType operand, bool swap_ab) {
    const int32_t k = block_k(operand);
    std::vector<TileShape> shapes;
    if (swap_ab) {  // cols are tokens
        for (const int32_t rows : {64, 128})
            for (int32_t cols = 8; cols <= 128; cols += cols < 64 ? 8 : 16) shapes.push_back({rows, cols, k});
    } else {
        for (int32_t cols = 32; cols <= 192; cols += 16) shapes.push_back({64, cols, k});
        for (int32_t cols = 16; cols <= 192; cols += 16) shapes.push_back({128, cols, k});
        for (int32_t cols = 64; cols <= 128; cols += 16) shapes.push_back({256, cols, k});
        for (const int32_t cols : {96, 112, 128}) shapes.push_back({192, cols, k});
        if (operand == ElementType::bf16)
            for (const int32_t cols : {208, 224, 240, 256}) shapes.push_back({128, cols, k});
    }
    return shapes;
}

/// For groups: fewer of them, so that a weight shape has few kernels, and heights of 64 for groups that start at
/// multiples of 64.
inline std::vector<TileShape> grouped_tile_shapes(ElementType operand, bool swap_ab) {
    const int32_t k = block_k(operand);
    if (swap_ab)
        return {{64, 8, k},   {64, 16, k},  {64, 32, k},  {64, 64, k},  {128, 8, k},   {128, 16, k}, {128, 24, k},
                {128, 32, k}, {128, 48, k}, {128, 64, k}, {128, 96, k}, {128, 128, k}, {256, 64, k}, {256, 128, k}};
    std::vector<TileShape> shapes = {{64, 64, k},   {64, 96, k},   {64, 128, k},  {64, 192, k},
                                     {128, 32, k},  {128, 64, k},  {128, 96, k},  {128, 112, k},
                                     {128, 128, k}, {128, 192, k}, {192, 128, k}, {256, 128, k}};
    if (operand == ElementType::bf16)
        for (const int32_t cols : {160, 256}) shapes.push_back({128, cols, k});
    return shapes;
}

/// Of A, that the L2 keeps while B and D pass through it; of B, while A and D do (measured: docs/performance.md).
inline constexpr double kKeptBytes = 12 << 20, kKeptBytesOfB = 20 << 20;

/// What the L2 has room for.
inline constexpr double kL2Bytes = 50e6;

/// Of B in all, up to which it should leave the L2 first: it then makes room for itself, and what others left there
/// need not be written back. With more bytes that is worth little, and such calls are faster without, the sooner in
/// straight tiles of experts, of which several read the same (measured: docs/performance.md).
inline double streamed_bytes(const GemmConfig& c) {
    return c.grouping == Grouping::dense ? 250e6 : c.swap_ab ? 400e6 : 100e6;
}

/// Warpgroups that divide a tile's rows among themselves.
inline int32_t row_warpgroups(const TileShape& tile) { return tile.rows == 192 ? 3 : tile.rows == 64 ? 1 : 2; }

/// Whether a tile's row warpgroups are worth doubling or more, the additional ones taking every second (third ...) K
/// block.
inline bool takes_turns(const TileShape& tile, const ClusterShape& cluster, int32_t k_warpgroups) {
    return cluster.rows * cluster.cols == 1 && tile.rows == 64 && (k_warpgroups == 2 || tile.cols <= 64);
}

/// Whether pairs that split K of all tiles treat them as last ones, which are shared: the parts of the largest tiles
/// take two of their stages, unless they go where stages were. (256 rows, which only could be shared, are never best.)
/// docs/performance.md.
inline bool shares_only(const TileShape& tile) { return tile.rows < 256 && tile.rows * tile.cols >= 128 * 192; }

/// Tiles in which the tensor cores may form the products of row and column scales: of 64 columns and more (fewer were
/// not measured). They take a third accumulator, which leaves no registers for more than 128.
inline constexpr int32_t kProductRows = 128, kLeastProductCols = 64, kMostProductCols = 128;

/// Whether all tiles of a problem must be such ones. The last bits of products by the tensor cores are not those that a
/// multiplication gives, and tiles change with M. So where a row's bits may not, gradients have only such tiles, with
/// operands as they are (swapped ones' parts of scales may be added up in another order), and other calls, which may
/// have few rows, none. Nor have gradients where set_block_size_multiple_of leaves none.
inline bool only_tiles_with_products(const Problem& p) {
    const bool gradient = p.grouping == Grouping::k_contiguous || (p.grouping == Grouping::dense && adds_in_place(p)),
               scaled_by_row = p.operand == ElementType::e4m3 && p.scales_a == ScaleKind::per_row &&
                               p.scales_b == ScaleKind::per_row;
    if (!p.batch_invariant || !gradient || !scaled_by_row || kProductRows % p.block_m_multiple != 0) return false;
    for (int32_t cols = kLeastProductCols; cols <= kMostProductCols; cols += 16)
        if (cols % p.block_n_multiple == 0) return true;
    return false;
}

/// Whether the tensor cores form the products of scales. Never in calls grouped along M, whose rows' bits must not
/// depend on the tile.
inline bool multiplies_scales(const Problem& p, const GemmConfig& c) {
    if (p.batch_invariant && (c.swap_ab || !only_tiles_with_products(p))) return false;
    return !is_m_grouped(c.grouping) && c.operand == ElementType::e4m3 && c.row_scales() == ScaleKind::per_row &&
           c.col_scales() == ScaleKind::per_row && c.tile.rows == kProductRows && c.tile.cols >= kLeastProductCols &&
           c.tile.cols <= kMostProductCols && c.k_parts() == 1;
}

/// Whether warpgroups look for their next stage early, and a tile is stored under the next one's first wgmma: where
/// that was faster (docs/performance.md).
inline bool looks_ahead(const GemmConfig& c) {
    if (!c.scaled() || overlaps_blocks(c) || c.k_parts() > 1) return false;
    if (c.warpgroup_rows() > kWgmmaRows) return true;
    if (c.math_warpgroups != 2) return false;
    if (c.row_scales() == ScaleKind::per_row && c.col_scales() == ScaleKind::per_row) return c.wgmma_products;
    return c.tile.cols >= 144;
}

/// Experts whose padding may hold anything; in a psum layout it becomes zero, which needs registers that the highest
/// tiles do not have.
inline bool has_experts(const GemmConfig& c) {
    return c.grouping == Grouping::m_contiguous || c.grouping == Grouping::masked;
}

/// Whether at least four blocks of M are of one expert, and read the same weights.
inline bool has_tall_experts(const GemmConfig& c, int32_t group_rows) {
    return has_experts(c) && group_rows >= 4 * c.tile.rows;
}

/// Whether 64 rows of nothing but padding are left out. It is for two warpgroups of twice 64 rows: with 64 rows each,
/// the one that has work would be no faster. And not for tall experts, few of whose tiles have padding: a kernel that
/// need not ask has the loop of a dense one (docs/performance.md).
inline bool skips_padding(const GemmConfig& c, int32_t group_rows) {
    const bool can = has_experts(c) && !c.swap_ab && c.look_ahead && c.tile == TileShape{4 * kWgmmaRows, 128, 128} &&
                     c.row_warpgroups() == 2 && c.col_scales() == ScaleKind::per_block && is_staged(c.store) &&
                     !c.add_c;
    return can && !has_tall_experts(c, group_rows);
}

/// Stages that are worth more than buffers for all of D. Three do for 256 rows with several tiles a CTA, and for the
/// largest BF16 tiles where a CTA has more than four, if operands come from the L2: in dense problems, and where
/// experts are tall. (Of up to four tiles a CTA, wants_stage gives most dense ones a fourth stage.)
/// docs/performance.md.
inline int32_t least_stages(const GemmConfig& c, double tiles_per_cta, int32_t group_rows) {
    const bool fp8 = c.tile.rows == 256 && c.look_ahead && tiles_per_cta > 1,
               bf16 = !c.scaled() && c.tile.rows * c.tile.cols >= 128 * 208 && tiles_per_cta > 4;
    return (c.grouping == Grouping::dense || has_tall_experts(c, group_rows)) && (fp8 || bf16) ? 3 : 4;
}

/// Whether one stage more is worth more than buffers for all of D, which are for a next tile: where a CTA has few
/// tiles. Their operands come from memory, and take longest while D goes there. (Not buffers of less than 128 bytes a
/// row: of those there are so many that a tile's end waits for the few that are left. BF16 tiles of 128 rows and more,
/// with twice as many K blocks, do not mind.) docs/performance.md.
inline bool wants_stage(const GemmConfig& c, double tiles_per_cta) {
    if (c.grouping != Grouping::dense || c.output != ElementType::bf16 || c.k_parts() > 1) return false;
    const bool wide = store_chunk(c).swizzle_bytes() == kSwizzleBytes;
    if (!wide && (c.scaled() || c.tile.rows < 128)) return false;
    return tiles_per_cta <= (c.scaled() && c.tile.rows <= 128 ? 6 : 4);
}

/// Whether parts of sums, and D, had better lie where stages were. `c` has the stages that fit beside them. Warpgroups
/// that take turns hold two to six stages, and a ring that is not deep runs dry while weights come from memory. (CTAs
/// that split K would have to meet first, 0.2 to 0.5 us, and gain little: docs/performance.md.)
inline bool reuses_ring(const GemmConfig& c) { return c.k_warpgroups > 1 && c.cluster.k == 1 && c.stages <= 12; }

/// Whether the L2 fetches no more than the 128 bytes of a K block's row where it misses, instead of 256. A deep ring
/// asks for the next 128 in time; a shallow one had better find them there, as had operands of a D that is added to,
/// while the memory is busy with that. So had operands of so many bytes that reading them is all that counts: an H200
/// hardly cares, an H100 is 1 to 3 % faster (docs/performance.md).
inline bool fetches_lines(const GemmConfig& c, int64_t operand_bytes) {
    return (c.grouping == Grouping::dense || c.grouping == Grouping::masked) && !adds_to_memory(c.store) &&
           c.stages >= kDeepRing && operand_bytes < int64_t{200} << 20;
}

/// Of so many columns of a D that is added to, the store role asks the L2 for one box; a line of 128 bytes comes with
/// its neighbour, if it must. Where operands' rows start within lines, the L2's requests bind, and half as many cost up
/// to 4 % less; elsewhere to ask for all lines is up to 2 % faster (docs/performance.md).
inline uint8_t fetched_columns(const Problem& p) {
    return std::min(p.row_alignment_a, p.row_alignment_b) < kBestAlignment ? 64 : 1;  // FP32
}

/// So many shares of a tile before they are added. Behind few K blocks, shares follow each other before the lines have
/// come; but lines that are asked for sooner displace operands, unless the L2 has room for all of D.
/// docs/performance.md.
inline uint8_t fetched_ahead(const Problem& p) {
    const int32_t k_blocks = ceil_div(expected_k(p) * element_bytes(p.operand), kSwizzleBytes);
    const double groups = p.grouping == Grouping::k_contiguous ? p.num_groups : 1,
                 bytes = groups * p.m * p.n * element_bytes(ElementType::fp32);
    return k_blocks > 8 ? 2 : bytes <= kL2Bytes ? 6 : k_blocks > 2 ? 3 : 4;
}

/// Of so many of promotion's FFMA one lets the scheduler turn to another warp (csrc/jit/ffma_yields.hpp; 0: none does);
/// nothing: as ptxas has it. What was fastest in most problems, by how a K block goes (docs/performance.md, "FFMA
/// that yield").
inline std::optional<int32_t> ffma_yields(const GemmConfig& c) {
    const bool by_block = c.row_scales() == ScaleKind::per_block || c.col_scales() == ScaleKind::per_block;
    if (c.wgmma_products) return 2;
    if (!c.scaled() || !by_block) return std::nullopt;
    if (c.look_ahead && c.warpgroup_rows() > kWgmmaRows) return c.multicasts() ? 4 : 8;
    if (c.look_ahead) return c.tile.cols == 160 || c.tile.cols == 176 ? 4 : 0;
    if (c.row_warpgroups() == 3) return 3;
    if (overlaps_blocks(c) && c.row_warpgroups() == 2 && c.tile.cols >= 48) return c.tile.cols < 128 ? 6 : 8;
    return std::nullopt;
}

/// Whether loads of C beside both accumulators, or what FP32 stores, group tables, pairs and shared tiles keep, take
/// more registers than a thread has (ptxas -v, CUDA 13.0, scales per row). Where twice 64 rows a warpgroup meet scales
/// per row of more than 64 columns, some do and the others move descriptors; none came within 5 % of the best. Nor did
/// three warpgroups of K groups, which spill where D is BF16 without C.
inline bool spills(const GemmConfig& c) {
    const bool tall = c.warpgroup_rows() > kWgmmaRows, wide = tall && c.tile.cols >= 128;
    if (!c.scaled())
        return c.warpgroup_rows() / kWgmmaRows * c.tile.cols / 2 > 128 || (tall && c.shares_last && c.tile.cols == 112);
    if (tall && c.tile.cols > 64 && c.col_scales() == ScaleKind::per_row) return true;
    if (wide && (c.output == ElementType::fp32 || !is_staged(c.store) || c.grouping == Grouping::m_psum)) return true;
    if (c.grouping == Grouping::m_psum && c.tile.cols >= 160) return true;
    if (c.grouping == Grouping::k_contiguous && c.output == ElementType::bf16 && c.row_warpgroups() == 3) return true;
    const int32_t accumulators = (c.warpgroup_rows() / kWgmmaRows + 1) * c.tile.cols / 2;
    return c.add_c && c.store == StoreKind::direct && c.math_warpgroups > 1 && accumulators >= math_registers(c) - 64;
}

}  // namespace deep_gemm::sm90
