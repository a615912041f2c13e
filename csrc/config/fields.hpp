// The fields of a config, each named once: what prints, renders or reads them walks these lists.
#pragma once

#include <deep_gemm/config.cuh>

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace deep_gemm {

/// An enumeration's name and its values' names, in their order.
template <typename Enum>
struct Names;
template <>
struct Names<Arch> {
    static constexpr std::string_view kType = "Arch", kValues[] = {"sm90", "sm100"};
};
template <>
struct Names<ElementType> {
    static constexpr std::string_view kType = "ElementType", kValues[] = {"e4m3", "bf16", "fp32"};
};
template <>
struct Names<ScaleKind> {
    static constexpr std::string_view kType = "ScaleKind", kValues[] = {"none", "per_row", "per_block"};
};
template <>
struct Names<Grouping> {
    static constexpr std::string_view kType = "Grouping",
                                      kValues[] = {"dense", "m_contiguous", "m_psum", "masked", "k_contiguous"};
};
template <>
struct Names<StoreKind> {
    static constexpr std::string_view kType = "StoreKind", kValues[] = {"tma", "tma_add", "direct", "direct_add"};
};

template <typename Enum>
constexpr std::string_view name(Enum value)
    requires requires { Names<Enum>::kType; }
{
    return Names<Enum>::kValues[static_cast<size_t>(value)];
}

template <typename Struct, typename Value>
struct Field {
    std::string_view name;
    Value Struct::* member;
    bool begins_line = false;  // of the source that rendering writes: one aspect a line
};
template <typename Struct, typename Value>
Field(std::string_view, Value Struct::*, bool = false) -> Field<Struct, Value>;

/// A struct's fields in the order of their declaration.
template <typename Struct>
inline constexpr int kFieldsOf = 0;  // no list

template <>
inline constexpr auto kFieldsOf<TileShape> =
    std::tuple{Field{"rows", &TileShape::rows}, Field{"cols", &TileShape::cols}, Field{"k", &TileShape::k}};
template <>
inline constexpr auto kFieldsOf<ClusterShape> =
    std::tuple{Field{"rows", &ClusterShape::rows}, Field{"cols", &ClusterShape::cols}, Field{"k", &ClusterShape::k}};
template <>
inline constexpr auto kFieldsOf<CompiledShape> =
    std::tuple{Field{"m", &CompiledShape::m}, Field{"n", &CompiledShape::n}, Field{"k", &CompiledShape::k}};
template <>
inline constexpr auto kFieldsOf<GemmConfig> = std::tuple{
    Field{"arch", &GemmConfig::arch, true},
    Field{"grouping", &GemmConfig::grouping},
    Field{"operand", &GemmConfig::operand, true},
    Field{"output", &GemmConfig::output},
    Field{"scales_a", &GemmConfig::scales_a, true},
    Field{"scales_b", &GemmConfig::scales_b},
    Field{"mn_major_a", &GemmConfig::mn_major_a, true},
    Field{"mn_major_b", &GemmConfig::mn_major_b},
    Field{"swap_ab", &GemmConfig::swap_ab, true},
    Field{"tile", &GemmConfig::tile, true},
    Field{"cluster", &GemmConfig::cluster, true},
    Field{"shares_last", &GemmConfig::shares_last},
    Field{"math_warpgroups", &GemmConfig::math_warpgroups, true},
    Field{"k_warpgroups", &GemmConfig::k_warpgroups},
    Field{"parts_in_ring", &GemmConfig::parts_in_ring, true},
    Field{"look_ahead", &GemmConfig::look_ahead},
    Field{"wgmma_products", &GemmConfig::wgmma_products},
    Field{"skips_padding", &GemmConfig::skips_padding, true},
    Field{"stages", &GemmConfig::stages},
    Field{"add_c", &GemmConfig::add_c, true},
    Field{"store", &GemmConfig::store},
    Field{"store_buffers", &GemmConfig::store_buffers},
    Field{"stream_b", &GemmConfig::stream_b, true},
    Field{"tensor_core_percent", &GemmConfig::tensor_core_percent},
    Field{"group_capacity", &GemmConfig::group_capacity},
    Field{"group_maps", &GemmConfig::group_maps},
    Field{"shape", &GemmConfig::shape, true},
};

namespace fields_detail {

/// Stands for a value of any field.
struct Anything {
    template <typename Value>
    operator Value() const;
};

template <typename Struct, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
    return requires { Struct{(static_cast<void>(I), Anything{})...}; };
}

/// How many fields a struct has: the most initialisers that it takes.
template <typename Struct, size_t Count = 0>
constexpr size_t count() {
    if constexpr (takes<Struct>(std::make_index_sequence<Count + 1>{}))
        return count<Struct, Count + 1>();
    else
        return Count;
}

/// Whether `kFieldsOf` has every field, and each where it was declared.
template <typename Struct>
constexpr bool is_complete() {
    constexpr Struct kObject{};
    size_t listed = 0;
    bool ascends = true;
    const void* last = nullptr;
    const auto take = [&](const auto& field) {
        const void* const place = &(kObject.*field.member);
        ascends = ascends && (listed == 0 || last < place);
        last = place, ++listed;
    };
    std::apply([&](const auto&... field) { (take(field), ...); }, kFieldsOf<Struct>);
    return ascends && listed == count<Struct>();
}

}  // namespace fields_detail

template <typename Struct>
concept HasFields = requires { std::tuple_size<std::remove_const_t<decltype(kFieldsOf<Struct>)>>::value; };

/// Calls `visit(field, value)` for each field; `object` may be const.
template <typename Object, typename Visit>
constexpr void for_each_field(Object& object, const Visit& visit)
    requires HasFields<std::remove_const_t<Object>>
{
    using Struct = std::remove_const_t<Object>;
    static_assert(fields_detail::is_complete<Struct>(), "kFieldsOf must list every field, in order");
    std::apply([&](const auto&... field) { (visit(field, object.*field.member), ...); }, kFieldsOf<Struct>);
}

/// The same with the fields of fields, under names like "cluster_rows": calls `visit(name, value)`.
template <typename Object, typename Visit>
void for_each_number(Object& object, const Visit& visit, const std::string& prefix = {}) {
    for_each_field(object, [&](const auto& field, auto& value) {
        const std::string name = prefix + std::string(field.name);
        if constexpr (HasFields<std::remove_cvref_t<decltype(value)>>)
            for_each_number(value, visit, name + "_");
        else
            visit(name, value);
    });
}

}  // namespace deep_gemm
