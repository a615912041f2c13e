// Hopper: the memory plan of the index logits' kernel.
#pragma once

#include <deep_gemm/arch/sm90.cuh>
#include <deep_gemm/logits/config.cuh>

namespace deep_gemm::sm90 {

inline constexpr int32_t kLogitsAlignment = 1024;

/// One warpgroup more than multiply: it loads, and cleans.
constexpr int32_t logits_threads(const LogitsConfig& c) { return (c.math_groups + 1) * 128; }

/// Registers of a thread, granted to whole warpgroups in steps of 8 out of what a CTA of so many has from the start.
constexpr int32_t math_registers(const LogitsConfig& c) {
    return c.math_groups == 2 ? 224 : c.math_groups == 3 ? 152 : 104;
}
inline constexpr int32_t kLogitsLoadRegisters = 56;

/// Bytes from the start of dynamic shared memory, which is brought to a multiple of kLogitsAlignment first. Of a query
/// stage: what is multiplied, rows, weights, and the segment.
struct LogitsSmemPlan {
    int32_t product_bytes = 0, query_stage_bytes = 0, key_stage_bytes = 0, atom_bytes = 0;
    int32_t keys = 0, scales = 0, atoms = 0, weights = 0, segment = 0, share = 0, barriers = 0, bytes = 0;
};

/// Spans of 128 bytes of a head of a query, in which its columns lie one after the other, where it was converted.
inline constexpr int32_t kConvertedSpanBytes = 128;
constexpr int32_t converted_spans(const LogitsConfig& c) {
    return ceil_div(bytes_of(c.multiplied, c.d), kConvertedSpanBytes);
}
constexpr int32_t column_bytes(const LogitsConfig& c) {
    return c.exponents ? converted_spans(c) * kConvertedSpanBytes : c.key_bytes();
}

constexpr LogitsSmemPlan plan_logits_smem(const LogitsConfig& c) {
    LogitsSmemPlan plan;
    plan.product_bytes = align_up(c.columns() * column_bytes(c), kLogitsAlignment);
    plan.query_stage_bytes = plan.product_bytes * c.products * c.row_groups();
    plan.key_stage_bytes = kLogitsTile * c.key_bytes();
    plan.keys = plan.query_stage_bytes * c.query_stages;
    plan.scales = plan.keys + plan.key_stage_bytes * c.stages;
    plan.weights = c.cta_rows() * static_cast<int32_t>(sizeof(LogitsRow));
    plan.segment = plan.weights + c.cta_rows() * c.padded_heads * 4;
    plan.atom_bytes = align_up(plan.segment + 2 * 4, 16);
    plan.atoms = plan.scales + kLogitsTile * 4 * c.stages;
    plan.share = plan.atoms + plan.atom_bytes * c.query_stages;
    plan.barriers = plan.share + align_up(static_cast<int32_t>(sizeof(ShareSmem)), 16);
    plan.bytes = plan.barriers + 16 * (c.stages + c.query_stages) + kLogitsAlignment;
    return plan;
}

/// Math warpgroups that take tiles in turn.
constexpr int32_t tile_step(const LogitsConfig& c) { return c.shares_keys ? 1 : c.math_groups; }

/// Warps that copy tiles of keys in turn: where tiles are read from memory faster than one warp asks for them.
constexpr int32_t key_loaders(const LogitsConfig& c) { return c.shares_keys ? 1 : 2; }

/// Key stages: as many as fit beside the rest where warpgroups share them. Else as many as keep memory busy: what SMs
/// ask for beyond waits in its queues, and some CTAs end late (12 stages of 8 KB are faster than 24 and than 16).
/// They are a multiple of the warpgroups that take turns, and of the loaders, so that a stage belongs to one of them:
/// who waits for its next phase has then seen the one before. (Another's, still open, would look like the next one,
/// since a barrier has one bit for it.)
constexpr int32_t logits_stages(LogitsConfig c) {
    constexpr int32_t kMaxStages = 32, kMinStages = 12, kBytes = 48 * 1024;
    const int32_t step = tile_step(c) % key_loaders(c) == 0 ? tile_step(c) : tile_step(c) * key_loaders(c);
    const int32_t busy = ceil_div(kBytes, kLogitsTile * c.key_bytes());
    c.stages = kMaxStages - kMaxStages % step;
    while (!c.shares_keys && c.stages - step >= (busy > kMinStages ? busy : kMinStages)) c.stages -= step;
    while (c.stages - step >= 2 && plan_logits_smem(c).bytes > kMaxSmemBytes) c.stages -= step;
    return c.stages;
}

}  // namespace deep_gemm::sm90
