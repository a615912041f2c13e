#include "recipe.hpp"

#include <algorithm>
#include <utility>

namespace deep_gemm {
namespace {

constexpr int64_t kGranularitiesK[] = {128, 32};

/// The numbers of a recipe, of which K is the last one.
ffi::Integers numbers_of(const Recipe& given, const char* name, int64_t count) {
    const ffi::Integers& values = *given;
    require(values.size() == count, name, " must have ", count, " numbers, got ", values.size());
    require(std::ranges::find(kGranularitiesK, values[count - 1]) != std::end(kGranularitiesK),
            "the granularity of scales along K must be 128 or 32, but ", name, " says ", values[count - 1]);
    return values;
}

}  // namespace

Granularities given_granularities(const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b) {
    Granularities given;
    if (recipe) {
        require(!recipe_a && !recipe_b, "give either recipe or recipe_a and recipe_b, not both");
        const ffi::Integers values = numbers_of(recipe, "recipe", 3);
        given = {.a = {values[0], values[2]}, .b = {values[1], values[2]}};
    } else {
        require(recipe_a && recipe_b, "recipe_a and recipe_b go together: give both or none");
        const ffi::Integers of_a = numbers_of(recipe_a, "recipe_a", 2), of_b = numbers_of(recipe_b, "recipe_b", 2);
        given = {.a = {of_a[0], of_a[1]}, .b = {of_b[0], of_b[1]}};
    }
    for (const auto& [shared, name] : {std::pair{given.a, "a"}, std::pair{given.b, "b"}})
        require(shared.rows == 1 || shared.rows == kScaleBlockRows || (shared.rows == 32 && shared.k == 32),
                "the recipe's granularity of ", name, " must be 1 or 128 rows a scale, or 32 beside 32 of K, got ",
                shared.rows);
    return given;
}

}  // namespace deep_gemm
