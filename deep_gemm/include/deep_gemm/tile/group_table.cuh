// Row ranges of groups whose sizes only the device knows, gathered once a CTA into shared memory.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/expert_runs.cuh>
#include <deep_gemm/tile/group_entry.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct GroupTable {
    uint32_t base;

    DG_DEVICE GroupEntry entry(int32_t index) const {
        const int4 v = ptx::load_shared_int_x4(base + index * kGroupEntryBytes);
        return {v.x, v.y, v.z, v.w};
    }

    /// Blocks of all groups of a psum layout.
    DG_DEVICE int32_t all_blocks() const {
        static_assert(c.grouping == Grouping::m_psum);
        return entry(c.group_capacity).block_end;
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

    /// What a lane knows of its group.
    struct Group {
        int32_t begin = 0, end = 0, blocks = 0, group = -1;
    };

    DG_DEVICE void write(int32_t index, const GroupEntry& e) const {
        ptx::store_shared_int_x4(base + index * kGroupEntryBytes, e.block_end, e.row_begin, e.row_end, e.group);
    }

    /// The first warp: blocks of each group, and of all before it. A lane has a group, 32 groups at a time.
    DG_DEVICE void gather(const GemmParams& params, int32_t count) const {
        const int32_t lane = threadIdx.x;
        int32_t entries = 0, blocks_before = 0;
        for (int32_t first = 0; first < count; first += 32) {
            Group mine;
            if constexpr (has_expert_runs(c))
                mine = read_run(first + lane, count);
            else
                mine = read_counts(first + lane, params);
            const uint32_t chosen = __ballot_sync(0xffffffff, mine.blocks > 0);
            int32_t scan = mine.blocks;
#pragma unroll
            for (int32_t distance = 1; distance < 32; distance *= 2) {
                const int32_t below = __shfl_up_sync(0xffffffff, scan, distance);
                if (lane >= distance) scan += below;
            }
            if (mine.blocks > 0)
                write(entries + __popc(chosen & ((1u << lane) - 1)),
                      {legal(blocks_before + scan, params), mine.begin, mine.end, mine.group});
            entries += __popc(chosen);
            blocks_before += __shfl_sync(0xffffffff, scan, 31);
        }
        if (lane != 0) return;
        const GroupEntry end{legal(blocks_before, params), 0, 0, -1};
        write(entries, end);
        if constexpr (c.grouping == Grouping::m_psum) write(c.group_capacity, end);  // where it can be found
    }

    /// Groups overlap where psum ends decrease. They then get no more blocks than those of any right layout.
    static DG_DEVICE int32_t legal(int32_t blocks, const GemmParams& params) {
        if constexpr (c.grouping != Grouping::m_psum) return blocks;
        return min(blocks, (extent_m<c>(params) + kTileM - 1) / kTileM + params.num_groups);
    }

    static DG_DEVICE int32_t aligned(int32_t row, int32_t alignment) {
        return (row + alignment - 1) / alignment * alignment;
    }

    /// Masked: how many rows each group has. Psum: where they end.
    static DG_DEVICE Group read_counts(int32_t group, const GemmParams& params) {
        const int32_t extent = extent_m<c>(params);
        Group found{.group = group};
        if (group < params.num_groups) {
            found.end = ptx::load_global_int(params.grouped_layout + group);
            if (c.grouping == Grouping::m_psum && group > 0)
                found.begin = ptx::load_global_int(params.grouped_layout + group - 1);
        }
        found.end = max(0, min(found.end, extent));
        int32_t last = found.end;
        if constexpr (c.grouping == Grouping::m_psum) {
            found.begin = aligned(max(0, min(found.begin, extent)), params.m_alignment);
            // Padding up to the next group is written too, as zeros.
            if (params.zero_padding) last = min(aligned(last, params.m_alignment), extent);
        }
        found.blocks = max(0, last - found.begin + kTileM - 1) / kTileM;
        return found;
    }

    /// Contiguous: what all threads have found.
    DG_DEVICE Group read_run(int32_t index, int32_t count) const {
        const GroupEntry run = index < count ? entry(index) : GroupEntry{};
        __syncwarp();  // the entries are written over by others
        return {run.row_begin, run.row_end, (run.row_end - run.row_begin + kTileM - 1) / kTileM, run.group};
    }
};

}  // namespace deep_gemm
