// What a call asks for, reduced to what decides its kernel. Equal problems get equal kernels.
#pragma once

#include <deep_gemm/config.cuh>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>

namespace deep_gemm {

/// Plain 32-bit fields without padding, so that a problem is hashed and compared as bytes.
struct Problem {
    Grouping grouping = Grouping::dense;
    ElementType operand = ElementType::e4m3;
    ElementType output = ElementType::bf16;
    ScaleKind scales_a = ScaleKind::per_row;
    ScaleKind scales_b = ScaleKind::per_block;
    int32_t m = 0, n = 0, k = 0;  // m is max_m of a masked problem, k the sum of a K-grouped one
    int32_t num_groups = 1;
    int32_t expected_m = 0;    // rows of a group, as far as the host knows: masked and psum problems
    int32_t m_alignment = 128; // of the groups' first rows: contiguous problems
    int32_t add_c = 0;
    int32_t in_place = 0;      // C is D
    int32_t aligned_store = 1; // D's base and rows start at multiples of 16 bytes
    CompiledShape compiled = {};  // extents that the caller wants compiled in; 0 otherwise
    int32_t num_sms = 0;       // the grid must not be larger
    int32_t dependent_launch = 0;

    bool operator==(const Problem&) const = default;
};
static_assert(std::has_unique_object_representations_v<Problem>);

struct ProblemHash {
    size_t operator()(const Problem& problem) const {
        return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&problem), sizeof(problem)});
    }
};

}  // namespace deep_gemm
