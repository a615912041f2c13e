// D of few bits: the largest magnitude of so many columns of a row says the scale that they share, what is stored is
// over it, and the scale goes beside D, where the next product looks for A's: with rows contiguous. The last step.
//
// To the bit what deep_gemm.utils makes of the same values in FP32.
#pragma once

#include <deep_gemm/epilogue/step.cuh>
#include <deep_gemm/quantize/divisor.cuh>
#if defined(__CUDACC__)
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/maximum.cuh>
#endif

namespace deep_gemm {

/// Columns whose scales one entry of four bytes holds.
constexpr int32_t entry_cols(const Scaling& scaling) { return entry_k(scaling); }

#if defined(__CUDACC__)
/// Bits of a scale that multiplies by one: all of an entry.
template <Constant<GemmConfig> c>
inline constexpr int32_t kUnitScales = c.output_scaling.type == Element::ue8m0 ? 0x7f7f7f7f : 0x3f800000;

/// The scale of columns whose largest magnitude is known, and division by it.
template <Constant<GemmConfig> c>
class OutputScale {
public:
    OutputScale() = default;
    DG_DEVICE explicit OutputScale(float largest) {
        const float scale = divided_by<largest_code(c.output)>(ptx::max_or_nan(largest, kSmallestAmax)),
                    made = kExponent ? ceil_to_ue8m0(scale) : scale;
        bits_ = __float_as_uint(made);
        divisor_ = Divisor<kExponent>(made);
    }

    /// As an entry of rows whose other columns are zeros has it; of exponents, which lie four to a word, the lowest.
    DG_DEVICE uint32_t stored() const {
        if constexpr (!kExponent) return bits_;
        constexpr uint32_t kOfZeros = 105;  // 1e-4 / 448 rounded up is 2^-22
        return bits_ >> 23 | kOfZeros << 8 | kOfZeros << 16 | kOfZeros << 24;
    }

    DG_DEVICE float over(float value) const { return divisor_.quotient(value); }

private:
    static constexpr bool kExponent = c.output_scaling.type == Element::ue8m0;
    uint32_t bits_;
    Divisor<kExponent> divisor_;
};
#endif

}  // namespace deep_gemm

namespace deep_gemm::epilogue {

struct Quantise {
    struct Params {
        void* scales;
        int64_t group_stride, k_stride;  // entries of four bytes
    };
    static constexpr bool wanted(const GemmConfig& c) { return c.output_scaling.any(); }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end,
                                const Params& params) {
        constexpr int32_t kCols = c.output_scaling.k, kRuns = Place::template kRuns<kCols>;
        const Place& at = end.at;
        clear_past_columns<c>(values, end);
        float largest[kRuns];
        if constexpr (Place::kExchanges) {
            const int32_t first_row = c.swap_ab ? end.tile.col : end.tile.row,
                          first_col = c.d_cols(c.swap_ab ? end.tile.row : end.tile.col);
            if (at.finds) {
                find<c>(largest, values, at);
                return at.template for_each_held_run<kCols>([&](int32_t run, int32_t row, int32_t col) {
                    at.send_maximum(row - first_row, col - first_col, largest[run]);
                });
            }
            at.template for_each_part<kCols>([&](int32_t run, int32_t row, int32_t col) {
                largest[run] =
                    at.template largest_of_run<Place::kReaders>(row - first_row, col - first_col, Place::reader());
            });
            if constexpr (Place::kReaders > 1) at.template reduce_along<kCols>(largest, larger);
        } else {
            find<c>(largest, values, at);
        }
        OutputScale<c> scales[kRuns];
        uint32_t stored[kRuns];
#pragma unroll
        for (int32_t run = 0; run < kRuns; ++run) {
            scales[run] = OutputScale<c>(largest[run]);
            stored[run] = scales[run].stored();
        }
#pragma unroll
        for (int32_t i = 0; i < Place::kValues; ++i) values[i] = scales[Place::template run<kCols>(i)].over(values[i]);
        for_each_padding<c>(end, [&](int32_t i) { stored[Place::template run<kCols>(i)] = kUnitScales<c>; });
        at.template for_each_held_run<kCols>([&](int32_t run, int32_t row, int32_t col) {
            if (col % kCols == 0 && row < at.m_end && col < at.n_end)
                store<c>(params, stored[run], at.group, row, col, at.n_end);
        });
    }

    /// Of a row that has no tile: all its scales are one. One warp.
    template <Constant<GemmConfig> c>
    static DG_DEVICE void fill_row(const Params& params, int32_t row, int32_t n_end) {
        int32_t* const first = static_cast<int32_t*>(params.scales) + row;
#pragma unroll 1
        for (int32_t i = ptx::lane(); i * entry_cols(c.output_scaling) < n_end; i += 32)
            first[i * params.k_stride] = kUnitScales<c>;
    }

private:
    static DG_DEVICE float larger(float x, float y) { return ptx::max_or_nan(x, y); }

    /// The largest magnitudes of a warp's columns of each run.
    template <Constant<GemmConfig> c, int32_t kRuns, typename Values, typename Place>
    static DG_DEVICE void find(float (&largest)[kRuns], const Values& values, const Place& at) {
        constexpr int32_t kCols = c.output_scaling.k;
#pragma unroll
        for (int32_t run = 0; run < kRuns; ++run) largest[run] = 0;
#pragma unroll
        for (int32_t i = 0; i < Place::kValues; ++i) {
            float& of_run = largest[Place::template run<kCols>(i)];
            of_run = ptx::max_or_nan(of_run, fabsf(values[i]));
        }
        at.template reduce_along<kCols>(largest, larger);
    }

    /// What lies there may be anything.
    template <Constant<GemmConfig> c, typename Values, typename End>
    static DG_DEVICE void clear_past_columns(Values& values, const End& end) {
        if (c.d_cols(c.swap_ab ? end.tile.row + c.tile.rows : end.tile.col + c.tile.cols) <= end.at.n_end) return;
        end.at.for_each_col([&](int32_t i, int32_t col) { values[i] = col < end.at.n_end ? values[i] : 0; });
    }

    /// visit(i) of values in rows of padding, as ZeroPadding finds them.
    template <Constant<GemmConfig> c, typename End, typename Visit>
    static DG_DEVICE void for_each_padding(const End& end, const Visit& visit) {
        if constexpr (c.grouping == Grouping::m_psum) {
            if ((c.swap_ab ? end.tile.col + c.tile.cols : end.tile.row + c.tile.rows) <= end.tile.m_end) return;
            end.at.for_each_row([&](int32_t i, int32_t row) {
                if (row >= end.tile.m_end) visit(i);
            });
        } else if constexpr (c.grouping == Grouping::m_contiguous) {
            end.padding.for_each_value(end.at, end.tile, visit);
        }
    }

    /// A scale; a row's last one with what its word has room for behind it.
    template <Constant<GemmConfig> c>
    static DG_DEVICE void store(const Params& params, uint32_t bits, int32_t group, int32_t row, int32_t col,
                                int32_t n_end) {
        constexpr int32_t kCols = c.output_scaling.k, kEntry = entry_cols(c.output_scaling);
        uint32_t* const entry =
            static_cast<uint32_t*>(params.scales) + group * params.group_stride + col / kEntry * params.k_stride + row;
        if constexpr (c.output_scaling.type == Element::fp32) {
            *entry = bits;
        } else {
            auto* const bytes = reinterpret_cast<uint8_t*>(entry);
            const int32_t byte = col / kCols % kScalesPerWord;
            bytes[byte] = static_cast<uint8_t>(bits);
            if (col + kCols < n_end) return;
            for (int32_t i = byte + 1; i < kScalesPerWord; ++i) bytes[i] = static_cast<uint8_t>(bits >> 8);
        }
    }
#endif
};

}  // namespace deep_gemm::epilogue
