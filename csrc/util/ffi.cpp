#include "ffi.hpp"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <new>

#include "ffi_map.hpp"
#include "interrupt.hpp"
#include "require.hpp"

namespace deep_gemm::ffi {
namespace {

/// Name of the Python exception class that an error becomes.
const char* python_class(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::value:
            return "ValueError";
        case ErrorKind::type:
            return "TypeError";
        case ErrorKind::runtime:
            break;
    }
    return "RuntimeError";
}

int raise(const char* kind, const char* message) {
    tvm::ffi::detail::SetSafeCallRaised(tvm::ffi::Error(kind, message, ""));
    return -1;
}

bool is_empty(const DLTensor& tensor) {
    for (int i = 0; i < tensor.ndim; ++i)
        if (tensor.shape[i] == 0) return true;
    return false;
}

/// What tvm-ffi converts to its own type.
template <typename Type>
Type convert(const Given& given, int32_t index, const char* wanted) {
    const TVMFFIAny argument = given[index];
    if (std::optional<Type> value = tvm::ffi::TypeTraits<Type>::TryCastFromAnyView(&argument)) return *std::move(value);
    refuse_argument(given, index, wanted);
}

template <typename Type>
void put_any(TVMFFIAny* result, Type value) {
    *reinterpret_cast<tvm::ffi::Any*>(result) = tvm::ffi::Any(std::move(value));
}

tvm::ffi::Any to_any(const Value& value) {
    return std::visit([](const auto& held) { return tvm::ffi::Any(held); }, value);
}

}  // namespace

void refuse_argument(const Given& given, int32_t index, const char* wanted) {
    const auto got = tvm::ffi::TypeIndexToTypeKey(given[index].type_index);
    if (!given.named.empty())
        fail(ErrorKind::type, given.named[static_cast<size_t>(index)].name, " of ", given.function, " must be ", wanted,
             ", got ", got);
    fail(ErrorKind::type, "argument ", index, " of ", given.function, " must be ", wanted, ", got ", got);
}

void refuse_count(const Given& given, int32_t wanted) {
    fail(ErrorKind::type, given.function, " takes ", wanted, " arguments, but was given ", given.count);
}

TensorView take_without_memory(const Given& given, int32_t index, const DLTensor* tensor) {
    if (tensor == nullptr) refuse_argument(given, index, "a tensor");
    require_type(is_empty(*tensor), "a tensor has a shape but no memory");
    return TensorView(*tensor);
}

template <>
std::vector<TensorView> take(const Given& given, int32_t index) {
    const auto elements = convert<tvm::ffi::Array<tvm::ffi::Any>>(given, index, "tensors");
    std::vector<TensorView> tensors;
    for (const tvm::ffi::Any& element : elements) {
        const TVMFFIAny any = tvm::ffi::AnyView(element).CopyToTVMFFIAny();
        tensors.push_back(take<TensorView>({given.function, &any, 1}, 0));
    }
    return tensors;
}

std::optional<Integers> integers_of(const Given& given, int32_t index) {
    const TVMFFIAny argument = given[index];
    if (argument.type_index != kTVMFFIArray) return std::nullopt;
    const auto* const array = reinterpret_cast<const tvm::ffi::ArrayObj*>(argument.v_obj);
    const auto* const first = reinterpret_cast<const TVMFFIAny*>(array->begin());
    for (size_t i = 0; i < array->size(); ++i)
        if (first[i].type_index != kTVMFFIInt) return std::nullopt;
    return Integers(first, static_cast<int64_t>(array->size()));
}

template <>
Integers take(const Given& given, int32_t index) {
    if (const std::optional<Integers> integers = integers_of(given, index)) return *integers;
    refuse_argument(given, index, "integers");
}

template <>
std::vector<int64_t> take(const Given& given, int32_t index) {
    const auto integers = take<Integers>(given, index);
    std::vector<int64_t> values(static_cast<size_t>(integers.size()));
    for (int64_t i = 0; i < integers.size(); ++i) values[static_cast<size_t>(i)] = integers[i];
    return values;
}

template <>
std::string take(const Given& given, int32_t index) {
    return convert<std::string>(given, index, "text");
}

template <>
std::vector<std::string> take(const Given& given, int32_t index) {
    const auto texts = convert<tvm::ffi::Array<tvm::ffi::String>>(given, index, "texts");
    return {texts.begin(), texts.end()};
}

template <>
Bytes take(const Given& given, int32_t index) {
    return {convert<tvm::ffi::Bytes>(given, index, "bytes")};
}

template <>
Object take(const Given& given, int32_t index) {
    Object object;
    for (const auto& [name, value] : convert<tvm::ffi::Map<tvm::ffi::String, int64_t>>(given, index, "named integers"))
        object.emplace_back(name, value);
    return object;
}

template <>
Numbers take(const Given& given, int32_t index) {
    Numbers numbers;
    for (const auto& [name, value] : convert<tvm::ffi::Map<tvm::ffi::String, double>>(given, index, "named numbers"))
        numbers.emplace_back(name, value);
    return numbers;
}

template <>
std::function<double(const std::string&)> take(const Given& given, int32_t index) {
    using Function = tvm::ffi::TypedFunction<double(tvm::ffi::String)>;
    return [call = convert<Function>(given, index, "a function")](const std::string& text) { return call(text); };
}

void put(TVMFFIAny* result, bool value) { put_any(result, value); }
void put(TVMFFIAny* result, int64_t value) { put_any(result, value); }
void put(TVMFFIAny* result, const std::string& value) { put_any(result, tvm::ffi::String(value)); }
void put(TVMFFIAny* result, const Bytes& value) { put_any(result, tvm::ffi::Bytes(value.content)); }
void put(TVMFFIAny* result, const std::vector<int64_t>& value) {
    put_any(result, tvm::ffi::Array<int64_t>(value.begin(), value.end()));
}
void put(TVMFFIAny* result, const Object& value) { put_any(result, to_map(value)); }

Map to_map(const Object& object) {
    Map map;
    for (const auto& [name, value] : object) map.Set(name, to_any(value));
    return map;
}

int call_guarded(void (*body)(void*), void* context) {
    try {
        body(context);
        return 0;
    } catch (const Error& error) {
        return raise(python_class(error.kind()), error.what());
    } catch (const tvm::ffi::Error& error) {
        tvm::ffi::detail::SetSafeCallRaised(error);
        return -1;
    } catch (const Interrupted& interrupted) {
        if (interrupted.python_raised) return raise("EnvErrorAlreadySet", "");
        return raise("RuntimeError", "deep_gemm: stopped by the thread that waits for this one");
    } catch (const std::bad_alloc&) {
        return raise("MemoryError", "deep_gemm: out of host memory");
    } catch (const std::exception& error) {
        return raise("RuntimeError", error.what());
    }
}

}  // namespace deep_gemm::ffi
