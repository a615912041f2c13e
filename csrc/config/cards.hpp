// What GPUs of one target differ in, of what costs go by: from their data sheets.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>

#include "../device/device.hpp"
#include "../util/require.hpp"
#include "problem.hpp"

namespace deep_gemm {

/// A GPU by the name that its driver says. Boost clock, memory, power and tensor cores are the data sheet's, without
/// sparsity.
struct Card {
    std::string_view name;
    int32_t target;  // 80 for sm_80
    int32_t sms, clock_mhz, memory_gb_per_s, l2_mib, watts;
    double tflops, tops;  // products of 16 bits with FP32 sums, and of 8-bit integers

    /// Of an SM in a cycle: pairs that are multiplied.
    int32_t products_per_cycle(double tera) const {
        return static_cast<int32_t>(std::lround(tera * 1e6 / (2.0 * sms * clock_mhz)));
    }
    GpuRates rates() const {
        return {sms, clock_mhz, memory_gb_per_s, watts, products_per_cycle(tflops), products_per_cycle(tops)};
    }
};

/// The first one of a target stands for it where no GPU is there: in the simulator and in recordings. Hopper's was
/// measured, and the H100; of all others the data sheet is all that is known. (A GH200's 1,000 W are its CPU's too: it
/// has an H100's here.)
inline constexpr Card kCards[] = {
    {"NVIDIA H200", 90, 132, 1980, 4800, 50, 700, 989.5, 1979},
    {"NVIDIA H100 80GB HBM3", 90, 132, 1980, 3350, 50, 700, 989.5, 1979},
    {"NVIDIA H100 PCIe", 90, 114, 1755, 2000, 50, 350, 756, 1513},
    {"NVIDIA H800", 90, 132, 1980, 3350, 50, 700, 989.5, 1979},
    {"NVIDIA GH200 480GB", 90, 132, 1980, 4000, 50, 700, 989.5, 1979},
    {"NVIDIA GH200 144G HBM3e", 90, 132, 1980, 4900, 50, 700, 989.5, 1979},
    {"NVIDIA H20", 90, 78, 1980, 4000, 60, 400, 148, 296},
    {"NVIDIA A100-SXM4-80GB", 80, 108, 1410, 2039, 40, 400, 312, 624},
    {"NVIDIA A100-SXM4-40GB", 80, 108, 1410, 1555, 40, 400, 312, 624},
    {"NVIDIA A100 80GB PCIe", 80, 108, 1410, 1935, 40, 300, 312, 624},
    {"NVIDIA A100-PCIE-40GB", 80, 108, 1410, 1555, 40, 250, 312, 624},
    {"NVIDIA A800-SXM4-80GB", 80, 108, 1410, 2039, 40, 400, 312, 624},
    {"NVIDIA A800 80GB PCIe", 80, 108, 1410, 1935, 40, 300, 312, 624},
    {"NVIDIA A30", 80, 56, 1440, 933, 24, 165, 165, 330},
    {"NVIDIA GeForce RTX 3090", 86, 82, 1695, 936, 6, 350, 71, 284},
    {"NVIDIA A10", 86, 72, 1695, 600, 6, 150, 125, 250},
    {"NVIDIA A40", 86, 84, 1740, 696, 6, 300, 149.7, 299.3},
    {"NVIDIA GeForce RTX 4090", 89, 128, 2520, 1008, 72, 450, 165.2, 660.6},
    {"NVIDIA L40S", 89, 142, 2520, 864, 48, 350, 362, 733},
    {"NVIDIA L4", 89, 58, 2040, 300, 48, 72, 121, 242.5},
};

/// Of targets without a row: half of an A100's tensor cores, as other GPUs of its family have them, and an SM's share
/// of memory between an A10's and an RTX 3090's.
inline constexpr Card kOtherCard = {"", 0, 100, 1980, 980, 0, 0, 202.8, 405.5};

inline const Card* find_card(std::string_view name) {
    const auto* const found = std::ranges::find(kCards, name, &Card::name);
    return found == std::end(kCards) ? nullptr : found;
}

/// "NVIDIA H200, ...", for errors.
inline std::string card_names() {
    std::string text;
    for (const Card& card : kCards) text += concat(text.empty() ? "" : ", ", card.name);
    return text;
}

inline const Card& card_of_target(int32_t number) {
    const auto* const found = std::ranges::find(kCards, number, &Card::target);
    return found == std::end(kCards) ? kOtherCard : *found;
}

/// Of a device that runs code for a target: of a GPU without a row, what its driver says; if that is nothing, what the
/// target's first GPU has. A GPU that stands in for another target has its own clock and memory.
inline GpuRates rates_of(const DeviceFacts& facts, int32_t target) {
    const Card* const own = find_card(facts.name);
    if (own != nullptr && own->target == target) return own->rates();
    GpuRates rates = card_of_target(target).rates();
    if (own != nullptr)
        rates.sms = own->sms, rates.clock_mhz = own->clock_mhz, rates.memory_gb_per_s = own->memory_gb_per_s;
    else if (facts.clock_mhz > 0 && facts.memory_gb_per_s > 0)
        rates.sms = facts.num_sms, rates.clock_mhz = facts.clock_mhz, rates.memory_gb_per_s = facts.memory_gb_per_s;
    return rates;
}

}  // namespace deep_gemm
