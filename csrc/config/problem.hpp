// What a call asks for, reduced to what decides its kernel. Equal problems get equal kernels.
#pragma once

#include <deep_gemm/config.cuh>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>

namespace deep_gemm {

/// Rows of operands that start at multiples of so many bytes are copied as fast as any: a K block of one is a line of
/// the L2.
constexpr int32_t kBestAlignment = 128;

/// The largest power of two up to that by which all these distances can be divided, given their bitwise or.
constexpr int32_t alignment_of(uint64_t bytes) { return 1 << std::countr_zero(bytes | kBestAlignment); }

/// The same of an operand as the kernel reads it: one that the copy engine could not read is copied into lines that
/// start at multiples of kBestAlignment.
constexpr int32_t alignment_as_read(uint64_t bytes) { return bytes % 16 == 0 ? alignment_of(bytes) : kBestAlignment; }

/// What a GPU has of what costs go by (cards.hpp): memory and power are that of so many SMs; products are pairs that an
/// SM multiplies in a cycle, of 16 bits with FP32 sums and of 8-bit integers.
struct GpuRates {
    int32_t sms = 0, clock_mhz = 0, memory_gb_per_s = 0, watts = 0, products_per_cycle = 0,
            integer_products_per_cycle = 0;
    bool operator==(const GpuRates&) const = default;
};

/// Plain 32-bit fields without padding, so that a problem is hashed and compared as bytes.
struct Problem : Epilogue {
    Arch arch = Arch::sm90;
    Grouping grouping = Grouping::dense;
    Operand a = {Element::e4m3, Major::k, kRowScales};
    Operand b = {Element::e4m3, Major::k, kBlockScales};
    Element output = Element::bf16;
    int32_t m = 0, n = 0, k = 0;  // m is max_m of a masked problem, k the sum over groups that divide it
    int32_t num_groups = 1;
    int32_t expected_m = 0;     // rows of a group, as far as the host knows (0: unknown): masked and psum problems
    int32_t m_alignment = 128;  // of the groups' first rows: contiguous and psum problems
    int32_t in_place = 0;       // C is D
    int32_t int4_a = 0;         // A's integers come two along K a byte: [M, K / 2]
    int32_t group_maps = 0;     // K groups are matrices of their own
    int32_t aligned_store = 1;  // D's base and rows start at multiples of 16 bytes
    // Bytes, see alignment_of; of an MN-major operand, between lines along M or N.
    int32_t row_alignment_a = kBestAlignment, row_alignment_b = kBestAlignment;
    // Scales come through a kernel that packs them, which can write words in any order (CopyPlan::a_in_blocks).
    int32_t packs_scales_a = 0, packs_scales_b = 0;
    CompiledShape compiled = {};  // extents that the caller wants compiled in; 0 otherwise

    // The device's, and what the caller set for it (csrc/api/call/call_settings.hpp).
    int32_t num_sms = 0;     // the grid must not be larger
    int32_t device_sms = 0;  // all of the device: clusters are dealt out to them
    // Of these, GPUs of one architecture may differ: the target's number, which tells instructions; shared memory that
    // a block may ask for; the L2.
    int32_t target = 0, smem_bytes = 0, l2_mib = 0;
    GpuRates rates = {};
    int32_t batch_invariant = 0;  // a row's result must not depend on M: no sum may be cut up differently because of it
    int32_t fast_accumulation = 0;  // FP8 may be added up by the tensor cores alone (`set_fast_accumulation`)
    int32_t threads_copy = 0;       // what a copy engine could bring, where threads can: to compare the two
    int32_t tensor_core_percent = 100;
    int32_t block_m_multiple = 1, block_n_multiple = 1;  // a tile's height and width must be multiples of these

    bool operator==(const Problem&) const = default;
};
static_assert(std::has_unique_object_representations_v<Problem>);

struct ProblemHash {
    size_t operator()(const Problem& problem) const {
        const auto words = std::bit_cast<std::array<uint32_t, sizeof(Problem) / 4>>(problem);
        uint64_t hash = 0;
        for (const uint32_t word : words) {
            hash = (hash ^ word) * 0x9e3779b97f4a7c15;
            hash ^= hash >> 32;
        }
        return hash * 0x9e3779b97f4a7c15;
    }
};

/// Whether D is added to where it lies, by the L2.
constexpr bool adds_in_place(const Problem& p) { return p.add_c && p.in_place != 0 && p.output == Element::fp32; }

/// Most of K of which the sum of any 8-bit integers is within s32: 2^31 / (-128)^2, less one. With zero points of one
/// of them, from -128 to 127 too: 2^31 / (255 * 128).
inline constexpr int32_t kMaxExactK = 131071, kMaxExactAsymmetricK = 65793;

constexpr int32_t most_exact_k(const Problem& p) { return p.asymmetric_a ? kMaxExactAsymmetricK : kMaxExactK; }

/// What sums of B's rows are: exact, or FP32 where groups along K have scales.
constexpr Element row_sums_element(const Scaling& of_b) {
    return GemmTask::scales_blocks(of_b) ? Element::fp32 : Element::s32;
}

/// Whether sums of K blocks are scaled before they are added up.
constexpr bool scales_blocks(const Problem& p) {
    return GemmTask::scales_blocks(p.a.scaling) || GemmTask::scales_blocks(p.b.scaling);
}

/// Whether K must come in parts, each of them a product of its own.
constexpr bool exceeds_exact_k(const Problem& p) {
    return p.a.scaling.any() && !scales_blocks(p) && sum_of(p.a.element) == Element::s32 && p.k > most_exact_k(p);
}

/// Up to its three leading bits, rounded up: four values an octave. Neighbouring problems then get the same kernel.
constexpr int32_t round_up_coarsely(int32_t value) {
    const int32_t step =
        std::max(1, static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(std::max(value, 1)))) / 4);
    return static_cast<int32_t>(std::min<int64_t>((int64_t{value} + step - 1) / step * step, INT32_MAX));
}

/// A hint of the caller as the problem keeps it: 0 where there is none.
inline int32_t coarse_hint(const Problem& p, int64_t rows) {
    return rows == 0 ? 0 : round_up_coarsely(static_cast<int32_t>(std::clamp<int64_t>(rows, 1, std::max(p.m, 1))));
}

/// Rows of M that matter to the cost: those of real tokens, as far as the host knows.
inline double expected_rows(const Problem& p) {
    if (p.expected_m > 0) return static_cast<double>(p.expected_m) * p.num_groups;
    if (has_equal_groups(p.grouping)) return static_cast<double>(p.m) * p.num_groups;
    return is_m_grouped(p.grouping) ? round_up_coarsely(p.m) : p.m;
}

/// K of one product, likewise.
inline int32_t expected_k(const Problem& p) { return divides_k(p.grouping) ? std::max(1, p.k / p.num_groups) : p.k; }

/// Rows of one group, likewise.
inline int32_t expected_group_rows(const Problem& p) {
    if (p.grouping == Grouping::masked) return p.expected_m > 0 ? p.expected_m : p.m;
    if (!is_m_grouped(p.grouping)) return p.m;
    return p.expected_m > 0 ? p.expected_m : std::max(1, ceil_div(round_up_coarsely(p.m), std::max(p.num_groups, 1)));
}

/// Matrices B that are read.
inline double expected_weights(const Problem& p) {
    if (has_equal_groups(p.grouping)) return p.num_groups;
    if (!is_m_grouped(p.grouping)) return 1;
    return p.grouping == Grouping::masked ? p.num_groups : std::min<double>(p.num_groups, ceil_div(p.m, p.m_alignment));
}

/// Rows of a group scatter around the caller's hint by so much of it, to either side.
constexpr double kGroupScatter = 0.3;

/// Blocks of M that cover all rows: how many there are on average, and by what part of it that scatters.
struct ExpectedBlocks {
    double mean, scatter = 0;
};

struct Moments {
    double mean, variance;
};

/// Of what `count` says of a group's rows, over the sizes that groups have when they scatter around this one.
template <typename Count>
Moments over_sizes(double rows, const Count& count) {
    constexpr int kPoints = 13;
    double sum = 0, squares = 0;
    for (int i = 0; i < kPoints; ++i) {
        const double factor = 1 - kGroupScatter + 2 * kGroupScatter * i / (kPoints - 1);
        const double value = count(std::max(1, static_cast<int32_t>(rows * factor + 0.5)));
        sum += value, squares += value * value;
    }
    const double mean = sum / kPoints;
    return {mean, std::max(0.0, squares / kPoints - mean * mean)};
}

/// Rows of an expert without its padding, as far as the host knows: half a block of the alignment on average.
inline double expected_expert_rows(const Problem& p) {
    if (p.grouping == Grouping::masked) return p.expected_m;
    return round_up_coarsely(p.m) / expected_weights(p) - (p.m_alignment - 1) / 2.0;
}

/// For blocks of this height. Where it exceeds the alignment of a contiguous layout, experts' last blocks are half full
/// on average.
inline ExpectedBlocks expected_blocks(const Problem& p, int32_t height) {
    const double groups = p.num_groups;
    if (has_equal_groups(p.grouping)) return {ceil_div(p.m, height) * groups};
    if (p.grouping == Grouping::m_contiguous)
        return {
            p.m_alignment % height == 0
                ? ceil_div(round_up_coarsely(p.m), height)
                : std::max(expected_weights(p), static_cast<double>(round_up_coarsely(p.m)) / height +
                                                    expected_weights(p) * (1 - double(p.m_alignment) / height) / 2)};
    if (!is_m_grouped(p.grouping)) return {static_cast<double>(ceil_div(p.m, height))};
    if (p.expected_m == 0)
        return {static_cast<double>(ceil_div(round_up_coarsely(p.m), height)), kGroupScatter / std::sqrt(groups)};
    const auto [mean, variance] = over_sizes(p.expected_m, [&](int32_t rows) { return ceil_div(rows, height); });
    return {mean * groups, std::sqrt(3 * variance / groups) / mean};  // as if spread evenly to both sides
}

/// Blocks of this height that a group likely has. Of a contiguous layout, padding included, as groups follow each
/// other.
inline int32_t likely_blocks(const Problem& p, int32_t height) {
    const int32_t rows =
        p.grouping == Grouping::m_contiguous ? ceil_div(p.m, std::max(p.num_groups, 1)) : expected_group_rows(p);
    return std::max(1, ceil_div(rows, height));
}

/// Waves of CTAs that walk this many tiles for each of them. Where the number of tiles scatters, a wave that is just
/// not full may be two: the mean over it.
inline double expected_waves(double tiles_per_cta, double scatter) {
    const double sum =
        std::ceil(tiles_per_cta * (1 - scatter)) + std::ceil(tiles_per_cta) + std::ceil(tiles_per_cta * (1 + scatter));
    return std::max(1.0, sum / 3);
}

/// The most blocks of this height that there can be: a grid need not be larger.
inline int64_t most_blocks(const Problem& p, int32_t height) {
    if (p.grouping == Grouping::m_contiguous) return ceil_div(p.m, std::min(height, p.m_alignment));
    return static_cast<int64_t>(ceil_div(p.m, height)) *
           (p.grouping == Grouping::masked || has_equal_groups(p.grouping) ? p.num_groups : 1);
}

}  // namespace deep_gemm
