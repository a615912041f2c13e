// Exporting C++ functions to Python through tvm-ffi.
//
// Include this from the *_api.cpp files only: the rest of the runtime knows nothing of tvm-ffi.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <new>
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

/// Calls a function and turns its C++ exceptions into the Python exceptions that they stand for.
template <auto kFunction>
struct Guarded;

template <typename Result, typename... Arguments, Result (*kFunction)(Arguments...)>
struct Guarded<kFunction> {
    static Result call(Arguments... arguments) {
        try {
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
