// Hopper: config and memory plan of the pre-norm product.
#pragma once

#include <deep_gemm/arch/sm90.cuh>
#include <deep_gemm/kernels/tf32_hc_prenorm_gemm_params.cuh>

namespace deep_gemm::sm90 {

struct PrenormConfig {
    int32_t rows = 64;       // of a CTA: a multiple of 16
    int32_t cols = 8;        // a multiple of 8
    int32_t cluster = 1;     // CTAs that divide K among themselves
    int32_t warpgroups = 2;  // that take blocks of K in turn
    int32_t stages = 2;  // of the ring: a multiple of the warpgroups, so that each is one warpgroup's (logits_stages)

    constexpr bool operator==(const PrenormConfig&) const = default;
    constexpr int32_t threads() const { return (warpgroups + 1) * 128; }
    constexpr int32_t row_tiles() const { return ceil_div(rows, kWgmmaRows); }
    constexpr int32_t a_bytes() const { return rows * kSwizzleBytes; }       // of a block of K
    constexpr int32_t b_bytes() const { return cols * kPrenormBlockK * 4; }  // in FP32, and as two halves
};

/// Registers of a thread that multiplies (of what a CTA of so many warpgroups has), and of one of the warpgroup that
/// loads, which adds up sums in the end.
constexpr int32_t prenorm_registers(const PrenormConfig& c) {
    return c.warpgroups == 2 ? 224 : c.warpgroups == 3 ? 152 : 112;
}
inline constexpr int32_t kPrenormLoadRegisters = 32;

/// Bytes from the start of dynamic shared memory, which is brought to a multiple of 1024 first. Sums take the place of
/// all but the barriers and what other CTAs of a cluster send.
struct PrenormSmemPlan {
    int32_t stage_bytes = 0, halves = 0, barriers = 0, share = 0, bytes = 0;
};

inline constexpr int32_t kPrenormAlignment = 1024;

constexpr PrenormSmemPlan plan_prenorm_smem(const PrenormConfig& c) {
    PrenormSmemPlan plan;
    plan.stage_bytes = c.a_bytes() + c.b_bytes();
    plan.halves = plan.stage_bytes * c.stages;
    const int32_t halves_end = plan.halves + c.warpgroups * c.b_bytes(),
                  sums_bytes = align_up(c.warpgroups * c.rows * prenorm_sum_stride(c.cols) * 4, 16);
    plan.barriers = halves_end > sums_bytes ? halves_end : sums_bytes;
    plan.share = plan.barriers + 16 * c.stages;
    plan.bytes = plan.share + prenorm_share_bytes(c.rows, c.cols, c.cluster) + kPrenormAlignment;
    return plan;
}

}  // namespace deep_gemm::sm90
