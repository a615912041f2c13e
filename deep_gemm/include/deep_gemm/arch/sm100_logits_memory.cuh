// SM100: warps of the index logits' kernel, and its plans of shared and tensor memory.
#pragma once

#include <deep_gemm/arch/sm100_memory.cuh>
#include <deep_gemm/logits/config.cuh>

namespace deep_gemm::sm100 {

/// Keys of a product, a lane of tensor memory each: two of the tiles that work is dealt in.
inline constexpr int32_t kLogitsKeys = kRows, kLogitsKeyTiles = kLogitsKeys / kLogitsTile;

/// Accumulators that products take in turn, and warpgroups that finish logits, one's each. A warpgroup more has a warp
/// for each other role, and half a one cleans.
inline constexpr int32_t kLogitsAccumulators = 2, kLogitsCleaners = 2;
inline constexpr int32_t kLogitsFinishWarps = 4 * kLogitsAccumulators,
                         kLogitsWarps = kLogitsFinishWarps + 4 + kLogitsCleaners;
inline constexpr int32_t kLogitsThreads = kLogitsWarps * 32;

/// Columns of a product that two accumulators have room for, beside words of exponents.
constexpr int32_t max_logits_columns(bool exponents) { return exponents ? 224 : 256; }

/// Columns of tensor memory: sums, then of each stage the words of its keys, then of each query stage those of its
/// heads.
struct LogitsTensorPlan {
    int32_t key_words = 0, query_words = 0, query_word_columns = 0, columns = 0, allocated = kMinTensorColumns;
};

constexpr LogitsTensorPlan plan_logits_tensor_memory(const LogitsConfig& c) {
    LogitsTensorPlan plan;
    plan.key_words = kLogitsAccumulators * c.columns();
    plan.query_words = plan.key_words + (c.exponents ? c.stages * kScaleBlockColumns : 0);
    plan.query_word_columns = c.exponents ? scale_blocks(c.columns()) * kScaleBlockColumns : 0;
    plan.columns = plan.query_words + c.query_stages * plan.query_word_columns;
    while (plan.allocated < plan.columns) plan.allocated *= 2;
    return plan;
}

/// Bytes from the start of dynamic shared memory, which is brought to a multiple of kSmemAlignment first. Of an atom:
/// its rows, weights and the segment.
struct LogitsSmemPlan {
    int32_t query_bytes = 0, query_word_bytes = 0, key_bytes = 0, atom_bytes = 0;  // of a stage
    int32_t keys = 0, key_words = 0, query_words = 0, atoms = 0, weights = 0, segment = 0, share = 0, barriers = 0,
            tensor_address = 0, bytes = 0;
};

constexpr LogitsSmemPlan plan_logits_smem(const LogitsConfig& c) {
    LogitsSmemPlan plan;
    plan.query_bytes = align_up(c.columns() * c.key_bytes(), kSmemAlignment);
    plan.query_word_bytes = c.exponents ? scale_blocks(c.columns()) * kScaleBlockBytes : 0;
    plan.key_bytes = kLogitsKeys * c.key_bytes();
    plan.keys = plan.query_bytes * c.query_stages;
    plan.key_words = plan.keys + plan.key_bytes * c.stages;
    plan.query_words = plan.key_words + kLogitsKeys * 4 * c.stages;
    plan.weights = c.rows * static_cast<int32_t>(sizeof(LogitsRow));
    plan.segment = plan.weights + c.columns() * 4;
    plan.atom_bytes = align_up(plan.segment + 2 * 4, 16);
    plan.atoms = plan.query_words + plan.query_word_bytes * c.query_stages;
    plan.share = plan.atoms + plan.atom_bytes * c.query_stages;
    plan.barriers = plan.share + align_up(static_cast<int32_t>(sizeof(ShareSmem)), 16);
    plan.tensor_address = plan.barriers + 8 * (3 * c.stages + 2 * c.query_stages + 2 * kLogitsAccumulators);
    plan.bytes = plan.tensor_address + 8 + kSmemAlignment;
    return plan;
}

/// Key stages that fit beside the rest: reading from memory takes some 64 KB under way, whatever D is.
constexpr int32_t logits_stages(LogitsConfig c) {
    constexpr int32_t kMaxStages = 32;
    c.stages = kMaxStages;
    while (c.stages > 2 &&
           (plan_logits_smem(c).bytes > kMaxSmemBytes || plan_logits_tensor_memory(c).columns > kTensorColumns))
        --c.stages;
    return c.stages;
}

/// Arrivals: "full" the copying thread; "ready" the warp that transposes words; "empty" the commit, and where a key's
/// scale is FP32 the warps that have read it. Of an atom: the copying thread and each lane that writes; the commit, and
/// each warp that multiplies or finishes.
constexpr int32_t logits_empty_arrivals(const LogitsConfig& c) { return 1 + (c.exponents ? 0 : 4); }
inline constexpr int32_t kQueriesFullArrivals = 1 + 32, kQueriesEmptyArrivals = 2 + kLogitsFinishWarps;
inline constexpr int32_t kLogitsSumsEmptyArrivals = 4;

}  // namespace deep_gemm::sm100
