// Adds up each token's rows, times their weights, in FP32 and in the order of its slots: equal bits each time.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/routing/config.cuh>

namespace deep_gemm {

/// Eight neighbours of a row.
template <Element kElement, bool kWide>
struct Neighbours {
    using Stored = StorageOf<kElement>;
    static constexpr int32_t kVectors = kCombinePiece * bits(kElement) / 128;

    /// Elements behind `left` are zeros, and stay as they are in memory. With kWide there are none or all.
    DG_DEVICE void load(const Stored* row, int32_t left) {
        if constexpr (kWide) {
#pragma unroll
            for (int32_t i = 0; i < kVectors; ++i)
                words.vectors[i] = left > 0 ? reinterpret_cast<const uint4*>(row)[i] : uint4{};
        } else {
#pragma unroll
            for (int32_t i = 0; i < kCombinePiece; ++i) words.elements[i] = i < left ? row[i] : Stored{};
        }
    }
    DG_DEVICE void store(Stored* row, int32_t left) const {
        if constexpr (kWide) {
#pragma unroll
            for (int32_t i = 0; i < kVectors; ++i) reinterpret_cast<uint4*>(row)[i] = words.vectors[i];
        } else {
#pragma unroll
            for (int32_t i = 0; i < kCombinePiece; ++i)
                if (i < left) row[i] = words.elements[i];
        }
    }

    union {
        uint4 vectors[kVectors];
        Stored elements[kCombinePiece];
    } words;
};

template <Constant<CombineConfig> c>
DG_DEVICE void run_combine_rows(const CombineParams& params) {
    const int32_t block = static_cast<int32_t>(blockIdx.x), token = block / params.column_blocks;
    const int32_t column =
        (block - token * params.column_blocks) * kCombineColumns + static_cast<int32_t>(threadIdx.x) * kCombinePiece;
    ptx::wait_for_previous_grid();
    const int32_t left = params.columns - column;
    if (left <= 0) return;
    const auto* const x = static_cast<const StorageOf<c.input>*>(params.x) + column;
    const int64_t first = static_cast<int64_t>(token) * params.choices;
    float sums[kCombinePiece] = {};
#pragma unroll 1
    for (int32_t slot = 0; slot < params.choices; slot += kCombineAhead) {
        Neighbours<c.input, c.wide> rows[kCombineAhead];
        float weights[kCombineAhead];
        bool there[kCombineAhead];
#pragma unroll
        for (int32_t i = 0; i < kCombineAhead; ++i) {
            const bool known = slot + i < params.choices;
            const int32_t row = known ? ptx::load_global_int(params.row_of + first + slot + i) : -1;
            there[i] = row >= 0;
            weights[i] = 1.0f;
            if constexpr (c.weights)
                if (there[i]) weights[i] = params.weights[first + slot + i];
            rows[i].load(x + (there[i] ? row : 0) * params.x_row_stride, there[i] ? left : 0);
        }
#pragma unroll
        for (int32_t i = 0; i < kCombineAhead; ++i) {
            if (!there[i]) continue;
#pragma unroll
            for (int32_t j = 0; j < kCombinePiece; ++j) {
                const float value = to_register<c.input>(rows[i].words.elements[j]);
                sums[j] = c.weights ? __fmaf_rn(weights[i], value, sums[j]) : __fadd_rn(sums[j], value);
            }
        }
    }
    Neighbours<c.output, c.wide> result;
#pragma unroll
    for (int32_t j = 0; j < kCombinePiece; ++j) from_register<c.output>(result.words.elements[j], sums[j]);
    auto* const out = static_cast<StorageOf<c.output>*>(params.out) + token * params.out_row_stride + column;
    result.store(out, left);
}

}  // namespace deep_gemm
