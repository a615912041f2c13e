// From products to logits: relu, weights, the sum over heads, the key's scale, and the store.
//
// Of 16 keys by 8 columns, lane l of a warp holds keys l / 4 and l / 4 + 8, and columns 2 (l % 4) and the next one, as
// wgmma and mma.sync both leave them. All four lanes of a quad add up different heads of the same two keys.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/logits/rows.cuh>
#include <deep_gemm/ptx/relu.cuh>

namespace deep_gemm {

/// Sums of two keys and kRows query rows that quads of lanes have parts of -> of each sum one lane has all.
template <int32_t kRows>
class QuadSums {
public:
    /// A lane keeps one of both keys, and half of the query rows where these are an even number.
    static constexpr bool kHalves = kRows % 2 == 0;
    static constexpr int32_t kKept = kHalves ? kRows / 2 : kRows;

    static DG_DEVICE int32_t key(int32_t lane) { return lane / 4 + 8 * (lane & 1); }
    static DG_DEVICE int32_t first_row(int32_t lane) { return kHalves ? kKept * (lane >> 1 & 1) : 0; }
    static DG_DEVICE bool stores(int32_t lane) { return kHalves || (lane & 2) == 0; }

    /// The order of additions is fixed: equal bits from run to run.
    static DG_DEVICE void reduce(const float (&sums)[kRows][2], float (&kept)[kKept], int32_t lane) {
        const bool upper_key = lane & 1, upper_rows = lane & 2;
        float of_key[kRows];
#pragma unroll
        for (int32_t row = 0; row < kRows; ++row) {
            const float sent = upper_key ? sums[row][0] : sums[row][1], own = upper_key ? sums[row][1] : sums[row][0];
            of_key[row] = own + __shfl_xor_sync(0xffffffff, sent, 1);
        }
#pragma unroll
        for (int32_t i = 0; i < kKept; ++i) {
            if constexpr (kHalves) {
                const float sent = upper_rows ? of_key[i] : of_key[i + kKept],
                            own = upper_rows ? of_key[i + kKept] : of_key[i];
                kept[i] = own + __shfl_xor_sync(0xffffffff, sent, 2);
            } else {
                kept[i] = of_key[i] + __shfl_xor_sync(0xffffffff, of_key[i], 2);
            }
        }
    }
};

/// The weights of a lane's columns, and of rows and heads that do not exist 0.
template <Constant<LogitsConfig> c>
DG_DEVICE float logits_weight(int32_t row, int32_t rows_end, int32_t head, const LogitsParams& p) {
    if (row >= rows_end || head >= c.heads) return 0.0f;
    const auto* const weights = static_cast<const StorageOf<c.weights>*>(p.weights);
    return to_register<c.weights>(weights[row * p.weight_stride + head]);
}

template <Constant<LogitsConfig> c>
DG_DEVICE void store_logit(int32_t row, int32_t column, float value, const LogitsParams& p) {
    auto* const logits = static_cast<StorageOf<c.logits>*>(p.logits);
    from_register<c.logits>(logits[row * p.logits_stride + column], value);
}

/// Columns of a row that show no key become -inf; others are not touched. By warp `warp` of `warps` that share this.
template <Constant<LogitsConfig> c>
DG_DEVICE void clean_logits(int32_t warp, int32_t warps, int32_t lane, const LogitsParams& p) {
    const int32_t chunks = ceil_div(p.columns, kLogitsCleanColumns);
    const int64_t items = static_cast<int64_t>(p.rows) * chunks;
    for (int64_t item = warp; item < items; item += warps) {
        const auto row = static_cast<int32_t>(item / chunks);
        const int32_t first = static_cast<int32_t>(item - static_cast<int64_t>(row) * chunks) * kLogitsCleanColumns,
                      last = min(first + kLogitsCleanColumns, p.columns);
        const KeyRange keys = keys_of_row<c>(row, c.paged ? row / p.rows_per_request : 0, p);
        if (keys.first <= first && keys.end >= last) continue;
        for (int32_t column = first + lane; column < last; column += 32)
            if (column < keys.first || column >= keys.end) store_logit<c>(row, column, -__int_as_float(0x7f800000), p);
    }
}

}  // namespace deep_gemm
