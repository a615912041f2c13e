// Ampere and all GPUs with mma.sync: warps and the memory plan of the index logits' kernel.
#pragma once

#include <deep_gemm/logits/config.cuh>

namespace deep_gemm::sm80 {

inline constexpr int32_t kLogitsKeys = 32;  // of a warp, in registers

/// As many as have registers for these keys and the next ones: what is under way goes by it. On an H200 prefill with 16
/// took 0.97 and 0.95 of the time of 12 with D of 64, up to 1.11 with D of 128 (docs/logits.md). Beside exponents,
/// and of an odd number of 8 heads, 12 spill (20 and 24 heads of D 128).
constexpr int32_t logits_warps(const LogitsConfig& c) {
    return c.exponents || c.padded_heads % 16 != 0 ? 8 : c.d > 64 ? 12 : 16;
}
constexpr int32_t logits_threads(const LogitsConfig& c) { return logits_warps(c) * 32; }

/// Bytes of a head of a query in shared memory. Lanes read 16 bytes each, four lanes of a head and those of the next
/// one side by side: a head's neighbour must begin in the other half of the banks.
constexpr int32_t query_head_bytes(const LogitsConfig& c) {
    const int32_t bytes = bytes_of(c.multiplied, c.d);
    return bytes % 128 == 0 ? bytes + 64 : bytes;
}

struct LogitsSmemPlan {
    int32_t queries = 0, weights = 0, exponents = 0, ranges = 0, share = 0, bytes = 0;
};

constexpr LogitsSmemPlan plan_logits_smem(const LogitsConfig& c) {
    LogitsSmemPlan plan;
    plan.weights = c.columns() * query_head_bytes(c);
    plan.exponents = plan.weights + c.columns() * 4;
    plan.ranges = plan.exponents + (c.exponents_in_instruction() ? c.columns() * 4 : 0);
    plan.share = plan.ranges + align_up(c.rows * static_cast<int32_t>(sizeof(KeyRange)), 16);
    plan.bytes = plan.share + align_up(static_cast<int32_t>(sizeof(ShareSmem)), 16);
    return plan;
}

}  // namespace deep_gemm::sm80
