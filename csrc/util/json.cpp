#include "json.hpp"

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <algorithm>

namespace deep_gemm::json {
namespace {

template <typename Value>
std::optional<Value> field(const Object& object, const char* name) {
    const std::optional<tvm::ffi::Any> value = object.Get(name);
    return value ? value->try_cast<Value>() : std::nullopt;
}

}  // namespace

std::string write(const Object& object) {
    static const auto& kStringify =
        *new tvm::ffi::Function(tvm::ffi::Function::GetGlobalRequired("ffi.json.Stringify"));
    return kStringify(object, 2).cast<std::string>() + "\n";
}

std::optional<Object> read(const std::string& text) {
    static const auto& kParse = *new tvm::ffi::Function(tvm::ffi::Function::GetGlobalRequired("ffi.json.Parse"));
    // The parser calls itself for each bracket that opens, and does not know when its stack ends.
    constexpr int kMostBrackets = 1000;
    if (std::ranges::count_if(text, [](char letter) { return letter == '[' || letter == '{'; }) > kMostBrackets)
        return std::nullopt;
    try {
        return kParse(text).try_cast<Object>();
    } catch (const tvm::ffi::Error&) {
        return std::nullopt;
    }
}

std::optional<std::string> text(const Object& object, const char* name) { return field<std::string>(object, name); }
std::optional<int64_t> integer(const Object& object, const char* name) { return field<int64_t>(object, name); }

}  // namespace deep_gemm::json
