// Which thread holds which element of D: the 16x8 map that wgmma and mma.sync share. (Tensor memory has another.)
//
// A warp holds 16 rows, by any number of columns. Of each 8 columns a thread has four registers, two pairs of
// neighbours:
//
//   register 4 j + 2 h + e     row lane / 4 + 8 h     column 8 j + lane % 4 * 2 + e
//
// Whoever asks says which lane and warp it is, by reference: NVRTC adds up addresses in another order where these come
// by value, and ptxas (CUDA 13.0) then has up to 8 instructions more in a K loop of 237.
#pragma once

#include <deep_gemm/config.cuh>

namespace deep_gemm {

struct Fragment16x8 {
    static constexpr int32_t kRows = 16, kCols = 8;
    static constexpr int32_t kHalfRows = kRows / 2;  // between a thread's two rows
    static constexpr int32_t kRegisters = 4;         // of a thread, for each 8 columns
    static constexpr int32_t kWarps = 4;             // of a warpgroup, which share 64 rows
    static_assert(kRegisters * 32 == kRows * kCols);

    /// For so many columns.
    static constexpr int32_t registers(int32_t cols) { return cols / kCols * kRegisters; }

    /// The first of a pair: of the `group`th 8 columns, of a thread's first row (half 0) or its second.
    static constexpr int32_t pair(int32_t group, int32_t half) { return kRegisters * group + 2 * half; }

#if defined(__CUDACC__)  // the host asks for sizes only
    /// Where a thread's register 0 lies in its warp's rows.
    static DG_DEVICE constexpr int32_t row(const int32_t& lane) { return lane / 4; }
    static DG_DEVICE constexpr int32_t col(const int32_t& lane) { return lane % 4 * 2; }

    /// The first row of a warp among the 64 of its warpgroup.
    static DG_DEVICE constexpr int32_t warp_row(const int32_t& warp) { return warp % kWarps * kRows; }

    /// The row of this thread's register 0, where its warpgroup's 64 begin at `first`: one sum, for the reason above.
    static DG_DEVICE int32_t thread_row(const int32_t& first) {
        return first + threadIdx.x / 32 % kWarps * kRows + threadIdx.x % 32 / 4;
    }

    /// The address of that row's word, among one of four bytes for each row. Likewise by reference.
    static DG_DEVICE uint32_t thread_word(const uint32_t& words, const int32_t& first, const int32_t& lane,
                                          const int32_t& warp) {
        return words + (first + warp_row(warp) + row(lane)) * 4;
    }
    static DG_DEVICE uint32_t thread_word(const uint32_t& words, const int32_t& first) {
        return thread_word(words, first, threadIdx.x % 32, threadIdx.x / 32);
    }

    /// How far from there a register lies: its group of 8 columns, which of two rows and of two columns, and so in all.
    static DG_DEVICE constexpr int32_t group(int32_t index) { return index / kRegisters; }
    static DG_DEVICE constexpr int32_t half(int32_t index) { return index / 2 % 2; }
    static DG_DEVICE constexpr int32_t neighbour(int32_t index) { return index % 2; }
    static DG_DEVICE constexpr int32_t row_step(int32_t index) { return half(index) * kHalfRows; }
    static DG_DEVICE constexpr int32_t col_step(int32_t index) { return group(index) * kCols + neighbour(index); }

    /// Four 8x8 matrices, which two neighbouring groups are in the order of their registers, and which line of them a
    /// lane addresses (stmatrix): `line` of the matrix in these 8 rows of two and in this group of two.
    struct MatrixLine {
        int32_t half, group, line;
    };
    static DG_DEVICE constexpr MatrixLine matrix_line(const int32_t& lane) {
        return {lane / kCols % 2, lane / (2 * kCols), lane % kCols};
    }
#endif
};

/// Columns of D that a warp holds side by side, of a piece of 16 rows of the instruction's frame.
constexpr int32_t fragment_d_cols(const GemmConfig& c) {
    return c.d_cols(c.swap_ab ? Fragment16x8::kRows : c.held_cols());
}

/// A thread's share of 16 rows of a tile, of the columns that its warp holds.
template <Constant<GemmConfig> c>
inline constexpr int32_t kAccumulators = Fragment16x8::registers(c.held_cols());

/// What the tensor cores add up; complete sums, of which those may be the parts; and what is stored, into which sums
/// may have been scaled.
template <Constant<GemmConfig> c>
using Accumulators = RegisterOf<c.block_sum()>[kAccumulators<c>];
template <Constant<GemmConfig> c>
using Sums = RegisterOf<c.sum()>[kAccumulators<c>];
template <Constant<GemmConfig> c>
using Results = RegisterOf<c.output>[c.d_cols(kAccumulators<c>)];

}  // namespace deep_gemm
