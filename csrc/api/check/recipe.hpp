// Recipes: how many rows of A, of B, and how much of K share a scale.
#pragma once

#include <optional>

#include "../../util/ffi.hpp"
#include "checks_scales.hpp"

namespace deep_gemm {

using Recipe = std::optional<ffi::Integers>;

Granularities given_granularities(const ffi::Integers& recipe);

/// A recipe is (rows of A, rows of B, K) or, where operands differ in K, (rows of A, K of A, rows of B, K of B). None:
/// the default, which the scales decide.
inline Granularities granularities_of(const Recipe& recipe) {
    return recipe ? given_granularities(*recipe) : Granularities{};
}

}  // namespace deep_gemm
