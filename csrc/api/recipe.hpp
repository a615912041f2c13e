// Recipes: how many rows of A, of B, and how much of K share a scale.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/optional.h>

namespace deep_gemm {

using Recipe = tvm::ffi::Optional<tvm::ffi::Array<int64_t>>;

/// Rows of an operand that share a scale: 1 or 128.
struct Granularities {
    int64_t a = 1, b = 128;
};

Granularities given_granularities(const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b);

/// `recipe` is (rows of A, rows of B, K), `recipe_a` and `recipe_b` are (rows, K) each. None of them: the default.
inline Granularities granularities_of(const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b) {
    if (!recipe && !recipe_a && !recipe_b) [[likely]]
        return {};
    return given_granularities(recipe, recipe_a, recipe_b);
}

}  // namespace deep_gemm
