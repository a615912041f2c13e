// Arguments of a product as its function was given them.
#pragma once

#include "../../util/ffi.hpp"
#include "call.hpp"

namespace deep_gemm {

/// D as it was given; with its scales where the product finds them, and the count of what it bounds.
struct OutputArgument {
    TensorView data;
    OptionalTensor scales, count;

    OutputArgument(const TensorView& data, const OptionalTensor& scales = {}, const OptionalTensor& count = {})
        : data(data), scales(scales), count(count) {}
    operator const TensorView&() const { return data; }
};

/// Weights that PackedWeights has made: what its tensors do not say themselves.
struct PackedArgument {
    Element element = Element::none;
    int64_t rows = 0, k = 0;
    int64_t group_k = 0;  // of K that shares a scale; 0: all of it
    bool grouped = false;
    const OptionalTensor* sums = nullptr;  // of its rows
    const OptionalTensor* second_scales = nullptr;
    int64_t zeros_k = 0;  // of K that shares a word of `zeros`; 0: all of it
    OptionalTensor zeros = {};
    bool near_scales = false;
    int64_t tokens_k = 0;  // of K that shares a scale of a's, as a recipe says; 0: none does
};

/// In the place of a number's bits: there is none.
inline constexpr int64_t kNoNumber = -1, kNoZero = int64_t{1} << 32;

/// An operand whose scales all of K may share, so that they may be a number too: its bits as FP32. Of integers with
/// zero points these, or one for all.
struct ChannelArgument {
    int64_t scale = kNoNumber, zero = kNoZero;
    const OptionalTensor* zeros = nullptr;
    const OptionalTensor* sums = nullptr;  // of B's rows, which zero points of A are multiplied by
    bool int4 = false;                     // two integers a byte

    bool asymmetric() const { return zero != kNoZero || (zeros != nullptr && zeros->has_value()); }
};

/// An operand as it was given, with its scales where it has some.
struct OperandArgument {
    const TensorView& data;
    const OptionalTensor& scales;
    const PackedArgument* packed = nullptr;
    const ChannelArgument* whole = nullptr;
    const char *name = "b", *scales_name = "b's scales", *sums_name = "b_sums";  // as the call's function calls them
    bool fp4 = false;         // int8 of two E2M1 codes each along K, rows of Element::e2m1r
    bool either_way = false;  // of `fp4`: two along M are taken, too

    bool scaled() const { return scales.has_value() || (whole != nullptr && whole->scale != kNoNumber); }
    const TensorView* sums() const {
        return whole == nullptr || whole->sums == nullptr || !*whole->sums ? nullptr : &**whole->sums;
    }
};

/// K as the data of activations have it.
inline int64_t k_of(const Matrix& a, const OperandArgument& argument) {
    return a.cols * (argument.whole != nullptr && argument.whole->int4 ? 2 : 1);
}

/// Whether the call is one of plain integers, which may have no scales at all.
inline bool takes_integers(const OperandArgument& a, const OperandArgument& b) {
    return a.whole != nullptr && b.packed == nullptr;
}

}  // namespace deep_gemm
