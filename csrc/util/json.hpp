// The JSON files of the cache directory, read and written by tvm-ffi, whose functions are found by name: this needs no
// Python, and nothing is linked but tvm-ffi's C interface.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "object.hpp"

namespace deep_gemm::json {

/// One field a line.
std::string write(const Object& object);

/// Fields that are text or whole numbers; others are left out. Nothing where the text is no object: damage is an
/// answer, not an exception.
std::optional<Object> read(const std::string& text);

/// A field of text, or nothing where there is none.
std::optional<std::string> text(const Object& object, const char* name);
std::optional<int64_t> integer(const Object& object, const char* name);

}  // namespace deep_gemm::json
