// Exporting C++ functions to Python through tvm-ffi.
//
// Include this from the *_api.cpp files only: they are the bindings.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <new>
#include <optional>
#include <utility>

#include "interrupt.hpp"
#include "require.hpp"

namespace deep_gemm::ffi {

/// Name of the Python exception class that an error becomes.
inline const char* python_class(ErrorKind kind) {
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

/// Tensors may have a shape and no memory: torch's fake, functional and meta tensors, wrappers of other tensors,
/// storages resized to 0. Nobody may read or write through them. The public functions of Python say which argument it
/// was.
inline void require_memory(const tvm::ffi::TensorView& tensor) {
    if (tensor.data_ptr() != nullptr) [[likely]]
        return;
    for (int i = 0; i < tensor.ndim(); ++i)
        if (tensor.size(i) == 0) return;
    fail(ErrorKind::type, "a tensor has a shape but no memory");
}
inline void require_memory(const tvm::ffi::Optional<tvm::ffi::TensorView>& tensor) {
    if (tensor.has_value()) require_memory(tensor.value());
}
template <typename Other>
void require_memory(const Other&) {}

inline std::optional<tvm::ffi::TensorView> to_optional(const tvm::ffi::Optional<tvm::ffi::TensorView>& tensor) {
    return tensor.has_value() ? std::optional(tensor.value()) : std::nullopt;
}

/// Calls a function and turns its C++ exceptions into the Python exceptions that they stand for.
template <auto kFunction>
struct Guarded;

template <typename Result, typename... Arguments, Result (*kFunction)(Arguments...)>
struct Guarded<kFunction> {
    static Result call(Arguments... arguments) {
        try {
            (require_memory(arguments), ...);
            return kFunction(std::forward<Arguments>(arguments)...);
        } catch (const Error& error) {
            throw tvm::ffi::Error(python_class(error.kind()), error.what(), "");
        } catch (const tvm::ffi::Error&) {
            throw;
        } catch (const Interrupted& interrupted) {
            if (interrupted.python_raised) throw tvm::ffi::EnvErrorAlreadySet();
            throw tvm::ffi::Error("RuntimeError", "deep_gemm: stopped by the thread that waits for this one", "");
        } catch (const std::bad_alloc&) {
            throw tvm::ffi::Error("MemoryError", "deep_gemm: out of host memory", "");
        } catch (const std::exception& error) {
            throw tvm::ffi::Error("RuntimeError", error.what(), "");
        }
    }
};

}  // namespace deep_gemm::ffi

/// Export `function` (the name of a plain function) to Python as `C.name`.
#define DEEP_GEMM_EXPORT(name, function) \
    TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, (&::deep_gemm::ffi::Guarded<(&function)>::call))
