// Adds up each token's rows, times their weights, in the order of its slots.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/routing/combine.cuh>

namespace deep_gemm {

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
    const auto addend_of = [&](int32_t slot, bool known) {
        const int32_t row = known ? ptx::load_global_int(params.row_of + first + slot) : -1;
        Addend<c.input> addend{row >= 0, x + (row >= 0 ? row : 0) * params.x_row_stride};
        if constexpr (c.weights)
            if (addend.there) addend.weight = params.weights[first + slot];
        return addend;
    };
    auto* const out = static_cast<StorageOf<c.output>*>(params.out) + token * params.out_row_stride + column;
    combine_slots<c.input, c.output, c.weights, c.wide>(out, left, params.choices, addend_of);
}

}  // namespace deep_gemm
