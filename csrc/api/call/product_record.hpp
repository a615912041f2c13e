// What a product's call says (`C.product(a=..., b=..., d=..., layout=...)`, deep_gemm/_C.pyi). The key of a cached call
// is made of all fields (call_cache.hpp), so one that is added here can be forgotten nowhere.
#pragma once

#include <optional>
#include <tuple>

#include "record.hpp"

namespace deep_gemm {

struct ProductRecord {
    using Number = std::optional<int64_t>;
    using Numbers = std::optional<ffi::Integers>;

    // Operands. A scale or zero point that is a number is there by its bits. An element is said where a dtype does not:
    // of int8, integers, int4 or FP4 codes; of packed weights, which say their extents too.
    OptionalTensor a, a_scales, a_zeros;
    Number a_scale, a_zero, a_element, a_group_k;
    OptionalTensor b, b_scales, b_zeros, b_second_scales, b_sums;
    Number b_scale, b_element, b_rows, b_k, b_group_k, b_zeros_k, b_near_scales;
    // Written.
    OptionalTensor d, d_scales, d_count;
    // Grouping. None of these: dense.
    OptionalTensor grouped_layout, masked_m;
    Numbers ks;
    Number psum, zero_padding, expected_m, group_by_group, batched_form;
    // How operands lie and share scales.
    Number layout;
    Numbers recipe;
    // What happens to complete sums.
    OptionalTensor c, bias, alpha;
    Number alpha_bits;
    Numbers gate;
    OptionalTensor row_scale;
    Numbers head_splits;
};

/// Each field once: in this order they cross the boundary.
template <>
inline constexpr auto kFieldsOf<ProductRecord> = std::tuple{
    Field{"a", &ProductRecord::a},
    Field{"a_scales", &ProductRecord::a_scales},
    Field{"a_zeros", &ProductRecord::a_zeros},
    Field{"a_scale", &ProductRecord::a_scale},
    Field{"a_zero", &ProductRecord::a_zero},
    Field{"a_element", &ProductRecord::a_element},
    Field{"a_group_k", &ProductRecord::a_group_k},
    Field{"b", &ProductRecord::b},
    Field{"b_scales", &ProductRecord::b_scales},
    Field{"b_zeros", &ProductRecord::b_zeros},
    Field{"b_second_scales", &ProductRecord::b_second_scales},
    Field{"b_sums", &ProductRecord::b_sums},
    Field{"b_scale", &ProductRecord::b_scale},
    Field{"b_element", &ProductRecord::b_element},
    Field{"b_rows", &ProductRecord::b_rows},
    Field{"b_k", &ProductRecord::b_k},
    Field{"b_group_k", &ProductRecord::b_group_k},
    Field{"b_zeros_k", &ProductRecord::b_zeros_k},
    Field{"b_near_scales", &ProductRecord::b_near_scales},
    Field{"d", &ProductRecord::d},
    Field{"d_scales", &ProductRecord::d_scales},
    Field{"d_count", &ProductRecord::d_count},
    Field{"grouped_layout", &ProductRecord::grouped_layout},
    Field{"masked_m", &ProductRecord::masked_m},
    Field{"ks", &ProductRecord::ks},
    Field{"psum", &ProductRecord::psum},
    Field{"zero_padding", &ProductRecord::zero_padding},
    Field{"expected_m", &ProductRecord::expected_m},
    Field{"group_by_group", &ProductRecord::group_by_group},
    Field{"batched_form", &ProductRecord::batched_form},
    Field{"layout", &ProductRecord::layout},
    Field{"recipe", &ProductRecord::recipe},
    Field{"c", &ProductRecord::c},
    Field{"bias", &ProductRecord::bias},
    Field{"alpha", &ProductRecord::alpha},
    Field{"alpha_bits", &ProductRecord::alpha_bits},
    Field{"gate", &ProductRecord::gate},
    Field{"row_scale", &ProductRecord::row_scale},
    Field{"head_splits", &ProductRecord::head_splits},
};

static_assert(kArgumentsOf<ProductRecord>.size() <= 64, "a key has a bit for each");

}  // namespace deep_gemm
