// What becomes of complete sums, on any architecture and however the product is cut up: which steps of epilogue/ a
// kernel has.
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/gate.cuh>

namespace deep_gemm {

/// Of D's columns, which belong to heads: each has `left`, then `skipped` that are not the product's and stay as they
/// are, then `right`.
struct HeadSplits {
    int32_t left = 0, skipped = 0, right = 0;

    constexpr bool operator==(const HeadSplits&) const = default;
    constexpr bool any() const { return skipped > 0; }
    constexpr int32_t written() const { return left + right; }
    /// Where in D a column of the product lies.
    constexpr int32_t place(int32_t col) const {
        const int32_t head = col / written();
        return col + (head + (col - head * written() >= left ? 1 : 0)) * skipped;
    }
};

/// How a result becomes a D of fewer bits.
enum class Rounding : int32_t {
    nearest,
    at_random,  // to BF16
    clamped,    // before it is quantised: to BF16, then bounded, and counted where it was beyond
};

/// The steps that a call asks for. Without padding, since problems are hashed and compared as bytes.
struct Epilogue {
    bool asymmetric_a = false;  // A's integers have zero points
    bool alpha = false;         // complete sums are multiplied by a factor, of each expert
    bool add_c = false;
    bool row_scale = false;        // what is stored of a row is multiplied by a number of its own
    Element bias = Element::none;  // a value for each N, added when sums are complete
    Gated gate = {};               // two columns of the product make one of D
    Rounding rounding = Rounding::nearest;
    Scaling output_scaling = {};  // of a D of few bits: scales that the kernel finds and stores beside it
    HeadSplits heads = {};

    constexpr bool operator==(const Epilogue&) const = default;
    /// Whether a call asks for something beyond the product, C and bias.
    constexpr bool has_steps() const {
        return alpha || row_scale || rounding == Rounding::at_random || gate.any() || output_scaling.any();
    }
    /// Columns of D that so many of the product make.
    constexpr int32_t d_cols(int32_t cols) const { return gate.columns(cols); }
    /// Whether columns of D that share a scale are of twice as many rows of weights.
    constexpr bool quantises_gates() const { return gate.any() && output_scaling.any(); }
};

}  // namespace deep_gemm
