// Recipes: how many rows of A, of B, and how much of K share a scale.
#pragma once

#include <optional>

#include "../../util/ffi.hpp"
#include "checks_scales.hpp"

namespace deep_gemm {

using Recipe = std::optional<ffi::Integers>;

Granularities given_granularities(const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b);

/// `recipe` is (rows of A, rows of B, K), `recipe_a` and `recipe_b` are (rows, K) each. None of them: the default,
/// which the scales decide.
inline Granularities granularities_of(const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b) {
    if (!recipe && !recipe_a && !recipe_b) [[likely]]
        return {};
    return given_granularities(recipe, recipe_a, recipe_b);
}

}  // namespace deep_gemm
