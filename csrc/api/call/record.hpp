// What a call says, by named fields: from Python, which names those that it gives, to the checks.
//
// `kFieldsOf<Record>` lists each field once. From that list come the names that Python may use, the order in which
// arguments cross the boundary, and how each is read. A field that is optional may be left out; one that is not is
// refused by its name where it is missing.
#pragma once

#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>

#include "../../config/fields.hpp"
#include "../../util/ffi.hpp"
#include "../../util/require.hpp"

namespace deep_gemm {

namespace record_detail {

template <typename Value>
constexpr ffi::ArgumentKind kKind = ffi::ArgumentKind::number;
template <>
inline constexpr ffi::ArgumentKind kKind<TensorView> = ffi::ArgumentKind::tensor;
template <>
inline constexpr ffi::ArgumentKind kKind<ffi::Integers> = ffi::ArgumentKind::numbers;
template <typename Value>
inline constexpr ffi::ArgumentKind kKind<std::optional<Value>> = kKind<Value>;

template <typename Record, typename Value>
constexpr ffi::NamedArgument argument_of(const Field<Record, Value>& field) {
    return {field.name.data(), kKind<Value>};
}

}  // namespace record_detail

/// The fields as arguments.
template <typename Record>
inline constexpr auto kArgumentsOf =
    std::apply([](const auto&... field) { return std::array{record_detail::argument_of(field)...}; },
               kFieldsOf<Record>);

/// The arguments with their names.
template <typename Record>
ffi::Given named(const ffi::Given& given) {
    constexpr auto& arguments = kArgumentsOf<Record>;
    require_type(given.count == std::ssize(arguments), given.function, " takes ", arguments.size(),
                 " arguments, but was given ", given.count);
    return {given.function, given.arguments, given.count, arguments};
}

/// Of arguments with their names.
template <typename Record>
Record record_of(const ffi::Given& given) {
    Record record;
    int32_t index = 0;
    const auto take = [&](auto member) {  // its own, or of a record that it is derived from
        using Value = std::remove_cvref_t<decltype(record.*member)>;
        record.*member = ffi::Taking<Value>::from(given, index++);
    };
    std::apply([&](const auto&... field) { (take(field.member), ...); }, kFieldsOf<Record>);
    return record;
}

template <typename Record>
Record read(const ffi::Given& given) {
    return record_of<Record>(named<Record>(given));
}

/// Names of the fields in their order, one a word.
template <typename Record>
std::string names_of() {
    std::string names;
    for (const ffi::NamedArgument& field : kArgumentsOf<Record>) names += std::string(field.name) + " ";
    return names;
}

}  // namespace deep_gemm
