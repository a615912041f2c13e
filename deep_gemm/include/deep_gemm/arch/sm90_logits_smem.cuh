// Hopper: addresses of what the index logits' kernel has in shared memory.
#pragma once

#include <deep_gemm/arch/sm90_logits_memory.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm::sm90 {

template <Constant<LogitsConfig> c>
class LogitsSmem {
public:
    static constexpr LogitsSmemPlan kPlan = plan_logits_smem(c);
    static_assert(kPlan.bytes <= kMaxSmemBytes, "queries do not fit shared memory");

    DG_DEVICE explicit LogitsSmem(uint8_t* dynamic_smem)
        : base_((ptx::shared_address(dynamic_smem) + kLogitsAlignment - 1) & ~(kLogitsAlignment - 1)),
          pointer_(dynamic_smem + (base_ - ptx::shared_address(dynamic_smem))) {}

    /// Of a product of a row group.
    DG_DEVICE uint32_t queries(int32_t stage, int32_t row_group, int32_t product) const {
        return base_ + stage * kPlan.query_stage_bytes + (row_group * c.products + product) * kPlan.product_bytes;
    }
    DG_DEVICE uint32_t keys(int32_t stage) const { return base_ + kPlan.keys + stage * kPlan.key_stage_bytes; }
    DG_DEVICE uint32_t scales(int32_t stage) const { return base_ + kPlan.scales + stage * kLogitsTile * 4; }
    /// Of an atom in a query stage: its rows, their weights [rows][padded heads], and the first key and the number of
    /// tiles of its segment.
    DG_DEVICE LogitsRow* rows(int32_t stage) const { return reinterpret_cast<LogitsRow*>(atom(stage)); }
    DG_DEVICE float* weights(int32_t stage) const { return reinterpret_cast<float*>(atom(stage) + kPlan.weights); }
    DG_DEVICE int2* segment(int32_t stage) const { return reinterpret_cast<int2*>(atom(stage) + kPlan.segment); }
    DG_DEVICE ShareSmem& share() const { return *reinterpret_cast<ShareSmem*>(pointer_ + kPlan.share); }
    DG_DEVICE uint32_t full(int32_t stage) const { return barrier(stage); }
    DG_DEVICE uint32_t empty(int32_t stage) const { return barrier(c.stages + stage); }
    DG_DEVICE uint32_t queries_full(int32_t stage) const { return barrier(2 * c.stages + stage); }
    DG_DEVICE uint32_t queries_empty(int32_t stage) const { return barrier(2 * c.stages + c.query_stages + stage); }

private:
    DG_DEVICE uint8_t* atom(int32_t stage) const { return pointer_ + kPlan.atoms + stage * kPlan.atom_bytes; }
    DG_DEVICE uint32_t barrier(int32_t index) const { return base_ + kPlan.barriers + 8 * index; }

    uint32_t base_;
    uint8_t* pointer_;
};

}  // namespace deep_gemm::sm90
