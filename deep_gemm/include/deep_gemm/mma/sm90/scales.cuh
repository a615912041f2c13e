// Apply a K block's scales on Hopper.
//
// Hopper's FP8 tensor cores keep about 13 bits of mantissa while they accumulate, so each group of 128 of K is summed
// on its own and promoted: total += partial * row_scale * col_scale in FP32. So are integers where a group of K has
// scales of its own; of 128 of K their sums are exact, and FP32 holds them.
#pragma once

#include <deep_gemm/arch/sm90_hints.cuh>
#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
#include <deep_gemm/mma/sm90/scale_products.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// Row scale times column scale, of a thread's two rows (8 apart) and of each run of columns that share one.
template <Constant<GemmConfig> c, int32_t kRuns>
struct RunFactors {
    float of[2][kRuns];

    /// total += partial * scales.
    DG_DEVICE void promote(Sums<c>& total, const Accumulators<c>& partial) const {
        constexpr int32_t kParts = scale_parts(c), kCols = c.tile.cols;
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) {
            const int32_t run = run_of_col(kParts, kCols, kRuns, Fragment16x8::col_step(i));
            total[i] = __fmaf_rn(static_cast<float>(partial[i]), of[Fragment16x8::half(i)][run], total[i]);
        }
    }
};

/// One K block's scales of the 64 rows that a warpgroup is working on, as one thread needs them: its two rows (8 apart)
/// and, for each 8 columns, its two neighbours.
///
/// Loaded before the block's wgmma are issued: while tensor cores read shared memory, other reads take long.
template <Constant<GemmConfig> c>
struct BlockScales {
    static constexpr bool kRowsUniform = !c.row_scales().per_row();  // or they have none before sums are complete
    static constexpr bool kColsUniform = !c.col_scales().per_row();  // or they have none before sums are complete
    /// Sums are read before the scales that they are multiplied by: who may replace them has not waited for these.
    static constexpr bool kConverts = c.block_sum() == Element::s32;
    static constexpr int32_t kRuns = c.col_scales().per_block() ? block_scale_values(c) : 1;

    float row[2];
    float run[kRuns];  // of columns that share a block's scale
    static constexpr int32_t kHeld = held_col_groups(c);
    float2 col[kHeld > 0 ? kHeld : 1];
    uint32_t address;  // of columns' scales, some of which stay in shared memory

    /// `first_row` is the first of the 64 rows, counted within the tile. Of a stage's groups of scales, the `group`th.
    DG_DEVICE void load(const Smem<c>& smem, int32_t stage, int32_t first_row, int32_t group = 0) {
        const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if constexpr (c.row_scales().per_channel()) {
            row[0] = row[1] = 1;
        } else if constexpr (kRowsUniform) {
            constexpr int32_t kParts = scale_parts(c);
            const int32_t run = first_row / kParts / scale_run(scale_extent(c));
            row[0] = row[1] = ptx::load_shared(smem.block_scales(stage) + run * 4);
            if constexpr (kParts > 1)  // a gate and its up
                row[1] = ptx::load_shared(smem.block_scales(stage) + (run + block_scale_values(c) / kParts) * 4);
        } else {
            if constexpr (compiler_hints(c).forgets_row) ptx::forget(first_row);
            constexpr int32_t kPlaces = row_scale_places(c);
            const uint32_t scales = smem.row_scales(stage) + entry(c.row_scales(), group) * kPlaces * 4;
            uint32_t mine = Fragment16x8::thread_word(scales, first_row, lane, warp);
            if constexpr (kGatedRows)
                mine = scales + c.gate.place_of_scale(static_cast<int32_t>(mine - scales) / 4, kPlaces) * 4;
            row[0] = row_scale<c>(mine);
            row[1] =
                row_scale<c>(mine +
                             (kGatedRows ? c.gate.place_of_scale(kGateCols, kPlaces) : Fragment16x8::kHalfRows) * 4);
        }
        if constexpr (c.col_scales().per_channel()) {
            run[0] = 1;
        } else if constexpr (kColsUniform) {
#pragma unroll
            for (int32_t i = 0; i < kRuns; ++i) {
                run[i] = ptx::load_shared(smem.block_scales(stage) + i * 4);
            }
        } else {
            address = smem.col_scales(stage) + entry(c.col_scales(), group) * col_scale_places(c) * 4 +
                      Fragment16x8::col(lane) * (kGatedCols && !c.gate.joins_halves() ? 8 : 4);
#pragma unroll
            for (int32_t i = 0; i < kHeld; ++i) col[i] = col_pair(i);
        }
    }

    /// Of every value that was loaded before wgmma. (`run` holds nothing where columns have scales: no compiler may see
    /// it then.)
    DG_DEVICE uint32_t bits() const {
        uint32_t all = __float_as_uint(row[0]) | __float_as_uint(row[1]);
        if constexpr (kColsUniform) {
#pragma unroll
            for (int32_t i = 0; i < kRuns; ++i) all |= __float_as_uint(run[i]);
        } else {
#pragma unroll
            for (int32_t i = 0; i < kHeld; ++i) all |= __float_as_uint(col[i].y);  // two in one load
        }
        return all;
    }

    /// The products, where they are few.
    DG_DEVICE RunFactors<c, kRuns> factors() const {
        RunFactors<c, kRuns> products;
#pragma unroll
        for (int32_t i = 0; i < 2 * kRuns; ++i) products.of[i / kRuns][i % kRuns] = row[i / kRuns] * run[i % kRuns];
        return products;
    }

    /// total *= scales, where all of K has the same.
    DG_DEVICE void multiply(Sums<c>& total) const {
        static_assert(kColsUniform && kRuns == 1);
        const RunFactors<c, kRuns> products = factors();
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) total[i] *= products.of[Fragment16x8::half(i)][0];
    }

    /// total += partial * scales. Returns bits of every value that was read from shared memory meanwhile.
    DG_DEVICE uint32_t promote(Sums<c>& total, const Accumulators<c>& partial) const {
        uint32_t read = kConverts ? bits() : 0;
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
                    total[i] = __fmaf_rn(static_cast<float>(partial[i]), factor, total[i]);
                }
            }
        }
        return read;
    }

private:
    /// Whether scales of gates and ups, which lie in B's order, are of rows, or of columns.
    static constexpr bool kGatedRows = c.gate.joins() && c.swap_ab, kGatedCols = c.gate.joins() && !c.swap_ab;

    /// Of an operand's scales in the stage, that of a group of the other's, of which there may be more.
    static DG_DEVICE constexpr int32_t entry(const Scaling& scaling, int32_t group) {
        return group * scale_entries(c, scaling) / scale_groups(c);
    }

    /// Of a thread's two neighbours among these 8 columns.
    DG_DEVICE float2 col_pair(int32_t group) const {
        if constexpr (kGatedCols) {
            const uint32_t first =
                address + c.gate.place_of_scale(group * Fragment16x8::kCols, col_scale_places(c)) * 4;
            if constexpr (c.gate.joins_halves() && c.gate.first_up() % 2 == 0) return ptx::load_shared_x2(first);
            return make_float2(ptx::load_shared(first), ptx::load_shared(first + (c.gate.joins_halves() ? 4 : 8)));
        }
        return ptx::load_shared_x2(address + group * Fragment16x8::kCols * 4);
    }
};

template <Constant<GemmConfig> c, bool = c.sm90.wgmma_products>
struct SelectScales {
    using Type = BlockScales<c>;
};
template <Constant<GemmConfig> c>
struct SelectScales<c, true> {
    using Type = ScaleProducts<c>;
};

}  // namespace deep_gemm
