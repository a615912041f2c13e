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

/// A group that has rows to write. The entry after the last one has group = -1.
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
        if constexpr (c.group_capacity > 0)
            if (threadIdx.x < 32) gather(params);
    }

private:
    static constexpr int32_t kTileM = c.swap_ab ? c.tile.cols : c.tile.rows;
    // Groups of one pass, 32 a chunk: their loads and scans overlap.
    static constexpr int32_t kChunks = c.group_capacity < 256 ? c.group_capacity / 32 : 8;

    static DG_DEVICE int32_t aligned(int32_t row, int32_t alignment) {
        return (row + alignment - 1) / alignment * alignment;
    }

    DG_DEVICE void write(int32_t index, const GroupEntry& e) const {
        ptx::store_shared_int_x4(base + index * kGroupEntryBytes, e.block_end, e.row_begin, e.row_end, e.group);
    }

    DG_DEVICE void gather(const GemmParams& params) const {
        const int32_t lane = threadIdx.x;
        const int32_t extent = extent_m<c>(params);
        int32_t entries = 0, blocks_before = 0;
        for (int32_t first = 0; first < params.num_groups; first += 32 * kChunks) {
            int32_t begin[kChunks], end[kChunks], blocks[kChunks], scan[kChunks];
#pragma unroll
            for (int32_t i = 0; i < kChunks; ++i) {
                const int32_t group = first + 32 * i + lane;
                begin[i] = 0, end[i] = 0;
                if (group < params.num_groups) {
                    end[i] = ptx::load_global_int(params.grouped_layout + group);
                    if (c.grouping == Grouping::m_psum && group > 0)
                        begin[i] = ptx::load_global_int(params.grouped_layout + group - 1);
                }
            }
#pragma unroll
            for (int32_t i = 0; i < kChunks; ++i) {
                end[i] = min(end[i], extent);
                int32_t last = end[i];
                if constexpr (c.grouping == Grouping::m_psum) {
                    begin[i] = aligned(begin[i], params.m_alignment);
                    // Padding up to the next group is written too, as zeros.
                    if (params.zero_padding) last = min(aligned(last, params.m_alignment), extent);
                }
                scan[i] = blocks[i] = max(0, last - begin[i] + kTileM - 1) / kTileM;
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
                const uint32_t filled = __ballot_sync(0xffffffff, blocks[i] > 0);
                if (blocks[i] > 0)
                    write(entries + __popc(filled & ((1u << lane) - 1)),
                          {blocks_before + scan[i], begin[i], end[i], first + 32 * i + lane});
                entries += __popc(filled);
                blocks_before += __shfl_sync(0xffffffff, scan[i], 31);
            }
        }
        if (lane == 0) write(entries, {blocks_before, 0, 0, -1});
    }
};

}  // namespace deep_gemm
