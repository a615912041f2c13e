// Where D's elements behind one thread's sums lie, where gates and ups are rows of the instruction.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>

namespace deep_gemm {

template <Constant<GemmConfig> c>
struct Fragment;

/// A place (epilogue/tile_end.cuh): of a warp's 16 rows, 8 gates and 8 ups, 8 columns of D are left. A thread has one
/// of them, of the tile's rows of D two neighbours for each 8 columns of the instruction.
template <Constant<GemmConfig> c>
struct SwappedGates : RunExchange<c, fragment_d_cols(c)> {
    static constexpr int32_t kValues = kAccumulators<c> / 2;
    int32_t row, col, m_end, n_end, group, expert;

    DG_DEVICE explicit SwappedGates(const Fragment<c>& of)
        : row(of.row),
          col(of.col / (2 * kGateCols) * kGateCols + of.col % kGateCols),
          m_end(of.m_end),
          n_end(c.d_cols(of.n_end)),
          group(of.group),
          expert(of.expert) {
        this->exchange_as(of);
        static_assert(c.swap_ab && kGateCols == Fragment16x8::kHalfRows);
    }

    template <bool kAlongM, Element kElement, typename Visit>
    DG_DEVICE void for_each_along(const StorageOf<kElement>* data, int64_t stride, const Visit& visit) const {
        static_assert(kAlongM, "what lies along N is applied before the gate");
        for_each_row([&](int32_t i, int32_t at) {
            visit(i, at < m_end ? to_register<kElement>(data[at * stride]) : RegisterOf<kElement>{});
        });
    }

    template <typename Visit>
    DG_DEVICE void for_each_row(const Visit& visit) const {
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i) visit(i, row + step(i));
    }

    template <typename Visit>
    DG_DEVICE void for_each_col(const Visit& visit) const {
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i) visit(i, col);
    }

    // Runs of columns of D that share a scale: one for each row of D, of which the eight threads beside this one have
    // the other columns that the warp has.
    template <int32_t kCols>
    static constexpr int32_t kRuns = kValues;
    template <int32_t kCols>
    static DG_DEVICE constexpr int32_t run(int32_t i) {
        return i;
    }
    static constexpr int32_t kReaders = Fragment16x8::kHalfRows;
    static DG_DEVICE int32_t reader() { return Fragment16x8::row(threadIdx.x % 32); }

    static constexpr int32_t kQuartetValues = 1;
    static DG_DEVICE int32_t in_quartet(int32_t) { return reader() % 4; }
    static DG_DEVICE uint32_t sum_over_quartet(uint32_t x) {
        x += __shfl_xor_sync(0xffffffff, x, 4);
        return x + __shfl_xor_sync(0xffffffff, x, 8);
    }

    template <int32_t kCols, typename Combine>
    static DG_DEVICE void reduce_along(float (&of_runs)[kValues], const Combine& combine) {
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i)
#pragma unroll
            for (int32_t distance = 4; distance < 32; distance *= 2)
                of_runs[i] = combine(of_runs[i], __shfl_xor_sync(0xffffffff, of_runs[i], distance));
    }
    template <int32_t kCols, typename Visit>
    DG_DEVICE void for_each_held_run(const Visit& visit) const {
        if (reader() == 0) for_each_part<kCols>(visit);
    }
    template <int32_t kCols, typename Visit>
    DG_DEVICE void for_each_part(const Visit& visit) const {
        for_each_row([&](int32_t i, int32_t at) { visit(i, at, col - reader()); });
    }

    template <typename Marks, typename Visit>
    static DG_DEVICE void for_each_marked(const Marks& marks, int32_t, const Visit& visit) {
        if (!marks.any()) return;
        uint32_t rows = 0;
#pragma unroll
        for (int32_t i = 0; i < kValues; ++i) {
            if (step(i) % 32 == 0) rows = marks.rows(step(i)) >> Fragment16x8::col(threadIdx.x % 32);
            if (rows >> step(i) % 32 & 1) visit(i);
        }
    }

    template <typename Values>
    DG_DEVICE void store(const Values& values, const GemmParams& params) const {
        auto* const column = static_cast<StorageOf<c.output>*>(params.d_data) + group * params.d_group_stride + col;
        for_each_row([&](int32_t i, int32_t at) {
            if (at < m_end && col < n_end) from_register<c.output>(column[at * params.d_stride], values[i]);
        });
    }

private:
    static DG_DEVICE constexpr int32_t step(int32_t i) { return i / 2 * Fragment16x8::kCols + i % 2; }
};

}  // namespace deep_gemm
