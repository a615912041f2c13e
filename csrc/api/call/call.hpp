// A checked call: what every later step reads. Nothing here is a tensor any more.
#pragma once

#include <deep_gemm/params.cuh>

#include <array>

#include "../../config/problem.hpp"
#include "tensors.hpp"

namespace deep_gemm {

inline constexpr int64_t kTmaAlignment = 16;

/// Scales of one operand as they lie, which is not as the kernel wants them where it gets a copy (scales.hpp);
/// distances in elements.
struct Scales {
    const void* data = nullptr;
    Element element = Element::none;  // s32: words of kScalesPerWord scales along K
    Scaling scaling = {};             // as the kernel wants them
    int64_t operand_rows = 0;
    int32_t row_granularity = 1;                 // rows of the operand that share one
    bool in_blocks = false;                      // words of kWordBlockRows rows lie together, and strides say nothing
    int64_t groups = 1, rows = 0, k_scales = 0;  // entries along K, words where they are
    int64_t scales_of_row = 0;                   // along K, which may be fewer than words hold
    int64_t group_stride = 0, row_stride = 1, k_stride = 0;
    size_t bytes = 0;
    float value = 1;  // where there is no data: the scale of all rows
};

/// A value for each N, of each group.
struct Bias {
    const void* data = nullptr;
    int64_t group_stride = 0, stride = 0;  // elements
    size_t bytes = 0;
};

/// Zero points of A's rows, or one of all where the stride is 0; distances in elements.
struct ZeroPoints {
    const void* data = nullptr;
    int64_t group_stride = 0, stride = 0;
    size_t bytes = 0;
    int32_t value = 0;  // where there is no data
};

/// Of B's rows: exact in s32, or in FP32 where groups along K have scales.
struct RowSums {
    const void* data = nullptr;
    int64_t group_stride = 0;
    size_t bytes = 0;
};

/// Weights as public APIs have them, FP4 of two codes a byte or E4M3, which are packed into a workspace first.
struct UnpackedWeights {
    Matrix codes = {};  // bytes; null data where there are none
    Scales scales = {};
};

struct GemmCall {
    Problem problem = {};
    DeviceId device = {};
    Device* runs_on = nullptr;              // of the target that was in force when the checks began
    Matrix a = {}, b = {}, d = {}, c = {};  // a [M, K], b [N, K], d [M, N], c like d (null data where there is none)
    Scales scales_a = {}, scales_b = {};
    Scales zeros_b = {};            // words of zero points (Operand::zeros_k), which lie as scales do
    UnpackedWeights unpacked = {};  // what `b` and `scales_b` are made of: they have no memory yet
    Scales second_scales_b = {};    // for sums, where the others are multiplied into B's weights
    Scales alpha = {}, row_scale = {};
    Scales d_scales = {};  // written beside D; as the next product takes A's
    epilogue::ApplyGate::Params gate = {};
    epilogue::Clamp::Params clamp = {};
    Bias bias = {};
    ZeroPoints zeros_a = {};
    RowSums sums_b = {};
    const int32_t* grouped_layout = nullptr;
    size_t grouped_layout_bytes = 0;
    KGroupLayout k_groups = {};  // K-grouped calls only
    bool zero_padding = false;   // contiguous layouts: rows of padding become zero
};

/// What the kernel may touch.
using CallExtents = std::array<Extent, 16>;

inline CallExtents extents_of(const GemmCall& call) {
    return {{{call.a.data, call.a.bytes, "a", false},
             {call.b.data, call.b.bytes, "b", false},
             {call.scales_a.data, call.scales_a.bytes, "a's scales", false},
             {call.scales_b.data, call.scales_b.bytes, "b's scales", false},
             {call.zeros_b.data, call.zeros_b.bytes, "b's zeros", false},
             {call.second_scales_b.data, call.second_scales_b.bytes, "b's second scales", false},
             {call.alpha.data, call.alpha.bytes, "alpha", false},
             {call.row_scale.data, call.row_scale.bytes, "the rows' weights", false},
             {call.d.data, call.d.bytes, "d", true},
             {call.d_scales.data, call.d_scales.bytes, "d's scales", true},
             {call.clamp.count, sizeof(*call.clamp.count), "clamped_count", true},
             {call.c.data, call.c.bytes, "c", false},
             {call.bias.data, call.bias.bytes, "bias", false},
             {call.zeros_a.data, call.zeros_a.bytes, "a's zeros", false},
             {call.sums_b.data, call.sums_b.bytes, "sums of b's rows", false},
             {call.grouped_layout, call.grouped_layout_bytes, "grouped_layout", false}}};
}

}  // namespace deep_gemm
