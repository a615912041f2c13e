#include "recipe.hpp"

#include <utility>

namespace deep_gemm {

Granularities given_granularities(const Recipe& recipe, const Recipe& recipe_a, const Recipe& recipe_b) {
    Granularities rows;
    const auto numbers = [](const Recipe& given, const char* name, int64_t count) {
        const ffi::Integers& values = *given;
        require(values.size() == count, name, " must have ", count, " numbers, but has ", values.size());
        require(values[count - 1] == kScaleGroupK, "the granularity of scales along K must be ", kScaleGroupK, ", but ",
                name, " says ", values[count - 1]);
        return values;
    };
    if (recipe) {
        require(!recipe_a && !recipe_b, "give either recipe or recipe_a and recipe_b, not both");
        const ffi::Integers values = numbers(recipe, "recipe", 3);
        rows = {values[0], values[1]};
    } else {
        require(recipe_a && recipe_b, "recipe_a and recipe_b go together: give both or none");
        rows = {numbers(recipe_a, "recipe_a", 2)[0], numbers(recipe_b, "recipe_b", 2)[0]};
    }
    for (const auto& [granularity, name] : {std::pair{rows.a, "a"}, std::pair{rows.b, "b"}})
        require(granularity == 1 || granularity == kScaleBlockRows, "the recipe's granularity of ", name,
                " must be 1 or 128 rows a scale, but is ", granularity);
    return rows;
}

}  // namespace deep_gemm
