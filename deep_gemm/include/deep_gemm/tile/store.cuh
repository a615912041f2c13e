// The end of a tile: add C, convert, and write D, one warpgroup's 64 rows at a time. Warpgroups never wait for each
// other here.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/tile/scheduler.cuh>
#include <deep_gemm/tile/smem.cuh>
#include <deep_gemm/tile/swizzle.cuh>

namespace deep_gemm {

/// D's (or C's) elements behind one thread's accumulators. Register 4 j + 2 h + e is row `row + 8 h`, column `col + 8 j
/// + e` of the instruction's frame; registers come in pairs (e = 0, 1). Two running pointers are all the addressing
/// that takes registers.
template <GemmConfig c>
struct Fragment {
    int32_t row, col;      // of register 0, in D's own frame: M and N
    int32_t m_end, n_end;  // first elements past D
    int32_t group;

    DG_DEVICE Fragment(const Tile& tile, int32_t first_row, const GemmParams& params)
        : m_end(c.grouping == Grouping::masked ? tile.m_end : extent_m<c>(params)),
          n_end(extent_n<c>(params)),
          group(group_of_d<c>(tile)) {
        const int32_t along_rows = tile.row + first_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        const int32_t along_cols = tile.col + threadIdx.x % 4 * 2;
        row = c.swap_ab ? along_cols : along_rows;
        col = c.swap_ab ? along_rows : along_cols;
    }

    /// visit(register, pointer to the first element of the pair, distance to the second, is the first inside, is the
    /// second).
    template <typename Element, typename Visit>
    DG_DEVICE void for_each_pair(Element* data, int64_t stride, int64_t group_stride, const Visit& visit) const {
        Element* line = data + group * group_stride + row * stride + col;
#pragma unroll
        for (int32_t j = 0; j < c.tile.cols / 8; ++j) {
#pragma unroll
            for (int32_t h = 0; h < 2; ++h) {
                if constexpr (c.swap_ab) {
                    const bool inside = col + 8 * h < n_end;
                    visit(4 * j + 2 * h, line + 8 * h, stride, inside && row + 8 * j < m_end,
                          inside && row + 8 * j + 1 < m_end);
                } else {
                    const bool inside = row + 8 * h < m_end;
                    visit(4 * j + 2 * h, line + 8 * j + h * 8 * stride, int64_t{1}, inside && col + 8 * j < n_end,
                          inside && col + 8 * j + 1 < n_end);
                }
            }
            if constexpr (c.swap_ab) line += 8 * stride;
            // With three math warpgroups registers are short: at most 16 loads of C in flight.
            if constexpr (c.math_warpgroups == 3)
                if (j % 4 == 3) asm volatile("" ::: "memory");
        }
    }
};

DG_DEVICE float to_float(float value) { return value; }
DG_DEVICE float to_float(uint16_t bf16) { return __uint_as_float(static_cast<uint32_t>(bf16) << 16); }
DG_DEVICE void from_float(float& target, float value) { target = value; }
DG_DEVICE void from_float(uint16_t& bf16, float value) { bf16 = static_cast<uint16_t>(ptx::pack_bf16(value, 0.0f)); }

template <ElementType>
struct Storage;
template <>
struct Storage<ElementType::fp32> {
    using Type = float;
};
template <>
struct Storage<ElementType::bf16> {
    using Type = uint16_t;
};

template <GemmConfig c>
DG_DEVICE void add_c(float (&total)[c.tile.cols / 2], const Fragment<c>& at, const GemmParams& params) {
    using Element = typename Storage<c.output>::Type;
    at.for_each_pair(static_cast<const Element*>(params.c_data), params.c_stride, params.c_group_stride,
                     [&](int32_t i, const Element* pair, int64_t step, bool first, bool second) {
                         if (first) total[i] += to_float(pair[0]);
                         if (second) total[i + 1] += to_float(pair[step]);
                     });
}

/// Padding between a group's real rows and the next group becomes zero, whatever A and its scales hold there. Tiles end
/// before the next group starts, so the whole tile may be written.
template <GemmConfig c>
DG_DEVICE void clear_padding(float (&total)[c.tile.cols / 2], const Fragment<c>& at, const Tile& tile) {
    if ((c.swap_ab ? tile.col + c.tile.cols : tile.row + c.tile.rows) <= tile.m_end) return;
#pragma unroll
    for (int32_t i = 0; i < c.tile.cols / 2; ++i) {
        const int32_t row = at.row + (c.swap_ab ? i / 4 * 8 + i % 2 : i / 2 % 2 * 8);
        total[i] = row < tile.m_end ? total[i] : 0.0f;
    }
}

/// Registers to global memory, in place of what is there or added to it. Pairs of FP32 that are neighbours in D go out
/// as one access where D allows it.
template <GemmConfig c>
DG_DEVICE void store_direct(const float (&total)[c.tile.cols / 2], const Fragment<c>& at, const GemmParams& params) {
    using Element = typename Storage<c.output>::Type;
    constexpr bool kMayPair = c.output == ElementType::fp32 && !c.swap_ab;
    constexpr bool kAdd = adds_to_memory(c.store);
    static_assert(!kAdd || c.output == ElementType::fp32, "only FP32 is added in place: BF16 would be rounded twice");
    static_assert(!covers_two_experts(c), "another expert's rows would be written");
    const bool paired = kMayPair && (params.d_stride | params.d_group_stride | at.n_end) % 2 == 0 &&
                        reinterpret_cast<uint64_t>(params.d_data) % 8 == 0;
    at.for_each_pair(static_cast<Element*>(params.d_data), params.d_stride, params.d_group_stride,
                     [&](int32_t i, Element* pair, int64_t step, bool first, bool second) {
                         if constexpr (kAdd) {
                             if (kMayPair && paired) {
                                 if (first) ptx::add_global_x2(pair, total[i], total[i + 1]);
                             } else {
                                 if (first) ptx::add_global(pair, total[i]);
                                 if (second) ptx::add_global(pair + step, total[i + 1]);
                             }
                         } else if (kMayPair && paired) {
                             if (first) *reinterpret_cast<float2*>(pair) = make_float2(total[i], total[i + 1]);
                         } else {
                             if (first) from_float(pair[0], total[i]);
                             if (second) from_float(pair[step], total[i + 1]);
                         }
                     });
}

/// One chunk of this warp's 16 rows as FP32 into a staging buffer, in the swizzled layout that the store's box has.
template <GemmConfig c>
DG_DEVICE void stage_fp32(uint32_t buffer, const float (&total)[c.tile.cols / 2], int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kSpan = kChunk.swizzle_bytes(), kColGroups = (c.swap_ab ? kChunk.outer : kChunk.inner) / 8;
    const int32_t lane = ptx::lane(), row = lane / 4, col = lane % 4 * 2;
#pragma unroll
    for (int32_t j = 0; j < kColGroups; ++j) {
        const float* values = total + 4 * (chunk * kColGroups + j);
#pragma unroll
        for (int32_t h = 0; h < 2; ++h) {
            if constexpr (c.swap_ab) {
                const int32_t offset = (8 * j + col) * kSpan + (row + 8 * h) * 4;
                ptx::store_shared(buffer + swizzled<kSpan>(offset), values[2 * h]);
                ptx::store_shared(buffer + swizzled<kSpan>(offset + kSpan), values[2 * h + 1]);
            } else {
                ptx::store_shared_x2(buffer + swizzled<kSpan>((row + 8 * h) * kSpan + (8 * j + col) * 4), values[2 * h],
                                     values[2 * h + 1]);
            }
        }
    }
}

/// The same as BF16.
template <GemmConfig c>
DG_DEVICE void stage_bf16(uint32_t buffer, const float (&total)[c.tile.cols / 2], int32_t chunk) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kSpan = kChunk.swizzle_bytes(), kColGroups = (c.swap_ab ? kChunk.outer : kChunk.inner) / 8;
    // Lane l addresses row l % 8 of matrix l / 8; matrices 0 and 1 are 8 rows apart, 2 and 3 are the next 8 columns.
    const int32_t lane = threadIdx.x % 32, half = lane / 8 % 2, next = lane / 16;
#pragma unroll
    for (int32_t j = 0; j < kColGroups; j += 2) {
        const float* values = total + 4 * (chunk * kColGroups + j);
        const uint32_t offset = c.swap_ab ? swizzled<kSpan>(((j + next) * 8 + lane % 8) * kSpan + half * 16)
                                          : swizzled<kSpan>((half * 8 + lane % 8) * kSpan + (j + next) * 16);
        const uint32_t first = ptx::pack_bf16(values[0], values[1]), second = ptx::pack_bf16(values[2], values[3]);
        if (j + 1 < kColGroups)
            ptx::store_matrix_x4<c.swap_ab>(buffer + offset, first, second, ptx::pack_bf16(values[4], values[5]),
                                            ptx::pack_bf16(values[6], values[7]));
        else
            ptx::store_matrix_x2<c.swap_ab>(buffer + offset, first, second);
    }
}

/// A warp's 16 rows through its own ring of staging buffers, a batch of chunks at a time; no warp waits for another
/// one. The copy engine drains them while the next tile is multiplied: plain stores would hold the warp until the L2
/// has taken them all.
template <GemmConfig c>
DG_DEVICE void store_staged(uint32_t staging, const float (&total)[c.tile.cols / 2], const Tile& tile,
                            int32_t first_row, int32_t& batch, const GemmParams& params) {
    constexpr StoreChunk kChunk = store_chunk(c);
    constexpr int32_t kBatch = kChunk.count < c.store_buffers ? kChunk.count : c.store_buffers,
                      kBatches = c.store_buffers / kBatch;
    const int32_t row = tile.row + first_row + threadIdx.x / 32 % 4 * 16;
#pragma unroll
    for (int32_t first = 0; first < kChunk.count; first += kBatch) {
        const int32_t end = first + kBatch < kChunk.count ? first + kBatch : kChunk.count;
        const uint32_t buffers = staging + batch * (kBatch * kChunk.bytes());
        // The engine may still read an earlier batch from these buffers. (Always the same lane is elected: groups of
        // stores belong to a thread. Behind threadIdx.x % 32 == 0 ptxas makes a loop over lanes of each store.)
        if (ptx::elect_one()) ptx::wait_stores_read<kBatches - 1>();
        __syncwarp();
#pragma unroll
        for (int32_t chunk = first; chunk < end; ++chunk)
            if constexpr (c.output == ElementType::fp32)
                stage_fp32<c>(buffers + (chunk - first) * kChunk.bytes(), total, chunk);
            else
                stage_bf16<c>(buffers + (chunk - first) * kChunk.bytes(), total, chunk);
        ptx::fence_for_async_proxy();
        __syncwarp();
        if (ptx::elect_one()) {
#pragma unroll
            for (int32_t chunk = first; chunk < end; ++chunk) {
                if (covers_two_experts(c) && row >= tile.m_end) break;  // another expert's
                const uint32_t source = buffers + (chunk - first) * kChunk.bytes();
                const int32_t col = tile.col + chunk * kChunk.inner, x = c.swap_ab ? row : col,
                              y = c.swap_ab ? tile.col : row;
                if constexpr (adds_to_memory(c.store))
                    ptx::add_box(&params.d, source, x, y, group_of_d<c>(tile));
                else
                    ptx::store_box(&params.d, source, x, y, group_of_d<c>(tile));
            }
            ptx::commit_stores();
        }
        batch = batch + 1 == kBatches ? 0 : batch + 1;
    }
}

}  // namespace deep_gemm
