#include "json.hpp"

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <algorithm>

#include "ffi_map.hpp"

namespace deep_gemm::json {
namespace {

template <typename Type>
std::optional<Type> field(const Object& object, const char* name) {
    for (const auto& [key, value] : object)
        if (key == name && std::holds_alternative<Type>(value)) return std::get<Type>(value);
    return std::nullopt;
}

}  // namespace

std::string write(const Object& object) {
    static const auto& kStringify =
        *new tvm::ffi::Function(tvm::ffi::Function::GetGlobalRequired("ffi.json.Stringify"));
    return kStringify(ffi::to_map(object), 2).cast<std::string>() + "\n";
}

std::optional<Object> read(const std::string& text) {
    static const auto& kParse = *new tvm::ffi::Function(tvm::ffi::Function::GetGlobalRequired("ffi.json.Parse"));
    // The parser calls itself for each bracket that opens, and does not know when its stack ends.
    constexpr int kMaxBrackets = 1000;
    if (std::ranges::count_if(text, [](char letter) { return letter == '[' || letter == '{'; }) > kMaxBrackets)
        return std::nullopt;
    try {
        const auto parsed = kParse(text).try_cast<ffi::Map>();
        if (!parsed) return std::nullopt;
        Object object;
        for (const auto& [name, value] : *parsed) {
            if (const auto words = value.try_cast<std::string>())
                object.emplace_back(name, *words);
            else if (const auto number = value.as<int64_t>())
                object.emplace_back(name, *number);
        }
        return object;
    } catch (const tvm::ffi::Error&) {
        return std::nullopt;
    }
}

std::optional<std::string> text(const Object& object, const char* name) { return field<std::string>(object, name); }
std::optional<int64_t> integer(const Object& object, const char* name) { return field<int64_t>(object, name); }

}  // namespace deep_gemm::json
