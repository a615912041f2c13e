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
struct Names<Major> {
    static constexpr std::string_view kType = "Major", kValues[] = {"k", "mn"};
};
template <>
struct Names<Grouping> {
    static constexpr std::string_view kType = "Grouping",
                                      kValues[] = {"dense",        "m_contiguous", "m_psum",   "masked",
                                                   "k_contiguous", "batched",      "batch_sum"};
};
template <>
struct Names<StoreKind> {
    static constexpr std::string_view kType = "StoreKind", kValues[] = {"tma", "tma_add", "direct", "direct_add"};
};

template <>
struct Names<GateKind> {
    static constexpr std::string_view kType = "GateKind";
    static constexpr auto& kValues = kGateKinds;
};
template <>
struct Names<GateRows> {
    static constexpr std::string_view kType = "GateRows", kValues[] = {"halves", "interleaved", "packed_halves",
                                                                       "packed_interleaved", "eights"};
};

template <>
struct Names<Rounding> {
    static constexpr std::string_view kType = "Rounding", kValues[] = {"nearest", "at_random", "clamped"};
};

template <typename Enum>
constexpr std::string_view name(Enum value)
    requires requires { Names<Enum>::kValues; }
{
    return Names<Enum>::kValues[static_cast<size_t>(value)];
}

/// Elements and architectures have theirs among their facts.
template <>
struct Names<Element> {
    static constexpr std::string_view kType = "Element";
};
template <>
struct Names<Arch> {
    static constexpr std::string_view kType = "Arch";
};
constexpr std::string_view name(Element element) { return facts(element).name; }
constexpr std::string_view name(Arch arch) { return facts(arch).name; }

template <typename Struct, typename Value>
struct Field {
    std::string_view name;
    Value Struct::* member;
    bool begins_line = false;  // of the source that rendering writes: one aspect a line
};
template <typename Struct, typename Value>
Field(std::string_view, Value Struct::*, bool = false) -> Field<Struct, Value>;

/// A struct that another one is derived from, among its fields.
template <typename Struct>
struct Base {
    std::string_view name;
};

template <typename Part>
inline constexpr bool kIsBase = false;
template <typename Struct>
inline constexpr bool kIsBase<Base<Struct>> = true;

template <typename Object, typename Struct, typename Value>
constexpr auto& field_of(Object& object, const Field<Struct, Value>& field) {
    return object.*field.member;
}
template <typename Object, typename Struct>
constexpr auto& field_of(Object& object, const Base<Struct>&) {
    return static_cast<std::conditional_t<std::is_const_v<Object>, const Struct&, Struct&>>(object);
}

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
inline constexpr auto kFieldsOf<Scaling> =
    std::tuple{Field{"type", &Scaling::type}, Field{"rows", &Scaling::rows}, Field{"k", &Scaling::k}};
template <>
inline constexpr auto kFieldsOf<Operand> = std::tuple{
    Field{"element", &Operand::element}, Field{"major", &Operand::major}, Field{"scaling", &Operand::scaling},
    Field{"zeros_k", &Operand::zeros_k}, Field{"near_scales", &Operand::near_scales}};
template <>
inline constexpr auto kFieldsOf<HeadSplits> = std::tuple{
    Field{"left", &HeadSplits::left}, Field{"skipped", &HeadSplits::skipped}, Field{"right", &HeadSplits::right}};
template <>
inline constexpr auto kFieldsOf<Gated> =
    std::tuple{Field{"kind", &Gated::kind}, Field{"rows", &Gated::rows}, Field{"partial", &Gated::partial}};
template <>
inline constexpr auto kFieldsOf<GemmTask> = std::tuple{
    Field{"grouping", &GemmTask::grouping},   Field{"a", &GemmTask::a, true},   Field{"b", &GemmTask::b, true},
    Field{"output", &GemmTask::output, true}, Field{"shape", &GemmTask::shape},
};
template <>
inline constexpr auto kFieldsOf<Epilogue> = std::tuple{
    Field{"asymmetric_a", &Epilogue::asymmetric_a},
    Field{"alpha", &Epilogue::alpha},
    Field{"add_c", &Epilogue::add_c},
    Field{"row_scale", &Epilogue::row_scale},
    Field{"bias", &Epilogue::bias},
    Field{"gate", &Epilogue::gate, true},
    Field{"rounding", &Epilogue::rounding},
    Field{"output_scaling", &Epilogue::output_scaling},
    Field{"heads", &Epilogue::heads},
};
template <>
inline constexpr auto kFieldsOf<SplitK> =
    std::tuple{Field{"warpgroups", &SplitK::warpgroups}, Field{"last_tiles", &SplitK::last_tiles},
               Field{"parts_in_ring", &SplitK::parts_in_ring}};
template <>
inline constexpr auto kFieldsOf<StorePlan> =
    std::tuple{Field{"kind", &StorePlan::kind}, Field{"buffers", &StorePlan::buffers}};
template <>
inline constexpr auto kFieldsOf<TilePlan> = std::tuple{
    Field{"swap_ab", &TilePlan::swap_ab},
    Field{"tile", &TilePlan::tile, true},
    Field{"cluster", &TilePlan::cluster, true},
    Field{"col_warps", &TilePlan::col_warps},
    Field{"split_k", &TilePlan::split_k},
    Field{"stages", &TilePlan::stages, true},
    Field{"store", &TilePlan::store},
    Field{"stream_b", &TilePlan::stream_b, true},
    Field{"tensor_core_percent", &TilePlan::tensor_core_percent},
    Field{"group_capacity", &TilePlan::group_capacity},
    Field{"skips_padding", &TilePlan::skips_padding, true},
    Field{"group_maps", &TilePlan::group_maps},
};
template <>
inline constexpr auto kFieldsOf<sm80::Schedule> = std::tuple{
    Field{"row_warps", &sm80::Schedule::row_warps},         Field{"k_warps", &sm80::Schedule::k_warps},
    Field{"ctas_per_sm", &sm80::Schedule::ctas_per_sm},     Field{"copy_engine", &sm80::Schedule::copy_engine},
    Field{"multiplied_as", &sm80::Schedule::multiplied_as},
};
template <>
inline constexpr auto kFieldsOf<sm90::Schedule> = std::tuple{
    Field{"math_warpgroups", &sm90::Schedule::math_warpgroups}, Field{"look_ahead", &sm90::Schedule::look_ahead},
    Field{"wgmma_products", &sm90::Schedule::wgmma_products},   Field{"rescales", &sm90::Schedule::rescales},
    Field{"promotes_once", &sm90::Schedule::promotes_once},
};
template <>
inline constexpr auto kFieldsOf<sm100::Schedule> = std::tuple{
    Field{"accumulators", &sm100::Schedule::accumulators},
    Field{"row_blocks", &sm100::Schedule::row_blocks},
    Field{"col_blocks", &sm100::Schedule::col_blocks},
};

/// What a config is made of.
template <>
inline constexpr auto kFieldsOf<GemmConfig> = std::tuple{Base<GemmTask>{"GemmTask"},
                                                         Base<Epilogue>{"Epilogue"},
                                                         Base<TilePlan>{"TilePlan"},
                                                         Field{"arch", &GemmConfig::arch},
                                                         Field{"sm80::Schedule", &GemmConfig::sm80},
                                                         Field{"sm90::Schedule", &GemmConfig::sm90},
                                                         Field{"sm100::Schedule", &GemmConfig::sm100}};

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
    const auto take = [&]<typename Of>(const Of& field) {
        ++listed;
        if constexpr (!kIsBase<Of>) {
            const void* const place = &field_of(kObject, field);
            ascends = ascends && (last == nullptr || last < place);
            last = place;
        }
    };
    std::apply([&](const auto&... field) { (take(field), ...); }, kFieldsOf<Struct>);
    return ascends && listed == count<Struct>();
}

}  // namespace fields_detail

/// Whether it has other structs among its fields that it is derived from.
template <typename Struct>
constexpr bool is_derived() {
    return std::apply([]<typename... Of>(const Of&...) { return (kIsBase<Of> || ...); }, kFieldsOf<Struct>);
}

template <typename Struct>
concept HasFields = requires { std::tuple_size<std::remove_const_t<decltype(kFieldsOf<Struct>)>>::value; };

/// Calls `visit(field, value)` for each field; `object` may be const.
template <typename Object, typename Visit>
constexpr void for_each_field(Object& object, const Visit& visit)
    requires HasFields<std::remove_const_t<Object>>
{
    using Struct = std::remove_const_t<Object>;
    static_assert(fields_detail::is_complete<Struct>(), "kFieldsOf must list every field, in order");
    std::apply([&](const auto&... field) { (visit(field, field_of(object, field)), ...); }, kFieldsOf<Struct>);
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
