// Row ranges of groups whose sizes only the device knows, gathered once a CTA into shared memory.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/plan.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// Extents that the compiler may know.
template <GemmConfig c>
DG_DEVICE int32_t extent_m(const GemmParams& params) {
    return c.shape.m ? c.shape.m : params.m;
}
template <GemmConfig c>
DG_DEVICE int32_t extent_n(const GemmParams& params) {
    return c.shape.n ? c.shape.n : params.n;
}

/// A group that has rows to write, or a run of rows in a contiguous layout. The entry after the last one has group =
/// -1.
struct GroupEntry {
    int32_t block_end;           // blocks of tile height in this group and all before it
    int32_t row_begin, row_end;  // its real rows; blocks past row_end are padding to be zeroed
    int32_t group;
};

template <GemmConfig c>
struct GroupTable {
    uint32_t base;

    DG_DEVICE GroupEntry entry(int32_t index) const {
        const int4 v = ptx::load_shared_int_x4(base + index * kGroupEntryBytes);
        return {v.x, v.y, v.z, v.w};
    }

    /// All threads of the CTA may call it, the first warp works. Synchronise before reading.
    DG_DEVICE void fill(const GemmParams& params) const {
        if constexpr (has_group_table(c))
            if (threadIdx.x < 32) gather(params);
    }

private:
    static constexpr int32_t kTileM = c.tile_m();
    static constexpr int32_t kChunks = group_chunks(c);

    /// What a lane knows of its groups, one in each chunk.
    struct Groups {
        int32_t begin[kChunks], end[kChunks], blocks[kChunks], group[kChunks];
    };

    DG_DEVICE void write(int32_t index, const GroupEntry& e) const {
        ptx::store_shared_int_x4(base + index * kGroupEntryBytes, e.block_end, e.row_begin, e.row_end, e.group);
    }

    DG_DEVICE void gather(const GemmParams& params) const {
        const int32_t lane = threadIdx.x;
        const int32_t count =
            has_expert_runs(c) ? (extent_m<c>(params) + kWgmmaRows - 1) / kWgmmaRows : params.num_groups;
        int32_t entries = 0, blocks_before = 0;
        for (int32_t first = 0; first < count;) {
            Groups groups;
            if constexpr (has_expert_runs(c)) {
                first = find_runs(groups, first + lane, params) / kWgmmaRows;
            } else {
                read_counts(groups, first + lane, params);
                first += 32 * kChunks;
            }
            // Where padding is left out, tiles differ in what they cost. CTAs take tiles in turn: experts of one tile
            // stand together with those that cost as much, the costly ones first, so that each CTA has as much to do.
            // Experts of several tiles come before them, as they are.
            constexpr int32_t kSizes = c.skips_padding ? kTileM / kWgmmaRows : 1;
#pragma unroll
            for (int32_t size = kSizes; size > 0; --size) {
                int32_t scan[kChunks];
                uint32_t chosen[kChunks];
#pragma unroll
                for (int32_t i = 0; i < kChunks; ++i) {
                    const bool mine =
                        groups.blocks[i] > 0 && (kSizes == 1 || size_of(groups.end[i] - groups.begin[i]) == size);
                    scan[i] = mine ? groups.blocks[i] : 0;
                    chosen[i] = __ballot_sync(0xffffffff, mine);
                }
#pragma unroll
                for (int32_t distance = 1; distance < 32; distance *= 2) {
#pragma unroll
                    for (int32_t i = 0; i < kChunks; ++i) {
                        const int32_t below = __shfl_up_sync(0xffffffff, scan[i], distance);
                        if (lane >= distance) scan[i] += below;
                    }
                }
#pragma unroll
                for (int32_t i = 0; i < kChunks; ++i) {
                    const int32_t index = entries + __popc(chosen[i] & ((1u << lane) - 1));
                    // More runs than fit are no legal layout.
                    if ((chosen[i] >> lane & 1) && index < c.group_capacity)
                        write(index, {blocks_before + scan[i], groups.begin[i], groups.end[i], groups.group[i]});
                    entries += __popc(chosen[i]);
                    blocks_before += __shfl_sync(0xffffffff, scan[i], 31);
                }
            }
        }
        if (lane == 0) write(min(entries, c.group_capacity), {blocks_before, 0, 0, -1});
    }

    /// Of an expert's tile, in steps of 64 rows; that of several tiles is a full one's.
    static DG_DEVICE int32_t size_of(int32_t rows) { return (min(rows, kTileM) + kWgmmaRows - 1) / kWgmmaRows; }

    static DG_DEVICE int32_t aligned(int32_t row, int32_t alignment) {
        return (row + alignment - 1) / alignment * alignment;
    }

    /// Masked: how many rows each group has. Psum: where they end.
    static DG_DEVICE void read_counts(Groups& groups, int32_t first, const GemmParams& params) {
        const int32_t extent = extent_m<c>(params);
#pragma unroll
        for (int32_t i = 0; i < kChunks; ++i) {
            const int32_t group = groups.group[i] = first + 32 * i;
            groups.begin[i] = 0, groups.end[i] = 0;
            if (group < params.num_groups) {
                groups.end[i] = ptx::load_global_int(params.grouped_layout + group);
                if (c.grouping == Grouping::m_psum && group > 0)
                    groups.begin[i] = ptx::load_global_int(params.grouped_layout + group - 1);
            }
        }
#pragma unroll
        for (int32_t i = 0; i < kChunks; ++i) {
            groups.end[i] = min(groups.end[i], extent);
            int32_t last = groups.end[i];
            if constexpr (c.grouping == Grouping::m_psum) {
                groups.begin[i] = aligned(groups.begin[i], params.m_alignment);
                // Padding up to the next group is written too, as zeros.
                if (params.zero_padding) last = min(aligned(last, params.m_alignment), extent);
            }
            groups.blocks[i] = max(0, last - groups.begin[i] + kTileM - 1) / kTileM;
        }
    }

    /// Contiguous: each row names its expert, or is padding. The first of 64 rows speaks for them. A run's first lane
    /// has it; a run ends with its expert, where padding begins, or with the pass, in whole tiles. Returns the row
    /// where the next pass begins: what is left of that run.
    static DG_DEVICE int32_t find_runs(Groups& groups, int32_t first, const GemmParams& params) {
        const int32_t lane = threadIdx.x, extent = extent_m<c>(params);
#pragma unroll
        for (int32_t i = 0; i < kChunks; ++i) {
            const int32_t row = groups.begin[i] = (first + 32 * i) * kWgmmaRows;
            const int32_t group = row < extent ? ptx::load_global_int(params.grouped_layout + row) : -1;
            groups.group[i] = static_cast<uint32_t>(group) < static_cast<uint32_t>(params.num_groups) ? group : -1;
        }
        int32_t pass_end = groups.begin[kChunks - 1] + (32 - lane) * kWgmmaRows,
                next = pass_end;  // where the chunk's last run ends
        bool last = true;
#pragma unroll
        for (int32_t i = kChunks - 1; i >= 0; --i) {
            int32_t before = __shfl_up_sync(0xffffffff, groups.group[i], 1);
            const int32_t other = i > 0 ? __shfl_sync(0xffffffff, groups.group[i > 0 ? i - 1 : 0], 31) : -2;
            if (lane == 0) before = other;
            const uint32_t starts = __ballot_sync(0xffffffff, groups.group[i] != before),
                           later = starts & ~((2u << lane) - 1);
            const int32_t chunk = groups.begin[i] - lane * kWgmmaRows;
            if (starts && last) {
                const int32_t begin = chunk + (31 - __clz(starts)) * kWgmmaRows;
                next = pass_end = begin + (pass_end - begin) / kTileM * kTileM;
                last = false;
            }
            groups.end[i] = min(later ? chunk + (__ffs(later) - 1) * kWgmmaRows : next, extent);
            const bool run = groups.group[i] >= 0 && (starts >> lane & 1);
            groups.blocks[i] = run ? (groups.end[i] - groups.begin[i] + kTileM - 1) / kTileM : 0;
            if (starts) next = chunk + (__ffs(starts) - 1) * kWgmmaRows;
        }
        return pass_end;
    }
};

}  // namespace deep_gemm
