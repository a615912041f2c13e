// SM100: addresses of what the index logits' kernel has in shared memory.
#pragma once

#include <deep_gemm/arch/sm100_logits_memory.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm::sm100 {

template <Constant<LogitsConfig> c>
class LogitsSmem {
public:
    static constexpr LogitsSmemPlan kPlan = plan_logits_smem(c);
    static constexpr LogitsTensorPlan kTensor = plan_logits_tensor_memory(c);
    static_assert(kPlan.bytes <= kMaxSmemBytes, "queries do not fit shared memory");
    static_assert(kTensor.columns <= kTensorColumns, "sums and words do not fit tensor memory");

    DG_DEVICE explicit LogitsSmem(uint8_t* dynamic_smem)
        : base_((ptx::shared_address(dynamic_smem) + kSmemAlignment - 1) & ~(kSmemAlignment - 1)),
          pointer_(dynamic_smem + (base_ - ptx::shared_address(dynamic_smem))) {}

    DG_DEVICE uint32_t queries(int32_t stage, int32_t = 0, int32_t = 0) const {
        return base_ + stage * kPlan.query_bytes;
    }
    DG_DEVICE uint32_t query_words(int32_t stage) const {
        return base_ + kPlan.query_words + stage * kPlan.query_word_bytes;
    }
    DG_DEVICE uint32_t keys(int32_t stage) const { return base_ + kPlan.keys + stage * kPlan.key_bytes; }
    /// FP32 scales, or words of exponents.
    DG_DEVICE uint32_t key_words(int32_t stage) const { return base_ + kPlan.key_words + stage * kLogitsKeys * 4; }
    /// Of an atom in a query stage: its rows, their weights [rows][padded heads], and the first key and the number of
    /// tiles of its segment.
    DG_DEVICE LogitsRow* rows(int32_t stage) const { return reinterpret_cast<LogitsRow*>(atom(stage)); }
    DG_DEVICE float* weights(int32_t stage) const { return reinterpret_cast<float*>(atom(stage) + kPlan.weights); }
    DG_DEVICE int2* segment(int32_t stage) const { return reinterpret_cast<int2*>(atom(stage) + kPlan.segment); }
    DG_DEVICE ShareSmem& share() const { return *reinterpret_cast<ShareSmem*>(pointer_ + kPlan.share); }
    DG_DEVICE uint32_t tensor_address() const { return base_ + kPlan.tensor_address; }

    DG_DEVICE uint32_t full(int32_t stage) const { return barrier(stage); }
    DG_DEVICE uint32_t empty(int32_t stage) const { return barrier(c.stages + stage); }
    DG_DEVICE uint32_t ready(int32_t stage) const { return barrier(2 * c.stages + stage); }
    DG_DEVICE uint32_t queries_full(int32_t stage) const { return barrier(3 * c.stages + stage); }
    DG_DEVICE uint32_t queries_empty(int32_t stage) const { return barrier(3 * c.stages + c.query_stages + stage); }
    DG_DEVICE uint32_t sums_full(int32_t accumulator) const {
        return barrier(3 * c.stages + 2 * c.query_stages + accumulator);
    }
    DG_DEVICE uint32_t sums_empty(int32_t accumulator) const { return sums_full(kLogitsAccumulators + accumulator); }

private:
    DG_DEVICE uint8_t* atom(int32_t stage) const { return pointer_ + kPlan.atoms + stage * kPlan.atom_bytes; }
    DG_DEVICE uint32_t barrier(int32_t index) const { return base_ + kPlan.barriers + 8 * index; }

    uint32_t base_;
    uint8_t* pointer_;
};

}  // namespace deep_gemm::sm100
