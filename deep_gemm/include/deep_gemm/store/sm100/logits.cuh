// The role that finishes logits: a warpgroup with an accumulator of its own. A thread has one key, and adds up all
// heads of each query row.
#pragma once

#include <deep_gemm/arch/sm100_logits_smem.cuh>
#include <deep_gemm/element.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/float_pairs.cuh>
#include <deep_gemm/ptx/relu.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

template <Constant<LogitsConfig> c>
class FinishLogits {
public:
    DG_DEVICE FinishLogits(const LogitsSmem<c>& smem, uint32_t tensor_memory, int32_t group)
        : smem_(smem),
          group_(group),
          thread_(static_cast<int32_t>(threadIdx.x) % kRows),
          sums_(tensor_memory + group * c.columns() + (thread_ / kWarpRows * kWarpRows << 16)) {
        ring_.advance(group);
    }

    DG_DEVICE void run() {
        Ring<c.query_stages> queries;
        while (true) {
            ptx::barrier_wait(smem_.queries_full(queries.stage), queries.phase);
            const int2 segment = *smem_.segment(queries.stage);
            if (segment.y == 0) return;
            const int32_t products = ceil_div(segment.y, kLogitsKeyTiles);
            // Of the products of all segments, those of this group's accumulator.
#pragma unroll 1
            for (int32_t i = (group_ + turn_) % kLogitsAccumulators; i < products; i += kLogitsAccumulators)
                finish(queries.stage, segment.x + i * kLogitsKeys + thread_,
                       i * kLogitsKeyTiles + thread_ / kLogitsTile < segment.y);
            turn_ = (turn_ + products) % kLogitsAccumulators;
            __syncwarp();
            if (ptx::lane() == 0) ptx::barrier_arrive(smem_.queries_empty(queries.stage));
            queries.advance();
        }
    }

private:
    static constexpr int32_t kAtOnce = c.columns() % 32 == 0 ? 32 : 16;

    /// `own`: whether the segment, which may end within a product, has the key.
    DG_DEVICE void finish(int32_t query_stage, int32_t key, bool own) {
        ptx::barrier_wait(smem_.sums_full(group_), phase_);
        ptx::tensor_fence_after_sync();
        const float scale = scale_of_key();
        const LogitsRow* const rows = smem_.rows(query_stage);
        const uint32_t weights = ptx::shared_address(smem_.weights(query_stage));
        float2 even{}, odd{};  // of pairs of heads
#pragma unroll
        for (int32_t first = 0; first < c.columns(); first += kAtOnce) {
            uint32_t words[kAtOnce];
            ptx::load_tensor_memory(sums_ + first, words);
            ptx::wait_tensor_loads();
            if (first + kAtOnce == c.columns()) release_sums();
#pragma unroll
            for (int32_t i = 0; i < kAtOnce; i += 4) {
                const float4 weight = ptx::load_shared_x4(weights + (first + i) * 4);
                even =
                    ptx::fma_x2(make_float2(relu(words[i]), relu(words[i + 1])), make_float2(weight.x, weight.y), even);
                odd = ptx::fma_x2(make_float2(relu(words[i + 2]), relu(words[i + 3])), make_float2(weight.z, weight.w),
                                  odd);
                if ((first + i + 4) % c.padded_heads != 0) continue;
                store(rows[(first + i) / c.padded_heads], key, own, (even.x + even.y + (odd.x + odd.y)) * scale);
                even = {}, odd = {};
            }
        }
        ring_.advance(kLogitsAccumulators);
        phase_ ^= 1;
    }

    static DG_DEVICE float relu(uint32_t word) { return ptx::relu(__uint_as_float(word)); }

    /// Exponents are multiplied with the codes.
    DG_DEVICE float scale_of_key() const {
        if constexpr (c.exponents) return 1.0f;
        ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);
        const float scale = ptx::load_shared(smem_.key_words(ring_.stage) + thread_ * 4);
        __syncwarp();
        if (ptx::lane() == 0) ptx::barrier_arrive(smem_.empty(ring_.stage));
        return scale;
    }

    DG_DEVICE void release_sums() const {
        ptx::tensor_fence_before_sync();
        __syncwarp();
        if (ptx::lane() == 0) ptx::barrier_arrive(smem_.sums_empty(group_));
    }

    static DG_DEVICE void store(const LogitsRow& row, int32_t key, bool own, float logit) {
        if (!own || key < row.keys.first || key >= row.keys.end) return;
        auto* const logits = reinterpret_cast<StorageOf<c.logits>*>(row.address);
        from_register<c.logits>(logits[key], logit);
    }

    LogitsSmem<c> smem_;
    int32_t group_, thread_;
    uint32_t sums_;
    int32_t turn_ = 0;
    uint32_t phase_ = 0;  // of the accumulator
    Ring<c.stages> ring_;
};

}  // namespace deep_gemm::sm100
