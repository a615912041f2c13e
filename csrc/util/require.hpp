// Errors that say what was wanted and what came.
//
// The runtime throws `Error`; `csrc/python_api.cpp` turns its kind into the Python exception of the same name.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace deep_gemm {

/// What Python class an error becomes: bad input is a ValueError or TypeError, a failing machine a RuntimeError.
enum class ErrorKind { value, type, runtime };

class Error : public std::runtime_error {
public:
    Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const noexcept { return kind_; }

private:
    ErrorKind kind_;
};

/// Concatenate printable values into one message.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <typename... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(ErrorKind kind, const Parts&... parts) {
    throw Error(kind, concat(parts...));
}

/// Refuse a call whose arguments cannot be right.
template <typename... Parts>
inline void require(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]]
        fail(ErrorKind::value, parts...);
}

/// Refuse an argument of the wrong kind (dtype, device).
template <typename... Parts>
inline void require_type(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]]
        fail(ErrorKind::type, parts...);
}

/// Report that the machine, not the caller, failed (driver, compiler, disk).
template <typename... Parts>
inline void require_runtime(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]]
        fail(ErrorKind::runtime, parts...);
}

}  // namespace deep_gemm
