// The end of a tile: add C, convert, and write D, one warpgroup's 64 rows at a time. Warpgroups never wait for each other here.
#pragma once

#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/tile/scheduler.cuh>
#include <deep_gemm/tile/smem.cuh>
#include <deep_gemm/tile/swizzle.cuh>

namespace deep_gemm {

/// Where one thread's accumulators lie in D. Register 4 j + 2 h + e of a thread is row `row + 8 h`, column `col + 8 j + e`.
template <GemmConfig c>
struct Fragment {
    int32_t row, col, group;

    DG_DEVICE Fragment(const Tile& tile, int32_t first_row)
        : row(tile.row + first_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4), col(tile.col + threadIdx.x % 4 * 2), group(tile.group) {}

    DG_DEVICE int32_t m(int32_t j, int32_t h, int32_t e) const { return c.swap_ab ? col + 8 * j + e : row + 8 * h; }
    DG_DEVICE int32_t n(int32_t j, int32_t h, int32_t e) const { return c.swap_ab ? row + 8 * h : col + 8 * j + e; }
};

template <ElementType kType>
DG_DEVICE float load_element(const void* data, int64_t index) {
    if constexpr (kType == ElementType::fp32) return static_cast<const float*>(data)[index];
    return __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[index]) << 16);
}

template <ElementType kType>
DG_DEVICE void store_element(void* data, int64_t index, float value) {
    if constexpr (kType == ElementType::fp32)
        static_cast<float*>(data)[index] = value;
    else
        static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(ptx::pack_bf16(value, 0.0f));
}

template <GemmConfig c>
DG_DEVICE void add_c(float (&total)[c.tile.cols / 2], const Fragment<c>& at, const GemmParams& params) {
    const int32_t m_end = extent_m<c>(params), n_end = extent_n<c>(params);
#pragma unroll
    for (int32_t i = 0; i < c.tile.cols / 2; ++i) {
        const int32_t m = at.m(i / 4, i / 2 % 2, i % 2), n = at.n(i / 4, i / 2 % 2, i % 2);
        if (m < m_end && n < n_end)
            total[i] += load_element<c.output>(params.c_data, at.group * params.c_group_stride + m * params.c_stride + n);
    }
}

/// Registers to global memory. Pairs of FP32 that are neighbours in D go out as one access where D allows it.
template <GemmConfig c>
DG_DEVICE void store_direct(const float (&total)[c.tile.cols / 2], const Fragment<c>& at, const GemmParams& params) {
    const int32_t m_end = extent_m<c>(params), n_end = extent_n<c>(params);
    const int64_t group = at.group * params.d_group_stride;
    const bool pairs = c.output == ElementType::fp32 && !c.swap_ab && (params.d_stride | params.d_group_stride | n_end) % 2 == 0 &&
                       reinterpret_cast<uint64_t>(params.d_data) % 8 == 0;
#pragma unroll
    for (int32_t i = 0; i < c.tile.cols / 2; i += 2) {
        const int32_t j = i / 4, h = i / 2 % 2;
        const int64_t index = group + at.m(j, h, 0) * params.d_stride + at.n(j, h, 0);
        if (pairs) {
            if (at.m(j, h, 0) < m_end && at.n(j, h, 0) < n_end)
                *reinterpret_cast<float2*>(static_cast<float*>(params.d_data) + index) = make_float2(total[i], total[i + 1]);
        } else {
#pragma unroll
            for (int32_t e = 0; e < 2; ++e)
                if (at.m(j, h, e) < m_end && at.n(j, h, e) < n_end)
                    store_element<c.output>(params.d_data, index + e * (c.swap_ab ? params.d_stride : 1), total[i + e]);
        }
    }
}

/// One chunk of this warp's 16 rows as BF16 into a staging buffer, in the swizzled layout that the store's box has.
template <GemmConfig c>
DG_DEVICE void stage_chunk(uint32_t buffer, const float (&total)[c.tile.cols / 2], int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kSpan = kChunk.swizzle_bytes(), kColGroups = (c.swap_ab ? kChunk.outer : kChunk.inner) / 8;
    // Lane l addresses row l % 8 of matrix l / 8; matrices 0 and 1 are 8 rows apart, 2 and 3 are the next 8 columns.
    const int32_t lane = threadIdx.x % 32, half = lane / 8 % 2, next = lane / 16;
#pragma unroll
    for (int32_t j = 0; j < kColGroups; j += 2) {
        const float* values = total + 4 * (chunk * kColGroups + j);
        const uint32_t offset = c.swap_ab ? swizzled<kSpan>(((j + next) * 8 + lane % 8) * kSpan + half * 16)
                                          : swizzled<kSpan>((half * 8 + lane % 8) * kSpan + (j + next) * 16);
        const uint32_t a = ptx::pack_bf16(values[0], values[1]), b = ptx::pack_bf16(values[2], values[3]);
        if (j + 1 < kColGroups) {
            const uint32_t d = ptx::pack_bf16(values[4], values[5]), e = ptx::pack_bf16(values[6], values[7]);
            ptx::store_matrix_x4<c.swap_ab>(buffer + offset, a, b, d, e);
        } else {
            ptx::store_matrix_x2<c.swap_ab>(buffer + offset, a, b);
        }
    }
}

/// A warp's 16 rows through its own staging buffers; `turn` counts the chunks that this warp has stored so far.
template <GemmConfig c>
DG_DEVICE void store_staged(uint32_t staging, const float (&total)[c.tile.cols / 2], const Tile& tile, int32_t first_row,
                            int32_t& buffer, const GemmParams& params) {
    constexpr StoreChunk kChunk = store_chunk(c);
    static_assert(kChunk.buffers > 0, "no room to stage D");
    const bool storing = threadIdx.x % 32 == 0;
    const int32_t row = tile.row + first_row + threadIdx.x / 32 % 4 * 16;
#pragma unroll
    for (int32_t chunk = 0; chunk < kChunk.count; ++chunk) {
        // The engine may still read an earlier chunk from this buffer.
        if (storing) ptx::wait_stores_read<kChunk.buffers - 1>();
        __syncwarp();
        stage_chunk<c>(staging + buffer * kChunk.bytes(), total, chunk);
        ptx::fence_for_async_proxy();
        __syncwarp();
        if (storing) {
            const int32_t col = tile.col + chunk * kChunk.inner;
            ptx::store_box(&params.d, staging + buffer * kChunk.bytes(), c.swap_ab ? row : col, c.swap_ab ? tile.col : row, tile.group);
            ptx::commit_stores();
        }
        buffer = buffer + 1 == kChunk.buffers ? 0 : buffer + 1;
    }
}

}  // namespace deep_gemm
