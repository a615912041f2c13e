// Named values: what becomes a dict of Python's, or a JSON file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace deep_gemm {

using Value = std::variant<bool, int64_t, double, std::string>;

/// In the order in which they were set.
using Object = std::vector<std::pair<std::string, Value>>;

using Numbers = std::vector<std::pair<std::string, double>>;

}  // namespace deep_gemm
