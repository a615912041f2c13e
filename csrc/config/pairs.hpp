// The pair table: which formats each architecture multiplies, and how. Checks, errors, precompilation and tests go by
// it.
#pragma once

#include <deep_gemm/config.cuh>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

namespace deep_gemm {

/// What becomes of an operand of which M or N, not K, is contiguous.
enum class MnMajor : int32_t { as_it_lies, transposed, refused };

/// Groupings as bits.
template <typename... Some>
constexpr uint32_t groupings_of(Some... groupings) {
    return ((1u << static_cast<uint32_t>(groupings)) | ...);
}
inline constexpr uint32_t kScaledGroupings = groupings_of(Grouping::dense, Grouping::m_contiguous, Grouping::m_psum,
                                                          Grouping::masked, Grouping::k_contiguous, Grouping::batched);
inline constexpr uint32_t kTokenGroupings =
    groupings_of(Grouping::dense, Grouping::m_contiguous, Grouping::m_psum, Grouping::masked);
inline constexpr uint32_t kEveryGrouping = kScaledGroupings | groupings_of(Grouping::batch_sum);

/// Architectures, likewise.
template <typename... Some>
constexpr uint32_t archs_of(Some... archs) {
    return ((1u << static_cast<uint32_t>(archs)) | ...);
}

struct Pair {
    uint32_t archs = 0;
    Element a = {}, b = {};
    Element sum = {};       // of products
    MnMajor mn_major = {};  // operands: multiplied as they lie, or transposed on the way
    Scaling scalings_a[2] = {}, scalings_b[6] = {};
    Element outputs[4] = {};  // s32: of operands without scales
    uint32_t groupings = 0;
    int32_t zeros_k[4] = {};      // of b, where it has any (Operand::zeros_k)
    bool equal_scalings = false;  // an instruction takes those of both operands to be alike

    constexpr bool is_of(Arch arch) const { return (archs & archs_of(arch)) != 0; }
    constexpr bool serves(Grouping grouping) const { return (groupings & groupings_of(grouping)) != 0; }
    constexpr bool scaled() const { return scalings_a[0].any(); }
    /// Whether it has scales of this type, or none is asked for, or there are none: rows of the same elements differ in
    /// that.
    constexpr bool scales_by(Element type) const {
        return type == Element::none || !scaled() ||
               std::ranges::any_of(scalings_a, [&](const Scaling& s) { return s.type == type; });
    }
    /// Whether calls with PackedWeights multiply it, and those with the public pair of FP4.
    constexpr bool of_packed_weights() const { return is_packed(b) || unpacked_by_tma(b, a); }
    /// Whether operands may come with scales, or without: exact sums are of use without.
    constexpr bool takes(bool scales) const { return scaled() == scales || sum == Element::s32; }
};

inline constexpr uint32_t kEveryArch = archs_of(Arch::sm80, Arch::sm90, Arch::sm100, Arch::sm120);

/// Operands of 16 bits.
constexpr Pair halves(Element element) {
    return {.archs = kEveryArch,
            .a = element,
            .b = element,
            .sum = Element::fp32,
            .mn_major = MnMajor::as_it_lies,
            .scalings_a = {kUnscaled},
            .scalings_b = {kUnscaled},
            .outputs = {element, Element::fp32, element == Element::bf16 ? Element::fp16 : Element::none},
            .groupings = kEveryGrouping};
}

/// K of which weights have a scale each, or a word that says what is subtracted.
inline constexpr int32_t kGroupsOfK[] = {128, 64, 32};

/// Weights that are converted on their way. `scalings` of them; zero points for as much of K as those, if they have
/// any.
constexpr Pair converted(Pair pair, std::initializer_list<Scaling> scalings) {
    pair.archs = kEveryArch, pair.sum = sum_of(pair.a), pair.groupings = kTokenGroupings;
    std::ranges::copy(scalings, pair.scalings_b);
    if (!subtracts_zeros(pair.b)) return pair;
    const bool whole = std::ranges::find(scalings, kWholeRowScales) != scalings.end();
    if (whole) pair.zeros_k[0] = kAll;
    std::ranges::copy(kGroupsOfK, pair.zeros_k + (whole ? 1 : 0));
    return pair;
}

constexpr Pair beside_fp8(Element weights, std::initializer_list<Scaling> scalings) {
    return converted(Pair{.a = Element::e4m3,
                          .b = weights,
                          .mn_major = MnMajor::transposed,
                          .scalings_a = {kRowScales, kWholeRowScales},
                          .outputs = {Element::bf16, Element::fp32, Element::fp16}},
                     scalings);
}

constexpr Pair beside_int8(Element weights) {
    return converted(Pair{.a = Element::s8,
                          .b = weights,
                          .mn_major = MnMajor::transposed,
                          .scalings_a = {kWholeRowScales, kRowScales},
                          .outputs = {Element::bf16, Element::fp32, Element::fp16, Element::s32}},
                     {kWholeRowScales, kRowScales, kRowScales64, kRowScales32});
}

constexpr Pair beside_halves(Element tokens, Element weights) {
    const Pair pair{.a = tokens,
                    .b = weights,
                    .mn_major = MnMajor::refused,
                    .scalings_a = {kWholeRowScales},
                    .outputs = {tokens, Element::fp32, tokens == Element::bf16 ? Element::fp16 : Element::bf16}};
    if (weights == Element::e2m1)
        return converted(pair, {kRowScales, kRowScales64, kRowScales32, kWholeRowScales, kConversionScales32,
                                kConversionScales16});
    return converted(pair, {kRowScales, kRowScales64, kRowScales32, kWholeRowScales});
}

/// FP8, or FP4 beside it, with exponents that the instruction multiplies: the usual granularity of each first.
constexpr Pair beside_exponents(uint32_t archs, Element a, Element b, MnMajor mn_major) {
    Pair pair{.archs = archs,
              .a = a,
              .b = b,
              .sum = Element::fp32,
              .mn_major = mn_major,
              .scalings_a = {kExponents128, kExponents32},
              .scalings_b = {kExponents128, kExponents32},
              .outputs = {Element::bf16, Element::fp32, Element::fp16},
              .groupings = a == b ? kScaledGroupings : kTokenGroupings};
    if (a == Element::e2m1r) std::swap(pair.scalings_a[0], pair.scalings_a[1]);
    if (b == Element::e2m1r) std::swap(pair.scalings_b[0], pair.scalings_b[1]);
    return pair;
}

inline constexpr Pair kPairs[] = {
    {.archs = archs_of(Arch::sm80, Arch::sm90, Arch::sm120),
     .a = Element::e4m3,
     .b = Element::e4m3,
     .sum = Element::fp32,
     .mn_major = MnMajor::transposed,
     .scalings_a = {kRowScales, kRowScales32},
     .scalings_b = {kBlockScales, kRowScales, kRowScales32},
     .outputs = {Element::bf16, Element::fp32, Element::fp16},
     .groupings = kScaledGroupings},
    halves(Element::bf16),
    halves(Element::fp16),
    {.archs = kEveryArch,
     .a = Element::s8,
     .b = Element::s8,
     .sum = Element::s32,
     .mn_major = MnMajor::transposed,
     .scalings_a = {kWholeRowScales, kRowScales},
     .scalings_b = {kWholeRowScales, kBlockScales, kRowScales},
     .outputs = {Element::bf16, Element::fp32, Element::fp16, Element::s32},
     .groupings = kTokenGroupings},
    beside_fp8(Element::s4m, {kRowScales, kRowScales64, kRowScales32}),
    beside_fp8(Element::s4, {kRowScales, kRowScales64, kRowScales32}),
    beside_fp8(Element::e2m1, {kRowScales32}),
    beside_fp8(Element::e2m1x, {kRowScales}),
    beside_int8(Element::s4),
    beside_fp8(Element::u4, {kRowScales, kRowScales64, kRowScales32}),
    beside_int8(Element::u4),
    beside_halves(Element::bf16, Element::s4b),
    beside_halves(Element::bf16, Element::u4),
    beside_halves(Element::fp16, Element::s4b),
    beside_halves(Element::fp16, Element::u4),
    beside_halves(Element::bf16, Element::e2m1),
    beside_halves(Element::fp16, Element::e2m1),
    beside_halves(Element::bf16, Element::e4m3p),
    beside_halves(Element::fp16, Element::e4m3p),
    beside_halves(Element::bf16, Element::s8b),
    beside_halves(Element::bf16, Element::u8),
    beside_halves(Element::fp16, Element::s8b),
    beside_halves(Element::fp16, Element::u8),
    beside_exponents(archs_of(Arch::sm100), Element::e4m3, Element::e4m3, MnMajor::as_it_lies),
    beside_exponents(archs_of(Arch::sm120), Element::e4m3, Element::e4m3, MnMajor::transposed),
    {.archs = archs_of(Arch::sm100, Arch::sm120),
     .a = Element::e2m1r,
     .b = Element::e2m1r,
     .sum = Element::fp32,
     .mn_major = MnMajor::refused,
     .scalings_a = {kExponents32, kE4m3Scales16},
     .scalings_b = {kExponents32, kE4m3Scales16},
     .outputs = {Element::bf16, Element::fp32, Element::fp16},
     .groupings = kTokenGroupings | groupings_of(Grouping::k_contiguous),
     .equal_scalings = true},
    {.archs = archs_of(Arch::sm100),
     .a = Element::e4m3,
     .b = Element::e4m3,
     .sum = Element::fp32,
     .mn_major = MnMajor::as_it_lies,
     .scalings_a = {kRowScales},
     .scalings_b = {kBlockScales, kRowScales},
     .outputs = {Element::bf16, Element::fp32, Element::fp16},
     .groupings = kScaledGroupings},
    beside_exponents(archs_of(Arch::sm100), Element::e2m1r, Element::e4m3, MnMajor::as_it_lies),
    beside_exponents(archs_of(Arch::sm100), Element::e4m3, Element::e2m1r, MnMajor::as_it_lies),
    beside_exponents(archs_of(Arch::sm120), Element::e2m1r, Element::e4m3, MnMajor::transposed),
    beside_exponents(archs_of(Arch::sm120), Element::e4m3, Element::e2m1r, MnMajor::transposed),
};
static_assert(std::ranges::all_of(kPairs, [](const Pair& pair) { return pair.sum == sum_of(pair.a); }));

/// The table's row for these elements and A's scales, the first one where `scales` are none; none where there is no
/// such product.
constexpr const Pair* find_pair(Arch arch, Element a, Element b, Element scales = Element::none) {
    const auto* const found = std::ranges::find_if(kPairs, [&](const Pair& pair) {
        return pair.is_of(arch) && pair.a == a && pair.b == b && pair.scales_by(scales);
    });
    return found == std::end(kPairs) ? nullptr : found;
}

/// Whether a row of the table lists it. Unused places of a list are empty.
template <typename Value>
constexpr bool lists(std::span<const Value> list, const Value& value) {
    return std::ranges::find(list, value) != list.end();
}

}  // namespace deep_gemm
