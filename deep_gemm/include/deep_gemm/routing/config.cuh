// Configs and arguments of the kernels that bring tokens to their experts' rows and back, and the launch numbers that
// host and device share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

inline constexpr int32_t kRouteWarps = 8, kRouteThreads = kRouteWarps * 32;
inline constexpr int32_t kRouteSteps = 16;  // choices that a lane has
inline constexpr int32_t kRouteWarpChoices = kRouteSteps * 32, kRouteBlockChoices = kRouteWarps * kRouteWarpChoices;
inline constexpr int32_t kMaxExperts = 1024;
inline constexpr int32_t kMoveWarps = 4, kMoveThreads = kMoveWarps * 32;
inline constexpr int32_t kCombinePiece = 8;  // neighbours that a thread adds up
inline constexpr int32_t kCombineColumns = kMoveThreads * kCombinePiece;
inline constexpr int32_t kCombineAhead = 4;  // rows that a thread asks for before it adds the first

struct RouteConfig {
    int32_t experts = 64;    // that shared memory has places for; a power of two
    bool wide_ids = false;   // int64
    bool masked = false;     // a matrix for each expert; else experts follow each other
    bool indices = false;    // an expert for each row is written
    bool weights = false;    // and its weight
    bool one_block = false;  // that counts for itself what others would have counted before

    constexpr bool operator==(const RouteConfig&) const = default;
};

/// A choice is a token's slot, numbered token by token; it gets a row, in this order within its expert.
struct RouteParams {
    const void* ids;        // [choices], int32 or int64; none of the experts: no row
    const float* weights;   // [choices], or null
    int32_t* block_counts;  // [blocks][experts], or null with one block
    int32_t* row_of;        // [choices]; -1: none
    int32_t* source;        // [rows]: the choice; -1: none
    int32_t* indices;       // [rows]: the expert; -1: none; or null
    float* row_weights;     // [rows]; 0 where there is no choice; or null
    int32_t* ends;          // [experts]: where its rows end, or how many it has
    int32_t* counts;        // [experts]: how many chose it, with those that found no place
    int32_t choices, experts, blocks;
    int32_t rows;       // of all experts, or of each where they have a matrix each
    int32_t alignment;  // that experts' rows begin at multiples of
};

struct GatherConfig {
    int32_t piece_bytes = 16;  // that a lane copies at once: 16, 4, 2 or 1
    bool scales = false;       // of 4 bytes each come along
    bool clear = false;        // rows that are no token's become zeros

    constexpr bool operator==(const GatherConfig&) const = default;
};

/// x [tokens] -> out [rows], contiguous rows. Strides of x and out are of bytes, of scales of elements.
struct GatherParams {
    const uint8_t* x;
    uint8_t* out;
    const int32_t* source;
    const uint32_t* scales;
    uint32_t* out_scales;
    int64_t x_row_stride, out_row_stride;
    int64_t s_row_stride, s_k_stride;
    int64_t out_s_group_stride, out_s_row_stride, out_s_k_stride;
    int32_t rows, rows_of_group;
    int32_t choices;  // of a token
    int32_t pieces;   // of a row
    int32_t scale_count;
};

struct CombineConfig {
    Element input = Element::bf16, output = Element::bf16;
    bool weights = false;
    bool wide = true;  // rows lie so that 8 elements are read and written at once

    constexpr bool operator==(const CombineConfig&) const = default;
};

/// x [rows] -> out [tokens]: each token's rows, times their weights, added in the order of its slots. Strides are of
/// elements.
struct CombineParams {
    const void* x;
    void* out;
    const int32_t* row_of;  // [tokens][choices]
    const float* weights;   // likewise, or null
    int64_t x_row_stride, out_row_stride;
    int32_t tokens, choices, columns;
    int32_t column_blocks;
};

}  // namespace deep_gemm
