// Tables of groups in shared memory, and rows of padding: how much room they take.
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm {

/// Rows of an expert's run that stand together: all of them are one expert's or padding, and a tile may end behind
/// them.
inline constexpr int32_t kRunRows = 64;

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

/// Whether rows behind a group's last one are not its own: another expert's, or no tile's.
constexpr bool ends_with_group(const GemmConfig& c) { return c.grouping == Grouping::masked || has_expert_runs(c); }

/// Whether a role of its own finds rows of padding (tile/padding.cuh). In the other layouts an expert's end says it
/// all.
constexpr bool marks_padding(const GemmConfig& c) { return c.grouping == Grouping::m_contiguous; }

/// A bit for each row of a tile, in words of 32, for the math warps.
constexpr int32_t padding_words(const GemmConfig& c) { return marks_padding(c) ? ceil_div(c.tile_m(), 32) : 0; }

/// Rows that have no tile where all of them are padding.
constexpr int32_t padding_block(const GemmConfig& c) { return has_expert_runs(c) ? kRunRows : c.tile_m(); }

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

}  // namespace deep_gemm
