// Hopper: the tile shapes that exist, and what one costs. Facts only; `select.hpp` decides.
#pragma once

#include <deep_gemm/plan.cuh>

#include <algorithm>
#include <cmath>
#include <initializer_list>
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

/// Of A, that the L2 keeps while B and D pass through it; of B, while A and D do (measured: docs/performance-tried.md).
inline constexpr double kKeptBytes = 12 << 20, kKeptBytesOfB = 20 << 20;

/// Of B in all, up to which it should leave the L2 first: it then makes room for itself, and what others left there
/// need not be written back. With more bytes that is worth little, and such calls are faster without, the sooner in
/// straight tiles of experts, of which several read the same (measured on an H100: docs/performance-tried.md).
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
/// docs/performance-tried.md.
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
/// that was faster (docs/performance-tried.md).
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
/// need not ask has the loop of a dense one (docs/performance-tried.md).
inline bool skips_padding(const GemmConfig& c, int32_t group_rows) {
    const bool can = has_experts(c) && !c.swap_ab && c.look_ahead && c.tile == TileShape{4 * kWgmmaRows, 128, 128} &&
                     c.row_warpgroups() == 2 && c.col_scales() == ScaleKind::per_block && is_staged(c.store) &&
                     !c.add_c;
    return can && !has_tall_experts(c, group_rows);
}

/// Stages that are worth more than buffers for all of D. Three do for 256 rows with several tiles a CTA, and for the
/// largest BF16 tiles where a CTA has more than four, if operands come from the L2: in dense problems, and where
/// experts are tall. (Of up to four tiles a CTA, wants_stage gives most dense ones a fourth stage.)
/// docs/performance-tried.md.
inline int32_t least_stages(const GemmConfig& c, double tiles_per_cta, int32_t group_rows) {
    const bool fp8 = c.tile.rows == 256 && c.look_ahead && tiles_per_cta > 1,
               bf16 = !c.scaled() && c.tile.rows * c.tile.cols >= 128 * 208 && tiles_per_cta > 4;
    return (c.grouping == Grouping::dense || has_tall_experts(c, group_rows)) && (fp8 || bf16) ? 3 : 4;
}

/// Whether one stage more is worth more than buffers for all of D, which are for a next tile: where a CTA has few
/// tiles. Their operands come from memory, and take longest while D goes there. (Not buffers of less than 128 bytes a
/// row: of those there are so many that a tile's end waits for the few that are left. BF16 tiles of 128 rows and more,
/// with twice as many K blocks, do not mind.) docs/performance-tried.md.
inline bool wants_stage(const GemmConfig& c, double tiles_per_cta) {
    if (c.grouping != Grouping::dense || c.output != ElementType::bf16 || c.k_parts() > 1) return false;
    const bool wide = store_chunk(c).swizzle_bytes() == kSwizzleBytes;
    if (!wide && (c.scaled() || c.tile.rows < 128)) return false;
    return tiles_per_cta <= (c.scaled() && c.tile.rows <= 128 ? 6 : 4);
}

/// Whether parts of sums, and D, had better lie where stages were. `c` has the stages that fit beside them. Warpgroups
/// that take turns hold two to six stages, and a ring that is not deep runs dry while weights come from memory. (CTAs
/// that split K would have to meet first, 0.2 to 0.5 us, and gain little: docs/performance-tried.md.)
inline bool reuses_ring(const GemmConfig& c) { return c.k_warpgroups > 1 && c.cluster.k == 1 && c.stages <= 12; }

/// Whether the L2 fetches no more than the 128 bytes of a K block's row where it misses, instead of 256. A deep ring
/// asks for the next 128 in time; a shallow one had better find them there, as had operands of a D that is added to,
/// while the memory is busy with that. So had operands of so many bytes that reading them is all that counts: an H200
/// hardly cares, an H100 is 1 to 3 % faster (docs/performance-tried.md).
inline bool fetches_lines(const GemmConfig& c, int64_t operand_bytes) {
    return (c.grouping == Grouping::dense || c.grouping == Grouping::masked) && !adds_to_memory(c.store) &&
           c.stages >= kDeepRing && operand_bytes < int64_t{200} << 20;
}

/// Of so many columns of a D that is added to, the store role asks the L2 for one box; a line of 128 bytes comes with
/// its neighbour, if it must. Where operands' rows start within lines, the L2's requests bind, and half as many cost up
/// to 4 % less; elsewhere to ask for all lines is up to 2 % faster (docs/performance-tried.md).
inline uint16_t fetched_columns(const Problem& p) {
    return std::min(p.row_alignment_a, p.row_alignment_b) < kBestAlignment ? 64 : 1;  // FP32
}

/// Of so many of promotion's FFMA one lets the scheduler turn to another warp (csrc/jit/ffma_yields.hpp; 0: none does);
/// nothing: as ptxas has it. What was fastest in most problems, by how a K block goes (docs/performance-tried.md, "FFMA
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
/// per row of more than 64 columns, some do and the others move descriptors; none came within 5 % of the best.
inline bool spills(const GemmConfig& c) {
    const bool tall = c.warpgroup_rows() > kWgmmaRows, wide = tall && c.tile.cols >= 128;
    if (!c.scaled())
        return c.warpgroup_rows() / kWgmmaRows * c.tile.cols / 2 > 128 || (tall && c.shares_last && c.tile.cols == 112);
    if (tall && c.tile.cols > 64 && c.col_scales() == ScaleKind::per_row) return true;
    if (wide && (c.output == ElementType::fp32 || !is_staged(c.store) || c.grouping == Grouping::m_psum)) return true;
    if (c.grouping == Grouping::m_psum && c.tile.cols >= 160) return true;
    const int32_t accumulators = (c.warpgroup_rows() / kWgmmaRows + 1) * c.tile.cols / 2;
    return c.add_c && c.store == StoreKind::direct && c.math_warpgroups > 1 && accumulators >= math_registers(c) - 64;
}

/// Estimated time of a config in microseconds. Fitted to measured times of problems of all kinds on an H200
/// (benchmarks/calibrate.py; docs/performance.md says how well it does). Cycles are of a clock of 1.7 GHz.
struct CostModel {
    double clock_mhz = 1700;
    double launch_us = 2.816;          // launch, prologue, first copies
    double memory_gb_per_s = 4299;     // beyond the launch
    double tflops = 2500;              // what power allows
    double again_gb_per_s = 2.07e+04;  // operands that exceed the L2, read by more than one wave of tiles
    double l2_bytes = 4.386e+07;
    double last_gb_per_s = 3941;                        // D of the last wave of tiles, which hides behind nothing
    double idle_memory = 0.3, idle_group_memory = 0.1;  // reading takes longer by so much of the SMs' idle share, if it
    double idle_from_us = 20;                           // takes longer than this at all; of experts, whose counts vary
    double added_gb_per_s = 1785;                       // FP32 added to memory by the L2, straight tiles
    double added_swapped_gb_per_s = 1258;               // the same, swapped
    double overlap_norm = 3.092;          // how fully these hide each other: 1 adds them up, infinity takes the largest
    double own_added_norm = 1.8;          // the same of additions between BF16 tiles, by math warps themselves
    double smem_bytes_per_cycle = 144.7;  // wgmma operands read and copies written
    double l2_bytes_per_cycle = 66.23;    // into one SM, where all copy
    double spare_l2 = 0.02086;            // and so much more of it where hardly any do
    double split_copies = 1;         // times as much of the L2: CTAs that split K, of weights that no other copies,
    double split_shared_copies = 1;  // or that others copy too
    double copy_64 = 1.035, copy_32 = 1.231,
           copy_16 = 1.818;                 // times as much of the L2: rows aligned to so many bytes only
    double block_norm = 9;                  // as overlap_norm, of what limits a K block
    double promote_cycles = 1;              // an accumulator of a thread, scales uniform along columns
    double promote_col_cycles = 7.99;       // scales per column, in registers
    double promote_smem_cycles = 7.945;     // scales per column, read from shared memory
    double promote_product_cycles = 11.14;  // scales per row and per column, the product of two for each accumulator
    double promote_held_product_cycles = 8.927;   // the same, scales per column in registers
    double promote_wgmma_product_cycles = 3.825;  // the same, products by the tensor cores
    double run_cycles = 39.13;             // for each run of columns with its own block scale, where there are many
    double chain_cycles = 365.2;           // a K block's waits and issue, in turn
    double ahead_cycles = 118.2;           // the same for each 64 rows, where the next stage is looked for in advance
    double ordered_cycles = 40.46;         // the same, where warpgroups issue one after the other
    double overlap_cycles = 12.22;         // the same, the next block already under way
    double hidden_cycles = 15.6;           // of a K block, by warpgroups that take turns
    double fetch_cycles = 1499;            // until a stage that was let go is full again
    double multicast_us = 0.2859;          // until the CTAs of a pair have met
    double multicast_cycles = 56.09;       // a K block's wait for the slower of them,
    double multicast_tall_cycles = -22;    // where a warpgroup has another 64 rows meanwhile (the L2 is asked less),
    double multicast_cold_cycles = 66;     // and over such a CTA's tiles: the first operands come from memory,
    double multicast_tile_cycles = 4.751;  // a tile's
    double tile_cycles = 267.9;
    // An element of D at the end of a tile; late: while the next tile is under way. What calibrations do not have is
    // read off docs/performance.md ("Other D"): FP32 that is not added, C that is read, BF16 past the copy engine.
    double tile_cycles_per_element = 0.02398, late_cycles_per_element = 0.03476;  // BF16
    double late_tall_cycles_per_element = 0.02577;                                // the same late, of 256 rows
    double fp32_cycles_per_element = 0.1535;                                      // FP32, added to memory
    double late_fp32_cycles_per_element = 0.1642;                                 // the same late, beside products
    double plain_fp32_cycles_per_element = 0.09, late_plain_fp32_cycles_per_element = 0.15;
    double c_cycles_per_element = 0.2, late_c_cycles_per_element = 0.3, swapped_c_cycles_per_element = 0.5;
    double direct_cycles_per_element = 0.35;
    double padding_cycles = 64.49, padding_tile_cycles = 1678;  // a K block's and a tile's, where padding is left out
    double split_us = 0.5001, part_us = 0.03059;      // adding up a K that a cluster splits in two, each further part,
    double turn_us = 0.02031;                         // each further warpgroup that shares it,
    double split_us_per_element = 0.0002075;          // and each element that comes from elsewhere
    double shared_us = 3.088, shared_cycles = 8.039;  // where pairs share the last tiles: adding twice, each K block

    /// BF16 operands have some constants of their own, fitted to problems of theirs: nothing is promoted.
    static CostModel of(ElementType operand) {
        CostModel x;
        if (operand == ElementType::bf16) {
            x.clock_mhz = 1930;
            x.launch_us = 1.828;
            x.memory_gb_per_s = 3901;
            x.tflops = 1553;
            x.again_gb_per_s = 1.661e+04;
            x.last_gb_per_s = 3121;
            x.overlap_norm = 3.251;
            x.smem_bytes_per_cycle = 146.5;
            x.l2_bytes_per_cycle = 82.24;
            x.split_copies = 2.247;
            x.split_shared_copies = 1.35;
            x.overlap_cycles = 1;
            x.hidden_cycles = 0;
            x.fetch_cycles = 0;
            x.spare_l2 = 0.2796;
            x.multicast_us = 0.2963;
            x.multicast_tall_cycles = 31.43;
            x.multicast_cold_cycles = 0;
            x.part_us = 0.04195;
            x.tile_cycles = 1751;
            x.tile_cycles_per_element = 0.01683;
            x.multicast_cycles = 61.15;
            x.split_us = 0.05083;
            x.shared_us = 1.7;
            x.shared_cycles = 19;
            x.turn_us = 0.6213;
            x.split_us_per_element = 0.0002;
        }
        return x;
    }

    static double norm(double power, std::initializer_list<double> values) {
        double sum = 0;
        for (const double value : values) sum += std::pow(value, power);
        return std::pow(sum, 1 / power);
    }

    /// Cycles that an element of D takes at the end of a tile.
    double element_cycles(const GemmConfig& c) const {
        const bool late = stores_late(c), adds = adds_to_memory(c.store);
        const double read = !c.add_c    ? 0
                            : c.swap_ab ? swapped_c_cycles_per_element
                            : late      ? late_c_cycles_per_element
                                        : c_cycles_per_element;
        if (c.output == ElementType::bf16)
            return read + (!is_staged(c.store)               ? direct_cycles_per_element
                           : !late                           ? tile_cycles_per_element
                           : c.warpgroup_rows() > kWgmmaRows ? late_tall_cycles_per_element
                                                             : late_cycles_per_element);
        const double late_plain = late ? late_plain_fp32_cycles_per_element : plain_fp32_cycles_per_element;
        if (!adds && is_staged(c.store)) return read + late_plain;
        if (late && c.wgmma_products) return read + late_fp32_cycles_per_element;
        return read + fp32_cycles_per_element + late_plain - plain_fp32_cycles_per_element;
    }

    /// Cycles that promoting one K block takes in a warpgroup, for each 64 rows.
    double promotion_cycles(const GemmConfig& c) const {
        const bool per_row_cols = c.col_scales() == ScaleKind::per_row;
        const double held = 8.0 * held_col_groups(c) / c.tile.cols;
        const double each = c.wgmma_products ? promote_wgmma_product_cycles
                            : !per_row_cols  ? promote_cycles
                            : c.row_scales() == ScaleKind::per_row
                                ? held * promote_held_product_cycles + (1 - held) * promote_product_cycles
                                : held * promote_col_cycles + (1 - held) * promote_smem_cycles;
        const double runs = per_row_cols ? 0 : block_scale_values(c);
        return c.tile.cols / 2.0 * each + (runs > 3 ? runs * run_cycles : 0);
    }

    /// A row that starts within a line takes two of them for each K block, and within a sector one more of those. That
    /// binds the L2, not the SM: where few CTAs run, they do not notice.
    double copy_cost(int32_t row_alignment, double busy) const {
        const double of_l2 = row_alignment == 64 ? copy_64 : row_alignment == 32 ? copy_32 : copy_16;
        return row_alignment >= kBestAlignment ? 1 : std::max(1.0, of_l2 * busy);
    }

    /// Cycles that one K block takes in a CTA. `busy`: CTAs over SMs; `waves`: tiles of a CTA.
    double block_cycles(const Problem& p, const GemmConfig& c, double busy, double waves) const {
        const double rows = c.tile.rows, cols = c.tile.cols, multiplies = rows / kWgmmaRows;
        const double tensor = tensor_cycles(c) * (c.wgmma_products ? 1.25 : 1);
        const double wgmma_cycles = tensor / multiplies;  // of 64 rows
        const double smem = (multiplies * (kWgmmaRows + cols) + rows + cols) * kSwizzleBytes / smem_bytes_per_cycle;
        const double row_cost = copy_cost(c.swap_ab ? p.row_alignment_b : p.row_alignment_a, busy),
                     col_cost = copy_cost(c.swap_ab ? p.row_alignment_a : p.row_alignment_b, busy);
        const double split = c.k_ctas() == 1 ? 1 : p.m <= c.tile_m() ? split_copies : split_shared_copies;
        const double l2 = (row_cost * rows / c.cluster.cols + col_cost * cols / c.cluster.rows) * kSwizzleBytes /
                          (l2_bytes_per_cycle * (1 + spare_l2 * (1 - busy))) * split;
        const double subtiles = c.warpgroup_rows() / kWgmmaRows;
        const double waits = overlaps_blocks(c) || !c.scaled() ? overlap_cycles
                             : issues_in_order(c)              ? ordered_cycles
                             : c.look_ahead                    ? ahead_cycles
                                                               : chain_cycles;
        const double chain = subtiles * (wgmma_cycles + (c.scaled() ? promotion_cycles(c) : 0) + waits);
        const int32_t held = c.k_warpgroups * (overlaps_blocks(c) ? 2 : 1);  // stages, by accumulators
        const double late = fetch_cycles / std::max<double>(c.stages - held, 0.5);
        const double hidden = c.k_warpgroups > 1 ? hidden_cycles : 0;
        const double tall = multicast_tall_cycles + multicast_cold_cycles / waves;
        const double pair = !c.multicasts() ? 0 : subtiles > 1 ? tall : multicast_cycles;
        return norm(block_norm, {tensor, smem, l2, chain / c.k_warpgroups, late}) - hidden + pair +
               (c.skips_padding ? padding_cycles : 0) + (c.shares_last ? shared_cycles : 0);
    }

    double estimate_us(const Problem& p, const GemmConfig& c, int32_t num_ctas) const {
        const int32_t tile_m = c.super_tile_m(), tile_n = c.super_tile_n();
        ExpectedBlocks blocks = expected_blocks(p, tile_m);
        // What padding leaves of a tile, on average. Masked tiles come in whole waves all the same; a contiguous
        // layout's blocks are no more than an estimate, so there are fewer of them instead.
        double wanted = 1;
        if (c.skips_padding) {
            const double full = expected_row_steps(p) * kWgmmaRows / tile_m;
            if (c.grouping == Grouping::masked)
                wanted = full / blocks.mean;
            else
                blocks.mean = full;
        }
        const double tiles = blocks.mean * ceil_div(p.n, tile_n);
        const double walks = tiles / (num_ctas / c.tile_ctas());  // tiles of a CTA
        const double waves =
            wanted * (c.shares_last ? std::floor(walks) + 1.0 / c.cluster.k : expected_waves(walks, blocks.scatter));
        const double k_blocks = std::ceil(static_cast<double>(ceil_div(p.k, c.tile.k)) / c.k_ctas());
        const double elements = static_cast<double>(c.tile.rows) * c.tile.cols;
        const double pair = c.multicasts() ? multicast_tile_cycles : 0;
        const double tile =
            tile_cycles + pair + (c.skips_padding ? padding_tile_cycles : 0) + elements * element_cycles(c);
        // A wave of tiles covers a square of D, no higher than a group. What it reads, other waves read again.
        const double area = static_cast<double>(num_ctas / c.k_ctas()) * elements;
        const double height = std::clamp(std::sqrt(area), static_cast<double>(tile_m),
                                         static_cast<double>(align_up(expected_group_rows(p), tile_m)));
        const double width = area / height;
        const double read =
            walks * wanted * (height * std::max(1.0, width / p.n) + width) * p.k * element_bytes(p.operand);
        const double cycles = block_cycles(p, c, static_cast<double>(num_ctas) / p.num_sms, waves);
        const double compute_us = waves * (k_blocks * cycles + tile) / clock_mhz;
        const double power_us = 2e-6 * expected_rows(p) * p.n * p.k / tflops;

        const double rows = expected_rows(p), stored = rows * p.n * element_bytes(p.output);
        const double operands = (expected_weights(p) * p.n + rows) * p.k * element_bytes(p.operand);
        const double moved = operands + stored * (p.add_c ? 2 : 1);
        const double again_us =
            std::max(0.0, read - operands) * std::max(0.0, 1 - l2_bytes / operands) / again_gb_per_s / 1e3;
        const double read_us = moved / memory_gb_per_s / 1e3, added = adds_to_memory(c.store) ? stored : 0,
                     added_us = added / (c.swap_ab ? added_swapped_gb_per_s : added_gb_per_s) / 1e3;
        const double idle = 1 - walks / (c.shares_last ? waves : std::ceil(walks)) * num_ctas / p.num_sms;
        const double memory_us = read_us + std::max(0.0, read_us - idle_from_us) * idle *
                                               (added > 0                       ? 0
                                                : c.grouping == Grouping::dense ? idle_memory
                                                                                : idle_group_memory);
        const double split = (c.k_ctas() > 1 ? split_us + part_us * (c.k_ctas() - 2) : 0) +
                             (c.shares_last ? shared_us : 0) + turn_us * (c.k_warpgroups - 1) +
                             split_us_per_element * elements * (1 - 1.0 / c.k_parts());
        const double last_us = area * element_bytes(p.output) / last_gb_per_s / 1e3;
        const bool between = added > 0 && !c.scaled() && !has_store_warp(c) && walks > 1;  // tiles, nothing hides it
        const double hidden =
            between ? norm(own_added_norm, {norm(overlap_norm, {compute_us, memory_us, power_us}), added_us})
                    : norm(overlap_norm, {compute_us, memory_us, power_us, added_us});
        return launch_us + (c.multicasts() ? multicast_us : 0) + split + again_us + last_us + hidden;
    }
};

}  // namespace deep_gemm::sm90
