// Where everything lies in shared memory, and how many arrivals each barrier waits for. Host and device call the same
// functions.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>

namespace deep_gemm {

inline constexpr int32_t kSmemAlignment = 1024;  // of a 128-byte-swizzled stage

/// Rows or columns of a tile that share a 128x128 block's scale wherever a multiple of the tile's extent starts.
constexpr int32_t scale_run(int32_t extent) { return gcd(extent, kScaleGranularity); }

/// 128-blocks that the tile can touch.
constexpr int32_t scale_blocks(int32_t extent) {
    return (kScaleGranularity - scale_run(extent) + extent - 1) / kScaleGranularity + 1;
}

/// Block scales of one stage, one for each run, of the side that has them.
constexpr int32_t block_scale_values(const GemmConfig& c) {
    if (!c.has_block_scales()) return 0;
    const int32_t extent = c.row_scales() == ScaleKind::per_block ? c.tile.rows : c.tile.cols;
    return extent / scale_run(extent);
}

/// Cycles of the tensor cores for one K block: 64 rows x N columns x 32 bytes of K take N / 2.
constexpr int32_t tensor_cycles(const GemmConfig& c) {
    return c.tile.rows / kWgmmaRows * c.tile.cols * (c.tile.k * element_bytes(c.operand) / 32) / 2;
}

/// Registers a math thread may have; the CTA's pool is 65,536, granted to whole warpgroups in steps of 8.
constexpr int32_t math_registers(const GemmConfig& c) { return c.math_warpgroups < 3 ? 232 : 160; }

/// What is left to the warps that load.
constexpr int32_t load_registers(const GemmConfig& c) {
    return c.math_warpgroups < 3 ? 40 : 512 - 3 * math_registers(c);
}

/// Scales per column, in groups of 8 columns, that a thread reads into registers before the tensor cores start: two
/// values each. As many as there is room for beside the accumulators.
constexpr int32_t held_col_groups(const GemmConfig& c) {
    if (!c.copies_col_scales()) return 0;
    const int32_t accumulators = (c.warpgroup_rows() / kWgmmaRows + 1) * Fragment16x8::registers(c.tile.cols);
    constexpr int32_t kOthers =
        22;  // addresses, the ring, scales per row: fewer, and K groups spill (ptxas -v, CUDA 13.0)
    const int32_t room = (math_registers(c) - kOthers - accumulators) / 2, groups = c.tile.cols / Fragment16x8::kCols;
    return room < groups ? (room < 0 ? 0 : room) : groups;
}

/// The others are read while promoting, several times as slowly, and the stage is kept until promotion is done.
constexpr bool scales_stay_in_smem(const GemmConfig& c) {
    return c.copies_col_scales() && held_col_groups(c) < c.tile.cols / Fragment16x8::kCols;
}

/// Whether the next K block is multiplied while this one is promoted. Takes a second partial accumulator; without it,
/// promotion and the waits around it are hidden by the other warpgroup alone.
constexpr bool overlaps_blocks(const GemmConfig& c) {
    const int32_t scales =
        c.col_scales() == ScaleKind::per_row && !scales_stay_in_smem(c) ? c.tile.cols / 4 : block_scale_values(c);
    return c.scaled() && c.warpgroup_rows() == kWgmmaRows && !c.wgmma_products &&
           3 * c.tile.cols / 2 + 2 * scales <= math_registers(c) - 36;
}

/// Whether a contiguous layout is read as runs of one expert's rows. Tiles then begin where runs do, the blocks of M of
/// one expert are walked together, and padding of 64 rows has no tiles. Without a table, which very many rows or tiles
/// of fewer than 64 would make too large, the layout itself tells each tile's expert.
constexpr bool has_expert_runs(const GemmConfig& c) {
    return c.grouping == Grouping::m_contiguous && c.group_capacity > 0;
}

/// Whether a table of groups, made on the device, says where tiles lie along M.
constexpr bool has_group_table(const GemmConfig& c) {
    return c.grouping == Grouping::masked || c.grouping == Grouping::m_psum || has_expert_runs(c);
}

/// Whether a role of its own finds rows of padding (tile/padding.cuh). In the other layouts an expert's end says it
/// all.
constexpr bool marks_padding(const GemmConfig& c) { return c.grouping == Grouping::m_contiguous; }

/// A bit for each row of a tile, in words of 32, for the math warps.
constexpr int32_t padding_words(const GemmConfig& c) { return marks_padding(c) ? ceil_div(c.tile_m(), 32) : 0; }

/// Rows whose first one says whether all of them are padding and have no tile.
constexpr int32_t padding_block(const GemmConfig& c) { return has_expert_runs(c) ? kWgmmaRows : c.tile_m(); }

/// A warpgroup's first row in the tile, and how far its second 64 rows are from there. Where padding is left out,
/// warpgroups are dealt 64 rows in turn, so that they share fairly those that are wanted. (Not everywhere: ptxas then
/// moves an address into a uniform register in each round.)
constexpr int32_t first_row(const GemmConfig& c, int32_t warpgroup) {
    return warpgroup % c.row_warpgroups() * (c.skips_padding ? kWgmmaRows : c.warpgroup_rows());
}
constexpr int32_t subtile_step(const GemmConfig& c) {
    return c.skips_padding ? kWgmmaRows * c.row_warpgroups() : kWgmmaRows;
}

/// Rows that one copy of the rows operand brings.
constexpr int32_t rows_box(const GemmConfig& c) { return c.skips_padding ? kWgmmaRows : c.tile.rows / c.cluster.cols; }

/// Stages of a ring that asks far ahead.
inline constexpr int32_t kDeepRing = 7;

/// Whether two K blocks are asked for at once: 256 bytes of each weight, neighbours in memory. Faster for experts with
/// few tokens, whose weights one CTA reads, with stages enough to wait for two; where several CTAs read the same, it is
/// slower, as the L2 then answers one by one (docs/performance.md).
constexpr bool copies_in_pairs(const GemmConfig& c) {
    return c.grouping == Grouping::masked && c.swap_ab && c.stages >= kDeepRing;
}

/// K blocks of its likely first tile that a CTA asks the L2 for while the groups' sizes are on their way: some 48 KB of
/// weights where they are nearly all that is read, else less (docs/performance.md). None where padding is left
/// out, since the order of experts follows from their sizes.
constexpr int32_t likely_k_blocks(const GemmConfig& c) {
    if (!has_group_table(c) || c.skips_padding) return 0;
    const int32_t bytes = c.tile_n() * c.tile.k * element_bytes(c.operand), wanted = (c.swap_ab ? 48 : 24) << 10;
    return wanted < bytes ? 1 : wanted / bytes;
}

/// Whether a tile is stored while the next one's first rows are multiplied. (Stores past the copy engine would wait for
/// the L2 with wgmma under way; clearing padding beside them takes more registers than wide tiles have.)
constexpr bool stores_late(const GemmConfig& c) {
    return c.look_ahead && is_staged(c.store) && !(c.grouping == Grouping::m_psum && c.tile.cols > 128);
}

/// Whether a stage is let go before the next issue, where a warpgroup looks ahead, and not behind it. It may go as soon
/// as its wgmma are over; ptxas mostly moves promotion before the arrival. Faster for 128x192 and for 256 rows
/// (docs/performance.md).
constexpr bool frees_early(const GemmConfig& c) {
    return c.look_ahead && c.col_scales() == ScaleKind::per_block &&
           (c.warpgroup_rows() > kWgmmaRows || c.tile.cols == 192);
}

/// Whether the math warps of experts' tiles count K blocks by the kernel's argument instead of the tile's, and leave
/// their loops together: only so does ptxas see that all lanes count alike where a tile's K blocks take two loops
/// (mma/mainloop.cuh). Elsewhere the tile's count, made uniform, is as good or better (docs/performance.md).
constexpr bool counts_by_argument(const GemmConfig& c) {
    return (c.grouping == Grouping::masked || c.grouping == Grouping::m_contiguous) && stores_late(c) &&
           c.warpgroup_rows() == kWgmmaRows;
}

/// Whether warpgroups issue a K block's wgmma one after the other (mma/issue_order.cuh). With 128 rows each, one always
/// has the other half to multiply. Where the tensor cores form products of scales, an order costs more than it gains.
constexpr bool issues_in_order(const GemmConfig& c) {
    return c.look_ahead && !c.wgmma_products && c.warpgroup_rows() == kWgmmaRows && c.math_warpgroups > 1;
}

/// Where K is split, the tile's rows are added up by 16: those of row warp w by part w % k_parts, a part being one
/// warpgroup of one CTA of the cluster. Returns how many such sums one CTA makes.
constexpr int32_t owned_row_warps(const GemmConfig& c) {
    return ceil_div(c.tile.rows / Fragment16x8::kRows, c.k_parts()) * c.k_warpgroups;
}

/// One warp's accumulators.
constexpr int32_t split_k_part_bytes(const GemmConfig& c) { return Fragment16x8::registers(c.tile.cols) * 32 * 4; }

/// What the owner of 16 rows is sent: every part but its own.
constexpr int32_t received_bytes(const GemmConfig& c) { return (c.k_parts() - 1) * split_k_part_bytes(c); }

/// Pieces of 16 rows of a tile that CTAs share (GemmConfig::shares_last): by turns one CTA's and the other's.
constexpr int32_t shared_piece(const GemmConfig& c, int32_t warp, int32_t subtile) {
    return warp * (c.warpgroup_rows() / kWgmmaRows) + subtile;
}
constexpr int32_t shared_pieces(const GemmConfig& c) { return c.shares_last ? c.tile.rows / Fragment16x8::kRows : 0; }

/// What the owners of a CTA are sent, and the barriers that wait for it. (What a shared tile's owners are sent goes
/// where stages were, and one more barrier says when.)
constexpr int32_t parts_bytes(const GemmConfig& c) {
    return c.k_parts() == 1 ? 0 : owned_row_warps(c) * received_bytes(c);
}
constexpr int32_t part_barriers(const GemmConfig& c) {
    return c.shares_last ? shared_pieces(c) / 2 + 1 : c.k_parts() == 1 ? 0 : owned_row_warps(c);
}

/// Tiles of one matrix.
constexpr int32_t dense_tiles(const GemmConfig& c, int32_t m, int32_t n) {
    return ceil_div(m, c.tile_m()) * ceil_div(n, c.tile_n());
}

/// Of these, how many of the last wave CTAs share (GemmConfig::shares_last): there must be a pair for each.
constexpr int32_t shared_tiles(const GemmConfig& c, int64_t tiles, int32_t ctas) {
    const int32_t last = static_cast<int32_t>(tiles % ctas);
    return c.shares_last && last <= ctas / 2 ? last : 0;
}

/// Whether the host says which cluster walks where (GemmParams::places).
constexpr bool has_places(const GemmConfig& c) { return c.cluster.size() > 1 && c.cluster.rows == 1; }

/// Each math warp stages its 16 rows of D in chunks of one swizzle span. In D's own frame `inner` runs along N and
/// `outer` along M.
struct StoreChunk {
    int32_t inner, outer;  // elements
    int32_t count;         // chunks of the 16 rows
    int32_t element_bytes;
    constexpr int32_t bytes() const { return outer * swizzle_bytes(); }
    constexpr int32_t swizzle_bytes() const { return inner * element_bytes; }
};

constexpr StoreChunk store_chunk(const GemmConfig& c) {
    const int32_t size = element_bytes(c.output);
    if (c.swap_ab) return {Fragment16x8::kRows, c.tile.cols, 1, size};
    const int32_t inner = gcd(c.tile.cols, kSwizzleBytes / size);
    return {inner, Fragment16x8::kRows, c.tile.cols / inner, size};
}

/// Chunks that a warp stores for one tile.
constexpr int32_t store_chunks_per_tile(const GemmConfig& c) {
    return c.warpgroup_rows() / kWgmmaRows * store_chunk(c).count;
}

constexpr int32_t staging_bytes_per_warp(const GemmConfig& c) {
    return is_staged(c.store) ? c.store_buffers * store_chunk(c).bytes() : 0;
}
constexpr int32_t staging_bytes(const GemmConfig& c) {
    return align_up(c.math_warpgroups * 4 * staging_bytes_per_warp(c), 1024);
}

/// Whether D's staging buffers and the parts of a split K have room where the stages' operands were.
constexpr bool parts_fit_ring(const GemmConfig& c) {
    return staging_bytes(c) + parts_bytes(c) <= c.stages * (c.tile.rows + c.tile.cols) * kSwizzleBytes;
}

/// Whether a warp of its own issues the copies that store D. Takes staging buffers for all of a tile.
constexpr bool has_store_warp(const GemmConfig& c) {
    return (stores_late(c) || ((overlaps_blocks(c) || !c.scaled()) && !c.swap_ab)) && is_staged(c.store) &&
           c.k_parts() == 1 && c.math_warpgroups > 1 && c.store_buffers == store_chunks_per_tile(c) &&
           (c.grouping != Grouping::k_contiguous || adds_to_memory(c.store));
}

/// Whether all lanes of the load warp walk tiles and K blocks together and one of them copies, or one thread does it
/// all. What a copy takes is in uniform registers, and for a warp it stays there; for one thread ptxas moves it there
/// for each K block (R2UR), before the copy. Not where ptxas then compiles the math warps' loop over K worse: experts'
/// 128x192 (docs/performance.md).
constexpr bool loads_by_warp(const GemmConfig& c) {
    return !(has_group_table(c) && c.look_ahead && c.warpgroup_rows() == kWgmmaRows);
}

/// Whether math warps read block scales of columns at an address that ptxas takes for another in each lane. Beside a
/// load warp it otherwise moves those of some tiles into uniform registers behind each wait (R2UR). Only for these
/// tiles: others have the slower loop over K when they read by lane (docs/performance.md).
constexpr bool reads_scales_by_lane(const GemmConfig& c) {
    const bool tall = c.look_ahead && c.warpgroup_rows() > kWgmmaRows;
    return loads_by_warp(c) &&
           (c.tile.cols == 112 || c.tile.cols == 144 || (tall ? !has_store_warp(c) : has_group_table(c)));
}

/// One entry for each group that has rows, and the end mark.
inline constexpr int32_t kGroupEntryBytes = 16;
constexpr int32_t group_entries_bytes(const GemmConfig& c) {
    return c.group_capacity > 0 ? (c.group_capacity + 1) * kGroupEntryBytes : 0;
}

/// Experts' runs are found in steps of 64 rows a thread, so many at a time. Each warp counts those that begin in a step
/// of its own; the counts lie behind the entries.
inline constexpr int32_t kRunSteps = 2, kRunCountBytes = 32 * 4;
constexpr int32_t group_table_bytes(const GemmConfig& c) {
    return group_entries_bytes(c) + (has_expert_runs(c) ? kRunCountBytes : 0);
}

/// The table is filled in rounds of up to so many groups, 32 a chunk: the chunks' loads and scans overlap. Few chunks
/// of runs, which are read from shared memory: each takes its time, whether there are so many or not.
inline constexpr int32_t kMostChunks = 8, kChunksOfRuns = 2;
constexpr int32_t group_chunks(const GemmConfig& c) {
    if (has_expert_runs(c)) return kChunksOfRuns;
    return c.group_capacity < kMostChunks * 32 ? c.group_capacity / 32 : kMostChunks;
}

/// A column's scale as an operand of wgmma: two TF32 values and two zeros.
inline constexpr int32_t kColScaleBytes = 16;
inline constexpr int32_t kSplitWarps = 2;  // that write them

struct SmemPlan {
    int32_t rows_bytes, cols_bytes, row_scale_bytes, col_scale_bytes, block_scale_bytes;  // of one stage
    // Offsets.
    int32_t staging, rows, cols, row_scales, col_scales, block_scales, barriers, padding_barriers, parts, part_barriers,
        groups, padding;
    int32_t bytes;  // of the launch, alignment slack included
};

constexpr SmemPlan plan_smem(const GemmConfig& c) {
    SmemPlan p{};
    const int32_t row_bytes = c.tile.k * element_bytes(c.operand);
    p.rows_bytes = c.tile.rows * row_bytes;
    p.cols_bytes = align_up(c.tile.cols * row_bytes, 1024);
    p.row_scale_bytes = c.row_scales() == ScaleKind::per_row ? align_up(c.tile.rows * 4, 128) : 0;
    p.col_scale_bytes = c.wgmma_products        ? c.tile.cols * kColScaleBytes
                        : c.copies_col_scales() ? align_up(c.tile.cols * 4, 128)
                                                : 0;
    p.block_scale_bytes = align_up(block_scale_values(c) * 4, 16);

    p.staging = 0;
    p.rows = c.parts_in_ring ? 0 : staging_bytes(c);
    p.cols = p.rows + c.stages * p.rows_bytes;
    p.row_scales = p.cols + c.stages * p.cols_bytes;
    p.col_scales = p.row_scales + c.stages * p.row_scale_bytes;
    p.block_scales = p.col_scales + c.stages * p.col_scale_bytes;
    p.barriers = p.block_scales + c.stages * p.block_scale_bytes;
    p.padding_barriers = p.barriers + (2 * c.stages + (has_store_warp(c) ? 2 : 0)) * 8;
    p.part_barriers = p.padding_barriers + (marks_padding(c) ? 2 : 0) * 8;
    const int32_t behind = align_up(p.part_barriers + part_barriers(c) * 8, 16);
    p.parts = c.parts_in_ring ? staging_bytes(c) : c.shares_last ? p.rows : behind;
    p.groups = c.parts_in_ring || c.shares_last ? behind : p.parts + parts_bytes(c);
    p.padding = p.groups + group_table_bytes(c);
    p.bytes = p.padding + align_up(padding_words(c) * 4, 16) +
              kSmemAlignment;  // the driver aligns dynamic shared memory to 16 bytes only
    // compute-sanitizer takes an operand that wgmma reads twice for one of twice the size: it must end inside as well.
    if (c.wgmma_products) p.bytes += c.tile.cols * kColScaleBytes;
    return p;
}

/// Rows that the last tile along an extent copies: what is left, in whole swizzle atoms. The copy engine takes
/// about 4 cycles for each row beyond the tensor (docs/performance.md), and a box of the full height would have
/// many of them. Nothing writes the rest of the stage; what it holds reaches only rows and columns of the product that
/// are not stored.
constexpr int32_t last_box(int32_t extent, int32_t tile) {
    return extent % tile == 0 ? tile : align_up(extent % tile, 8);
}

/// Whether an operand's last tile has a tensor map of its own. Not where a box is shared by multicast, nor where groups
/// have maps of their own, nor where boxes are of so many K, not rows.
constexpr bool has_last_rows(const GemmConfig& c) {
    return c.grouping == Grouping::dense && c.cluster.cols == 1 && !c.mn_major_rows();
}
constexpr bool has_last_cols(const GemmConfig& c) {
    return c.grouping == Grouping::dense && c.cluster.rows == 1 && !c.mn_major_cols();
}

/// "full": the copying thread, and the warp that writes scales.
constexpr int32_t full_arrivals(const GemmConfig& c) {
    return 1 + (c.wgmma_products ? kSplitWarps : c.has_block_scales() ? 1 : 0);
}

/// "empty": every math warp that reads the stage, in every CTA that this CTA's copies reach.
constexpr int32_t empty_arrivals(const GemmConfig& c) {
    return (c.cluster.rows + c.cluster.cols - 1) * c.row_warpgroups() * 4;
}

/// Bytes that one stage's copies bring; scales that a warp writes are not among them.
constexpr int32_t stage_transaction_bytes(const GemmConfig& c) {
    const int32_t row_bytes = c.tile.k * element_bytes(c.operand);
    return (c.tile.rows + c.tile.cols) * row_bytes + (c.row_scales() == ScaleKind::per_row ? c.tile.rows * 4 : 0) +
           (c.copies_col_scales() ? c.tile.cols * 4 : 0);
}

}  // namespace deep_gemm
