// Hopper: the line of a kernel's source that says how often its FFMA yield. What comes of it:
// csrc/jit/sm90/ffma_yields.hpp.
#pragma once

#include <string>
#include <string_view>

#include "../../util/require.hpp"

namespace deep_gemm::sm90 {

inline constexpr std::string_view kFfmaMark = "// FFMA yield: ", kFfmaOneOf = "1 of ", kFfmaNone = "none";

/// Every `every`th FFMA is to yield; 0: none.
inline std::string ffma_yields_line(int every) {
    return every == 0 ? concat(kFfmaMark, kFfmaNone, "\n") : concat(kFfmaMark, kFfmaOneOf, every, "\n");
}

}  // namespace deep_gemm::sm90
