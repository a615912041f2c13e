// Errors that say what was wanted and what came.
//
// The runtime throws `Error`; `DEEP_GEMM_EXPORT` (ffi.hpp) turns its kind into the Python exception of the same name.
#pragma once

#ifdef DEEP_GEMM_SKIP_CHECKS
#include <cstdint>
#include <cstdlib>
#include <source_location>
#include <sstream>
#include <string_view>
#endif
#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>

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

/// A value of any type that can be printed. Messages are compiled once for each type that they hold, not once for each
/// list of types, which took seconds a file.
class Printed {
public:
    Printed(const char* text) : value_(text), print_(print_text) {}
    template <typename Value>
        requires(!std::is_array_v<Value>)
    Printed(const Value& value) : value_(&value), print_(print_value<Value>) {}

    void print(std::ostream& out) const { print_(out, value_); }

private:
    static void print_text(std::ostream& out, const void* text) { out << static_cast<const char*>(text); }
    template <typename Value>
    static void print_value(std::ostream& out, const void* value) {
        out << *static_cast<const Value*>(value);
    }

    const void* value_;
    void (*print_)(std::ostream&, const void*);
};

/// What only a message says, and takes time to write: made where it is printed.
template <typename Make>
struct Later {
    Make make;

    friend std::ostream& operator<<(std::ostream& out, const Later& text) { return out << text.make(); }
};

std::string concat_parts(std::initializer_list<Printed> parts);
[[noreturn, gnu::cold]] void fail_with(ErrorKind kind, std::initializer_list<Printed> parts);

/// Concatenate printable values into one message.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    return concat_parts({Printed(parts)...});
}

template <typename... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(ErrorKind kind, const Parts&... parts) {
    fail_with(kind, {Printed(parts)...});
}

#ifdef DEEP_GEMM_SKIP_CHECKS
/// A build for tests/support/unnoticed_checks.py: rejections in the lines DG_SKIP_CHECK="file.hpp 12 15" do not refuse.
class Condition {
public:
    Condition(bool holds, std::source_location where = std::source_location::current())
        : holds_(holds || is_skipped(where)) {}
    explicit operator bool() const { return holds_; }

private:
    static bool is_skipped(const std::source_location& where) {
        const char* const skipped = std::getenv("DG_SKIP_CHECK");
        if (skipped == nullptr) return false;
        std::string file;
        uint32_t first = 0, last = 0;
        std::istringstream(skipped) >> file >> first >> last;
        return std::string_view(where.file_name()).ends_with("/" + file) && where.line() >= first &&
               where.line() <= last;
    }

    bool holds_;
};
#else
using Condition = bool;
#endif

/// Refuse a call whose arguments cannot be right.
template <typename... Parts>
inline void require(Condition condition, const Parts&... parts) {
    if (!condition) [[unlikely]]
        fail(ErrorKind::value, parts...);
}

/// Refuse an argument of the wrong kind (dtype, device).
template <typename... Parts>
inline void require_type(Condition condition, const Parts&... parts) {
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
