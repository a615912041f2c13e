// Multiply one K block on Hopper and apply its scales.
//
// Hopper's FP8 tensor cores keep about 13 bits of mantissa while they accumulate, so each K block of 128 is summed on
// its own and promoted: total += partial * row_scale * col_scale in FP32.
#pragma once

#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/mma/scale_products.cuh>
#include <deep_gemm/ptx/wgmma.cuh>
#include <deep_gemm/tile/scheduler.cuh>
#include <deep_gemm/tile/smem.cuh>

namespace deep_gemm {

template <bool kMnMajor>
DG_DEVICE uint64_t operand_descriptor(uint32_t address) {
    if constexpr (kMnMajor)
        return ptx::wgmma_descriptor_mn_major(address);
    else
        return ptx::wgmma_descriptor(address);
}

/// Issue the wgmma of one K block: 64 rows x kCols, four steps of 32 bytes. The first clears unless `accumulate`.
template <GemmConfig c, int32_t kCols = c.tile.cols>
DG_DEVICE void multiply_block(float (&d)[Fragment16x8::registers(kCols)], uint32_t rows, uint32_t cols,
                              bool accumulate) {
    constexpr bool kMnMajorRows = c.mn_major_rows(), kMnMajorCols = c.mn_major_cols();
    const uint64_t rows_descriptor = operand_descriptor<kMnMajorRows>(rows),
                   cols_descriptor = operand_descriptor<kMnMajorCols>(cols);
#pragma unroll
    for (int32_t i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t step = 0; step < kSwizzleBytes / 32; ++step) {
        // In units of 16 bytes: 32 bytes of each row's span, or 16 lines of K.
        constexpr int32_t kAlongSpan = 32 >> 4, kAlongLines = 16 * kSwizzleBytes >> 4;
        const uint64_t rows_step = rows_descriptor + step * (kMnMajorRows ? kAlongLines : kAlongSpan),
                       cols_step = cols_descriptor + step * (kMnMajorCols ? kAlongLines : kAlongSpan);
        if constexpr (c.operand == ElementType::e4m3)
            ptx::Wgmma<kCols>::e4m3(d, rows_step, cols_step, accumulate || step);
        else
            ptx::Wgmma<kCols>::template bf16<kMnMajorRows, kMnMajorCols>(d, rows_step, cols_step, accumulate || step);
    }
    ptx::wgmma_commit();
#pragma unroll
    for (int32_t i = 0; i < kCols / 2; ++i) ptx::pin(d[i]);
}

/// Wait for all wgmma groups but the last kPending; from here these accumulators may be read.
template <int32_t kPending, int32_t kCount>
DG_DEVICE void finish_block(float (&d)[kCount]) {
    ptx::wgmma_wait<kPending>();
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) ptx::pin(d[i]);
}

/// Row scale times column scale, of a thread's two rows (8 apart) and of each run of columns that share one.
template <GemmConfig c, int32_t kRuns>
struct RunFactors {
    float of[2][kRuns];

    /// total += partial * scales, of the first kCount accumulators.
    template <int32_t kCount>
    DG_DEVICE void promote(Accumulators<c>& total, const float (&partial)[kCount]) const {
        static_assert(kCount == kAccumulators<c> || kRuns == 1, "other columns have other scales");
#pragma unroll
        for (int32_t i = 0; i < kCount; ++i) {
            const int32_t run = Fragment16x8::col_step(i) / (c.tile.cols / kRuns);
            total[i] = __fmaf_rn(partial[i], of[Fragment16x8::half(i)][run], total[i]);
        }
    }
};

/// One K block's scales of the 64 rows that a warpgroup is working on, as one thread needs them: its two rows (8 apart)
/// and, for each 8 columns, its two neighbours.
///
/// Loaded before the block's wgmma are issued: while tensor cores read shared memory, other reads take long.
template <GemmConfig c>
struct BlockScales {
    static constexpr bool kRowsUniform = c.row_scales() == ScaleKind::per_block;
    static constexpr bool kColsUniform = c.col_scales() == ScaleKind::per_block;
    static constexpr int32_t kRuns = kColsUniform ? block_scale_values(c) : 1;

    float row[2];
    float run[kRuns];  // of columns that share a block's scale
    static constexpr int32_t kHeld = held_col_groups(c);
    float2 col[kHeld > 0 ? kHeld : 1];
    uint32_t address;  // of columns' scales, some of which stay in shared memory

    /// `first_row` is the first of the 64 rows, counted within the tile.
    DG_DEVICE void load(const Smem<c>& smem, int32_t stage, int32_t first_row) {
        const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if constexpr (kRowsUniform) {
            const int32_t run = first_row / scale_run(c.tile.rows);
            row[0] = row[1] = ptx::load_shared(smem.block_scales(stage) + run * 4);
        } else {
            // The address is made anew for each K block: three warpgroups are slower with it in a register
            // (docs/performance.md; why is not known).
            if constexpr (c.scaled() && !c.look_ahead && !overlaps_blocks(c)) ptx::forget(first_row);
            const uint32_t mine =
                smem.row_scales(stage) + (first_row + Fragment16x8::warp_row(warp) + Fragment16x8::row(lane)) * 4;
            row[0] = ptx::load_shared(mine);
            row[1] = ptx::load_shared(mine + Fragment16x8::kHalfRows * 4);
        }
        if constexpr (kColsUniform) {
#pragma unroll
            for (int32_t i = 0; i < kRuns; ++i) {
                const uint32_t scale = smem.block_scales(stage) + i * 4;
                run[i] = ptx::load_shared(reads_scales_by_lane(c) ? ptx::by_lane(scale) : scale);
            }
        } else {
            address = smem.col_scales(stage) + Fragment16x8::col(lane) * 4;
#pragma unroll
            for (int32_t i = 0; i < kHeld; ++i) col[i] = col_pair(i);
        }
    }

    /// Of every value that was loaded, where columns share theirs.
    DG_DEVICE uint32_t bits() const {
        uint32_t all = __float_as_uint(row[0]) | __float_as_uint(row[1]);
#pragma unroll
        for (int32_t i = 0; i < kRuns; ++i) all |= __float_as_uint(run[i]);
        return all;
    }

    /// The products, where they are few.
    DG_DEVICE RunFactors<c, kRuns> factors() const {
        RunFactors<c, kRuns> products;
#pragma unroll
        for (int32_t i = 0; i < 2 * kRuns; ++i) products.of[i / kRuns][i % kRuns] = row[i / kRuns] * run[i % kRuns];
        return products;
    }

    /// total += partial * scales. Returns bits of every value that was read from shared memory meanwhile.
    DG_DEVICE uint32_t promote(Accumulators<c>& total, const Accumulators<c>& partial) const {
        uint32_t read = 0;
        if constexpr (kColsUniform) {
            factors().promote(total, partial);
        } else {
#pragma unroll
            for (int32_t group = 0; group < c.tile.cols / Fragment16x8::kCols; ++group) {
                const float2 pair = group < kHeld ? col[group] : col_pair(group);
                if (group >= kHeld) read |= __float_as_uint(pair.y);
#pragma unroll
                for (int32_t j = 0; j < Fragment16x8::kRegisters; ++j) {
                    const int32_t i = Fragment16x8::kRegisters * group + j;
                    const float factor = row[Fragment16x8::half(j)] * (Fragment16x8::neighbour(j) ? pair.y : pair.x);
                    total[i] = __fmaf_rn(partial[i], factor, total[i]);
                }
            }
        }
        return read;
    }

private:
    /// Of a thread's two neighbours among these 8 columns.
    DG_DEVICE float2 col_pair(int32_t group) const {
        return ptx::load_shared_x2(address + group * Fragment16x8::kCols * 4);
    }
};

template <GemmConfig c, bool = c.wgmma_products>
struct SelectScales {
    using Type = BlockScales<c>;
};
template <GemmConfig c>
struct SelectScales<c, true> {
    using Type = ScaleProducts<c>;
};

}  // namespace deep_gemm
