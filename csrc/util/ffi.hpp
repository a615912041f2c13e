// Exporting C++ functions to Python through tvm-ffi.
//
// Include this from the *_api.cpp files only: they are the bindings. Of tvm-ffi it knows the C interface. Its C++
// headers spell every rejection out for each argument of each export, and made the bindings the longest to compile:
// ffi.cpp alone knows them.
#pragma once

#include <tvm/ffi/c_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "object.hpp"
#include "tensor_view.hpp"

namespace deep_gemm::ffi {

/// What an argument that has a name is.
enum class ArgumentKind : uint8_t { tensor, number, numbers };
struct NamedArgument {
    const char* name;
    ArgumentKind kind;
};

/// The arguments of a call as Python gave them.
struct Given {
    const char* function;
    const TVMFFIAny* arguments;
    int32_t count;
    std::span<const NamedArgument> named = {};  // in their order, of an export that takes them by name

    /// None where there are fewer.
    TVMFFIAny operator[](int32_t index) const { return index < count ? arguments[index] : TVMFFIAny{}; }
};

/// Integers in the caller's memory, for calls that must not allocate.
class Integers {
public:
    Integers() = default;  // of a record that is read yet
    Integers(const TVMFFIAny* values, int64_t size) : values_(values), size_(size) {}
    int64_t size() const { return size_; }
    int64_t operator[](int64_t index) const { return values_[index].v_int64; }

private:
    const TVMFFIAny* values_ = nullptr;
    int64_t size_ = 0;
};

/// Python's bytes.
struct Bytes {
    std::string content;
};

[[noreturn]] void refuse_argument(const Given& given, int32_t index, const char* wanted);
[[noreturn]] void refuse_count(const Given& given, int32_t wanted);

/// The argument as what a C++ function takes.
template <typename Type>
Type take(const Given& given, int32_t index);

template <>
inline int64_t take(const Given& given, int32_t index) {
    const TVMFFIAny argument = given[index];
    if (argument.type_index == kTVMFFIInt || argument.type_index == kTVMFFIBool) [[likely]]
        return argument.v_int64;
    refuse_argument(given, index, "an integer");
}
template <>
inline bool take(const Given& given, int32_t index) {
    return take<int64_t>(given, index) != 0;
}
/// Torch's fake, functional and meta tensors, wrappers of other tensors and storages resized to 0 have a shape and no
/// memory: refused, unless they are empty. The public functions of Python say which argument it was. `tensor` may be
/// null.
TensorView take_without_memory(const Given& given, int32_t index, const DLTensor* tensor);
template <>
inline TensorView take(const Given& given, int32_t index) {
    const TVMFFIAny argument = given[index];
    const DLTensor* tensor = nullptr;
    if (argument.type_index == kTVMFFIDLTensorPtr)
        tensor = static_cast<const DLTensor*>(argument.v_ptr);
    else if (argument.type_index == kTVMFFITensor)
        tensor = TVMFFITensorGetDLTensorPtr(argument.v_obj);
    if (tensor == nullptr || tensor->data == nullptr) return take_without_memory(given, index, tensor);
    return TensorView(*tensor);
}
template <>
std::vector<TensorView> take(const Given& given, int32_t index);
/// Nothing where it is no sequence of them.
std::optional<Integers> integers_of(const Given& given, int32_t index);
template <>
Integers take(const Given& given, int32_t index);
template <>
std::vector<int64_t> take(const Given& given, int32_t index);
template <>
std::string take(const Given& given, int32_t index);
template <>
std::vector<std::string> take(const Given& given, int32_t index);
template <>
Bytes take(const Given& given, int32_t index);
template <>
Object take(const Given& given, int32_t index);
template <>
Numbers take(const Given& given, int32_t index);
/// A function of Python's, which may be kept.
template <>
std::function<double(const std::string&)> take(const Given& given, int32_t index);

void put(TVMFFIAny* result, bool value);
void put(TVMFFIAny* result, int64_t value);
void put(TVMFFIAny* result, const std::string& value);
void put(TVMFFIAny* result, const Bytes& value);
void put(TVMFFIAny* result, const std::vector<int64_t>& value);
void put(TVMFFIAny* result, const Object& value);

/// Calls `body(context)`. What it throws becomes what Python raises: errors of ours the exceptions that they stand for.
/// Returns what an export returns.
int call_guarded(void (*body)(void*), void* context);

template <typename Type>
struct Taking {
    static Type from(const Given& given, int32_t index) { return take<Type>(given, index); }
};
template <typename Type>
struct Taking<std::optional<Type>> {
    static std::optional<Type> from(const Given& given, int32_t index) {
        if (given[index].type_index == kTVMFFINone) return std::nullopt;
        return take<Type>(given, index);
    }
};

template <auto kFunction>
struct Export;

template <typename Result, typename... Arguments, Result (*kFunction)(Arguments...)>
struct Export<kFunction> {
    static int call(const Given& given, TVMFFIAny* result) {
        std::pair context{&given, result};
        return call_guarded(
            [](void* erased) {
                const auto& [given, result] = *static_cast<decltype(context)*>(erased);
                call_with(*given, result, std::make_index_sequence<kCount>());
            },
            &context);
    }

private:
    /// A function may want all of them beside each, as its first argument.
    static constexpr bool kWantsAll = [] {
        if constexpr (sizeof...(Arguments) == 0)
            return false;
        else
            return std::is_same_v<std::tuple_element_t<0, std::tuple<Arguments...>>, const Given&>;
    }();
    static constexpr size_t kCount = sizeof...(Arguments) - kWantsAll;
    static constexpr bool kReadsThem = kWantsAll && kCount == 0;  // itself

    template <size_t I>
    static auto taken(const Given& given) {
        using Argument = std::tuple_element_t<I + kWantsAll, std::tuple<Arguments...>>;
        return Taking<std::remove_cvref_t<Argument>>::from(given, I);
    }

    template <size_t... I>
    static auto result_of(const Given& given, std::index_sequence<I...>) {
        if constexpr (kWantsAll)
            return kFunction(given, taken<I>(given)...);
        else
            return kFunction(taken<I>(given)...);
    }

    template <size_t... I>
    static void call_with(const Given& given, [[maybe_unused]] TVMFFIAny* result, std::index_sequence<I...> all) {
        if (!kReadsThem && given.count > static_cast<int32_t>(kCount)) refuse_count(given, kCount);
        if constexpr (std::is_void_v<Result>)
            result_of(given, all);
        else
            put(result, result_of(given, all));
    }
};

}  // namespace deep_gemm::ffi

/// Export `function` (the name of a plain function) to Python as `C.name`. Optional arguments at the end may be left
/// out.
#define DEEP_GEMM_EXPORT(name, function)                                                                             \
    extern "C" [[gnu::visibility("default")]] int __tvm_ffi_##name(void*, const TVMFFIAny* arguments, int32_t count, \
                                                                   TVMFFIAny* result) {                              \
        return ::deep_gemm::ffi::Export<(&function)>::call({#name, arguments, count}, result);                       \
    }                                                                                                                \
    static_assert(true)
