// Row ranges of groups whose sizes only the device knows, read once a CTA into shared memory.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// Extents that the compiler may know.
template <GemmConfig c>
DG_DEVICE int32_t extent_m(const GemmParams& params) { return c.shape.m ? c.shape.m : params.m; }
template <GemmConfig c>
DG_DEVICE int32_t extent_n(const GemmParams& params) { return c.shape.n ? c.shape.n : params.n; }
template <GemmConfig c>
DG_DEVICE int32_t extent_k(const GemmParams& params) { return c.shape.k ? c.shape.k : params.k; }

/// Entry g: first row, end of the real rows, number of tile heights.
template <GemmConfig c>
struct GroupTable {
    uint32_t base;

    DG_DEVICE int32_t row_begin(int32_t group) const { return ptx::load_shared_int(base + group * 12); }
    DG_DEVICE int32_t row_end(int32_t group) const { return ptx::load_shared_int(base + group * 12 + 4); }
    DG_DEVICE int32_t blocks(int32_t group) const { return ptx::load_shared_int(base + group * 12 + 8); }

    /// All threads of the CTA; synchronise before reading.
    DG_DEVICE void fill(const GemmParams& params) const {
        if constexpr (c.group_capacity > 0) {
            constexpr int32_t kTileM = c.swap_ab ? c.tile.cols : c.tile.rows;
            for (int32_t group = threadIdx.x; group < params.num_groups; group += blockDim.x) {
                int32_t begin = 0, end = __ldg(params.grouped_layout + group), last = end;
                if constexpr (c.grouping == Grouping::m_psum) {
                    const int32_t previous = group == 0 ? 0 : __ldg(params.grouped_layout + group - 1);
                    begin = aligned(previous, params.m_alignment);
                    // Padding up to the next group is written too, as zeros.
                    last = params.zero_padding ? min(aligned(end, params.m_alignment), extent_m<c>(params)) : end;
                }
                ptx::store_shared_int(base + group * 12, begin);
                ptx::store_shared_int(base + group * 12 + 4, end);
                ptx::store_shared_int(base + group * 12 + 8, max(0, last - begin + kTileM - 1) / kTileM);
            }
        }
    }

private:
    static DG_DEVICE int32_t aligned(int32_t row, int32_t alignment) { return (row + alignment - 1) / alignment * alignment; }
};

}  // namespace deep_gemm
