// What the random schedule throws.
#pragma once

#include <random>

namespace deep_gemm::simulator {

struct Dice {
    std::mt19937_64 next;
};

}  // namespace deep_gemm::simulator
