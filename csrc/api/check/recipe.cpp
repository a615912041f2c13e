#include "recipe.hpp"

#include <algorithm>
#include <utility>

namespace deep_gemm {
namespace {

constexpr int64_t kGranularitiesK[] = {128, 32};

}  // namespace

Granularities given_granularities(const ffi::Integers& recipe) {
    const bool one = recipe.size() == 3;  // for K of both
    require(one || recipe.size() == 4, "recipe must have 3 numbers, or 4 where each operand has its own, got ",
            recipe.size());
    const Granularities given = one ? Granularities{.a = {recipe[0], recipe[2]}, .b = {recipe[1], recipe[2]}}
                                    : Granularities{.a = {recipe[0], recipe[1]}, .b = {recipe[2], recipe[3]}};
    for (const auto& [shared, name] : {std::pair{given.a, "recipe_a"}, std::pair{given.b, "recipe_b"}})
        require(std::ranges::find(kGranularitiesK, shared.k) != std::end(kGranularitiesK),
                "the granularity of scales along K must be 128 or 32, but ", one ? "recipe" : name, " says ", shared.k);
    for (const auto& [shared, name] : {std::pair{given.a, "a"}, std::pair{given.b, "b"}})
        require(shared.rows == 1 || shared.rows == kScaleBlockRows || (shared.rows == 32 && shared.k == 32),
                "the recipe's granularity of ", name, " must be 1 or 128 rows a scale, or 32 beside 32 of K, got ",
                shared.rows);
    return given;
}

}  // namespace deep_gemm
