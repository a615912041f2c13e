// A problem by the names of its fields, as `python -m deep_gemm`, precompiling and tests ask for its kernel. Needs no
// device.
#pragma once

#include <optional>
#include <string>

#include "../../config/candidate.hpp"
#include "../../util/object.hpp"

namespace deep_gemm {

/// Of the compiler; none: Hopper's.
using Target = std::optional<std::string>;

/// A problem of any kind, and perhaps a config for it.
struct Request {
    Problem problem = {};
    Tiling tiling = {};  // no rows, no columns: the selected config
};

/// What `fields` does not name is as in `Problem`; `compiled_dims` has bits 1, 2, 4 for M, N, K and is the calls'
/// default otherwise.
Request request_of(const std::string& kind, const Object& fields, const Target& target);

}  // namespace deep_gemm
