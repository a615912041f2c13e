// Row ranges of groups whose sizes only the device knows, gathered once a CTA into shared memory.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/expert_runs.cuh>
#include <deep_gemm/tile/group_entry.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

template <GemmConfig c>
struct GroupTable {
    uint32_t base;

    DG_DEVICE GroupEntry entry(int32_t index) const {
        const int4 v = ptx::load_shared_int_x4(base + index * kGroupEntryBytes);
        return {v.x, v.y, v.z, v.w};
    }

    /// All kThreads threads of the CTA call it. Synchronise before reading.
    template <int32_t kThreads>
    DG_DEVICE void fill(const GemmParams& params) const {
        if constexpr (has_expert_runs(c)) {
            const int32_t runs = ExpertRuns<c, kThreads>(params, base, base + group_entries_bytes(c)).find();
            if (threadIdx.x < 32) gather(params, min(runs, c.group_capacity));
        } else if constexpr (has_group_table(c)) {
            if (threadIdx.x < 32) gather(params, params.num_groups);
        }
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

    /// The first warp: blocks of each group, and of all before it.
    DG_DEVICE void gather(const GemmParams& params, int32_t count) const {
        const int32_t lane = threadIdx.x;
        int32_t entries = 0, blocks_before = 0;
        for (int32_t first = 0; first < count; first += 32 * kChunks) {
            Groups groups;
            if constexpr (has_expert_runs(c))
                read_runs(groups, first + lane, count);
            else
                read_counts(groups, first + lane, params);
            // Where padding is left out, tiles differ in what they cost. CTAs take tiles in turn: experts of one tile
            // stand together with those that cost as much, the costly ones first, so that each CTA has as much to do.
            // Experts of several tiles come before them, as they are.
            constexpr int32_t kSizes = c.skips_padding ? kTileM / kRunRows : 1;
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
                    if (chosen[i] >> lane & 1)
                        write(index, {legal(blocks_before + scan[i], params), groups.begin[i], groups.end[i],
                                      groups.group[i]});
                    entries += __popc(chosen[i]);
                    blocks_before += __shfl_sync(0xffffffff, scan[i], 31);
                }
            }
        }
        if (lane == 0) write(entries, {legal(blocks_before, params), 0, 0, -1});
    }

    /// Groups overlap where psum ends decrease. They then get no more blocks than those of any right layout.
    static DG_DEVICE int32_t legal(int32_t blocks, const GemmParams& params) {
        if constexpr (c.grouping != Grouping::m_psum) return blocks;
        return min(blocks, (extent_m<c>(params) + kTileM - 1) / kTileM + params.num_groups);
    }

    /// Of an expert's tile, in steps of 64 rows; that of several tiles is a full one's.
    static DG_DEVICE int32_t size_of(int32_t rows) { return (min(rows, kTileM) + kRunRows - 1) / kRunRows; }

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
            groups.end[i] = max(0, min(groups.end[i], extent));
            int32_t last = groups.end[i];
            if constexpr (c.grouping == Grouping::m_psum) {
                groups.begin[i] = aligned(max(0, min(groups.begin[i], extent)), params.m_alignment);
                // Padding up to the next group is written too, as zeros.
                if (params.zero_padding) last = min(aligned(last, params.m_alignment), extent);
            }
            groups.blocks[i] = max(0, last - groups.begin[i] + kTileM - 1) / kTileM;
        }
    }

    /// Contiguous: what all threads have found.
    DG_DEVICE void read_runs(Groups& groups, int32_t first, int32_t count) const {
#pragma unroll
        for (int32_t i = 0; i < kChunks; ++i) {
            const int32_t index = first + 32 * i;
            const GroupEntry run = index < count ? entry(index) : GroupEntry{};
            groups.begin[i] = run.row_begin, groups.end[i] = run.row_end, groups.group[i] = run.group;
            groups.blocks[i] = (run.row_end - run.row_begin + kTileM - 1) / kTileM;
        }
        __syncwarp();  // entries are written over them, in another order
    }
};

}  // namespace deep_gemm
