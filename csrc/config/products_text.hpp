// Which products an architecture has, for errors about those that it lacks.
#pragma once

#include <string>

#include "../util/require.hpp"
#include "fields.hpp"
#include "pairs.hpp"

namespace deep_gemm {

/// "e4m3 x e4m3, bf16 x bf16".
inline std::string products_text(Arch arch) {
    std::string text;
    for (const Pair& pair : kPairs)
        if (find_pair(arch, pair.a, pair.b) == &pair)
            text += concat(text.empty() ? "" : ", ", name(pair.a), " x ", name(pair.b));
    return text;
}

}  // namespace deep_gemm
