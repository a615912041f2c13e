// Memory that the ranks of a group share, and the arguments of the kernels by which a MoE layer's tokens travel between
// them.
#pragma once

#include <deep_gemm/routing/config.cuh>

namespace deep_gemm {

inline constexpr int32_t kMaxRanks = 32;
inline constexpr int32_t kRankThreads = 256, kRankWarps = kRankThreads / 32;
inline constexpr int32_t kResultThreads = 128;
inline constexpr int32_t kResultColumns = kResultThreads * kCombinePiece;

/// What a rank tells the others that it has got to.
enum class Phase : int32_t { tokens, results };
inline constexpr int32_t kPhases = 2;

/// A rank's part begins with a flag for each phase and rank: (number of the call << 32) + tokens of the rank.
inline constexpr int32_t kFlagBytes = kPhases * kMaxRanks * 8;
/// Behind them, who waited in vain: phase + 1, the rank that did not come, the call.
inline constexpr int32_t kFaultBytes = 16;

struct Ranks {
    uint8_t* parts[kMaxRanks];  // each rank's memory, as it lies here; all alike
    uint64_t timeout_ns;
    uint32_t* calls;  // how many there were before: this rank's own
    int32_t rank, count;
    // From a part's beginning.
    int64_t ids, weights, x, x_scales, results;
};

/// What all ranks chose -> this rank's experts and their weights. `room` tokens of each rank, from `first_token` on.
struct ChoicesParams {
    Ranks ranks;
    int32_t* ids;        // [ranks][room][choices]: of this rank's experts, or -1
    float* row_weights;  // likewise
    int32_t tokens;      // of this rank, all of them
    int32_t bound;       // of any rank's tokens
    int32_t first_token, room, choices, experts;
};

/// Whose the rows of experts here are.
struct TravelParams {
    Ranks ranks;
    const int32_t* source;  // [rows]: which of [ranks][room][choices]; -1: none
    int32_t rows, first_token, room, choices, hidden;
};

/// Rows of tokens to where their experts read them. Strides of elements.
struct PullParams : TravelParams {
    uint8_t* out;  // [rows][hidden]
    float* out_scales;
    int64_t out_s_row_stride, out_s_k_stride;
};

/// Rows of results to the ranks whose tokens they are of.
struct PushParams : TravelParams {
    const uint8_t* down;  // [rows][hidden], bfloat16
};

/// The sum of each token's results, in the order of its slots.
struct ResultsParams {
    Ranks ranks;
    uint8_t* out;  // [tokens][hidden], bfloat16
    int64_t out_row_stride;
    int32_t tokens, choices, hidden, num_experts;
    int32_t column_blocks;
};

}  // namespace deep_gemm
