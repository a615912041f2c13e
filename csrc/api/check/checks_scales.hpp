// Scales that come with both operands: how they are shared, and that they are what the kernel wants.
#pragma once

#include "../call/arguments.hpp"

namespace deep_gemm {

/// Rows of an operand, 1, 32 or 128, and elements of K, 128 or 32, that share a scale.
struct Granularity {
    int64_t rows = 1, k = kScaleGroupK;
};

/// B's scales say themselves how many rows share one: words of them are per row, others per block.
inline constexpr int64_t kRowsByDefault = 0;

struct Granularities {
    Granularity a = {}, b = {.rows = kRowsByDefault};
};

/// An operand as its scales see it.
struct ScaledOperand {
    const char *name, *scales_name;
    int64_t groups, rows, k;
    Scaling scaling;          // as the kernel wants scales
    int64_t row_granularity;  // as they are given
};

Scales check_scales(const TensorView& sf, const ScaledOperand& operand, const GemmCall& call, const Axes& axes);

/// Elements of K that an entry of scales is for: one scale, or the exponents of a word.
int64_t entry_k(Element lying, const Scaling& scaling);

/// How scales are shared, as kernels of the pair want them, or an error where none does.
void set_scalings(Problem& problem, const Granularities& given);

/// The scales of both operands.
void check_scales(GemmCall& call, const OperandArgument& a, const OperandArgument& b, const Granularities& given,
                  const Axes& axes_a, const Axes& axes_b);

}  // namespace deep_gemm
