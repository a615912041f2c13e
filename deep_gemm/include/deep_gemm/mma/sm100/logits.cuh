// The warp that multiplies keys by queries: one thread issues.
#pragma once

#include <deep_gemm/arch/sm100_logits_smem.cuh>
#include <deep_gemm/mma/sm100/instruction.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

template <Constant<LogitsConfig> c>
class MultiplyKeys {
public:
    DG_DEVICE MultiplyKeys(const LogitsSmem<c>& smem, uint32_t tensor_memory) : smem_(smem), tensor_(tensor_memory) {}

    DG_DEVICE void run() {
        Ring<c.query_stages> queries;
        while (true) {
            ptx::barrier_wait(smem_.queries_full(queries.stage), queries.phase);
            const int32_t tiles = smem_.segment(queries.stage)->y;
            if (tiles == 0) return;
            __syncwarp();
            if (ptx::lane() == 0) ptx::barrier_arrive(smem_.queries_empty(queries.stage));  // of that read
            if constexpr (c.exponents) copy_query_words(queries.stage);
#pragma unroll 1
            for (int32_t done = 0; done < tiles; done += kLogitsKeyTiles, ring_.advance(), accumulator_.advance())
                multiply(queries.stage, done + kLogitsKeyTiles >= tiles);
            queries.advance();
        }
    }

private:
    static constexpr int32_t kSteps = c.key_bytes() / kStepBytes;
    static constexpr uint32_t kDescriptor =
        (c.exponents ? 1u << 23 : 1u << 4) | format_number(c.element, c.element) << 7 |
        format_number(c.element, c.element) << 10 | static_cast<uint32_t>(c.columns() >> 3) << 17 |
        static_cast<uint32_t>(kRows >> 4) << 24;
    static_assert(c.columns() % 16 == 0 && c.columns() <= max_logits_columns(c.exponents));

    DG_DEVICE uint32_t key_words(int32_t stage) const {
        return tensor_ + LogitsSmem<c>::kTensor.key_words + stage * kScaleBlockColumns;
    }
    DG_DEVICE uint32_t query_words(int32_t stage) const {
        return tensor_ + LogitsSmem<c>::kTensor.query_words + stage * LogitsSmem<c>::kTensor.query_word_columns;
    }

    template <int32_t kBlocks>
    static DG_DEVICE void copy_words(uint32_t to, uint32_t words) {
#pragma unroll
        for (int32_t block = 0; block < kBlocks; ++block)
            ptx::copy_to_tensor_memory<1>(to + block * kScaleBlockColumns,
                                          ptx::tensor_descriptor_of_scales(words + block * kScaleBlockBytes));
    }

    DG_DEVICE void copy_query_words(int32_t stage) const {
        ptx::tensor_fence_after_sync();
        if (ptx::elect_one()) copy_words<scale_blocks(c.columns())>(query_words(stage), smem_.query_words(stage));
        __syncwarp();
    }

    /// The queries are let go with the last product, before its sums are told of: who waits for those has seen all
    /// commits.
    DG_DEVICE void multiply(int32_t query_stage, bool last) const {
        ptx::barrier_wait(c.exponents ? smem_.ready(ring_.stage) : smem_.full(ring_.stage), ring_.phase);
        ptx::barrier_wait(smem_.sums_empty(accumulator_.stage), accumulator_.phase ^ 1);
        ptx::tensor_fence_after_sync();
        if (ptx::elect_one()) {
            if constexpr (c.exponents) copy_words<1>(key_words(ring_.stage), smem_.key_words(ring_.stage));
            const uint64_t rows = ptx::tensor_descriptor_of_rows<c.key_bytes()>(smem_.keys(ring_.stage)),
                           cols = ptx::tensor_descriptor_of_rows<c.key_bytes()>(smem_.queries(query_stage));
#pragma unroll
            for (int32_t step = 0; step < kSteps; ++step)
                issue(rows + step * (kStepBytes >> 4), cols + step * (kStepBytes >> 4), query_stage, step);
            ptx::commit_tensor_work<1>(smem_.empty(ring_.stage));
            if (last) ptx::commit_tensor_work<1>(smem_.queries_empty(query_stage));
            ptx::commit_tensor_work<1>(smem_.sums_full(accumulator_.stage));
        }
        __syncwarp();
    }

    DG_DEVICE void issue(uint64_t rows, uint64_t cols, int32_t query_stage, int32_t step) const {
        const uint32_t sums = tensor_ + accumulator_.stage * c.columns();
        // A step of E4M3 takes one exponent of a word, one of E2M1 two.
        const uint32_t byte = c.element == Element::e4m3 ? step : 2 * step;
        const uint32_t descriptor = c.exponents ? with_scale_bytes(kDescriptor, byte, byte) : kDescriptor;
        if constexpr (!c.exponents)
            ptx::tensor_mma_f8f6f4<1>(sums, rows, cols, descriptor, step > 0);
        else if constexpr (c.element == Element::e4m3)
            ptx::tensor_mma_mxf8f6f4<1>(sums, rows, cols, descriptor, key_words(ring_.stage), query_words(query_stage),
                                        step > 0);
        else
            ptx::tensor_mma_mxf4<1>(sums, rows, cols, descriptor, key_words(ring_.stage), query_words(query_stage),
                                    step > 0);
    }

    LogitsSmem<c> smem_;
    uint32_t tensor_;
    Ring<c.stages> ring_;
    Ring<kLogitsAccumulators> accumulator_;
};

}  // namespace deep_gemm::sm100
