// SM100: how shared memory is divided between stages and buffers for D, and tensor memory between sums and scales.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>

#include <algorithm>

namespace deep_gemm::sm100 {

/// Stages that keep the tensor cores busy while the next operands come; more than 12 buy nothing.
inline constexpr int32_t kFewStages = 4, kMaxStages = 12;

/// As many stages as shared and tensor memory hold.
inline int32_t most_stages(GemmConfig c) {
    c.stages = 0;
    const SmemPlan smem = plan_smem(c);
    const TensorPlan tensor = plan_tensor_memory(c);
    c.stages = 1;
    const int32_t smem_each = plan_smem(c).bytes - smem.bytes,
                  tensor_each = plan_tensor_memory(c).columns - tensor.columns;
    int32_t stages = std::min((kMaxSmemBytes - smem.bytes) / smem_each, kMaxStages);
    if (tensor_each > 0 && !has_several_words(c))
        stages = std::min(stages, (kTensorColumns - tensor.columns) / tensor_each);
    c.stages = std::max(stages, 0);
    while (c.stages > 0 && plan_smem(c).bytes > kMaxSmemBytes) --c.stages;  // what is rounded up
    return c.stages;
}

/// Whether words of scales need not wait for products of the K block before.
inline bool has_word_sets(const GemmConfig& c) {
    return !has_several_words(c) || plan_tensor_memory(c).sets >= kFewWordSets;
}

/// Of groups along K, in turn: while one is promoted, others are multiplied. More than four buy nothing.
inline constexpr int32_t kMaxGroupSums = 4;

/// Where sums are promoted, as many accumulators as there is room for, and a buffer for D.
inline void divide_promoting(GemmConfig& c) {
    const int32_t columns = kTensorColumns - kConvertedBuffers * converted_columns(c);
    c.sm100.accumulators = std::min(columns / c.tile.cols, kMaxGroupSums), c.store.buffers = 1;
    c.stages = most_stages(c);
}

/// Two accumulators and two buffers for D, where they leave stages enough; else one buffer, or one accumulator, or one
/// of each.
inline void divide_smem(GemmConfig& c, double) {
    if (promotes(c)) return divide_promoting(c);
    for (const int32_t accumulators : {2, 1})
        for (const int32_t buffers : {2, 1}) {
            c.sm100.accumulators = accumulators, c.store.buffers = std::min(buffers, store_chunk(c).count);
            c.stages = most_stages(c);
            if (c.stages >= kFewStages && has_word_sets(c)) return;
        }
}

}  // namespace deep_gemm::sm100
