// What is multiplied: elements, and the scales that they are stored with. One axis of the library; arch/ is the other.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

/// s4m: four bits as sign and magnitude, -7 to 7; s4b: -8 to 7, stored as 0 to 15. u4: four bits from which something
/// is subtracted (Operand::zeros_k), which lie as s4b beside 16 bits. e2m1x: E2M1 of which each 32 of K have an
/// exponent of their own, in the scale that 128 of K share (convert/exponents.cuh). e4m3p: E4M3 in packed blocks.
/// ue5m3: five bits of exponent, biased by 15, and three of mantissa, never 0. s4i: rows of four bits, of each 32 of K
/// those 16 apart in a byte (kernels/unpack_int4.cuh). e2m1r: rows of E2M1, two that follow each other along K a byte,
/// the first one in its low half: as public APIs have them. s8b: -128 to 127, stored as 0 to 255 in packed blocks; u8:
/// the same, from which a zero point is subtracted.
enum class Element : int32_t {
    none,
    fp32,
    bf16,
    fp16,
    e4m3,
    ue8m0,
    s8,
    s32,
    s4,
    s4m,
    e2m1,
    u4,
    e2m1x,
    s4b,
    e4m3p,
    ue5m3,
    s4i,
    e2m1r,
    s8b,
    u8
};
inline constexpr int32_t kElementCount = static_cast<int32_t>(Element::u8) + 1;

enum class NumberKind : int32_t { none, floating, integer, exponent };

/// How the copy engine names an element. It moves those that it has no name for as bytes. The last three not every
/// engine has: `u4` is packed two a byte everywhere; `u4_spread` and `u6_spread` are packed in memory and come 16 to
/// each 16 bytes of shared memory, of which they fill the first 8 or 12.
enum class TensorMapType : int32_t { u8, bf16, f16, f32, i32, u4, u4_spread, u6_spread };

struct ElementFacts {
    Element element;
    const char* name;
    int32_t bits;
    NumberKind kind;
    TensorMapType map_type;
    const char* weights = nullptr;  // in packed blocks: what users call them
    bool subtracts_zeros = false;   // of which a word in memory says what is subtracted (Operand::zeros_k)
    bool folds_exponents = false;   // a scale holds what conversion multiplies groups of its K by, too
};

struct ElementTable {
    ElementFacts rows[kElementCount];
};

constexpr ElementTable element_table() {
    return {{
        {Element::none, "none", 0, NumberKind::none, TensorMapType::u8},
        {Element::fp32, "fp32", 32, NumberKind::floating, TensorMapType::f32},
        {Element::bf16, "bf16", 16, NumberKind::floating, TensorMapType::bf16},
        {Element::fp16, "fp16", 16, NumberKind::floating, TensorMapType::f16},
        {Element::e4m3, "e4m3", 8, NumberKind::floating, TensorMapType::u8},
        {Element::ue8m0, "ue8m0", 8, NumberKind::exponent, TensorMapType::u8},
        {Element::s8, "s8", 8, NumberKind::integer, TensorMapType::u8},
        {Element::s32, "s32", 32, NumberKind::integer, TensorMapType::i32},
        {Element::s4, "s4", 4, NumberKind::integer, TensorMapType::i32, "int4"},
        {Element::s4m, "s4m", 4, NumberKind::integer, TensorMapType::i32, "int4"},
        {Element::e2m1, "e2m1", 4, NumberKind::floating, TensorMapType::i32, "e2m1"},
        {Element::u4, "u4", 4, NumberKind::integer, TensorMapType::i32, "int4 with zero points", true},
        {Element::e2m1x, "e2m1x", 4, NumberKind::floating, TensorMapType::i32, "e2m1", false, true},
        {Element::s4b, "s4b", 4, NumberKind::integer, TensorMapType::i32, "int4"},
        {Element::e4m3p, "e4m3p", 8, NumberKind::floating, TensorMapType::i32, "e4m3"},
        {Element::ue5m3, "ue5m3", 8, NumberKind::floating, TensorMapType::u8},
        {Element::s4i, "s4i", 4, NumberKind::integer, TensorMapType::u8},
        {Element::e2m1r, "e2m1r", 4, NumberKind::floating, TensorMapType::u8},
        {Element::s8b, "s8b", 8, NumberKind::integer, TensorMapType::i32, "int8"},
        {Element::u8, "u8", 8, NumberKind::integer, TensorMapType::i32, "int8 with zero points", true},
    }};
}

#ifdef __CUDACC__  // a table outside of functions would be part of each kernel
constexpr ElementFacts facts(Element element) {
    constexpr ElementTable kElements = element_table();
    return kElements.rows[static_cast<int32_t>(element)];
}
#else  // within the function it would be written anew at each of selection's many calls
inline constexpr ElementTable kElements = element_table();
constexpr const ElementFacts& facts(Element element) { return kElements.rows[static_cast<int32_t>(element)]; }
#endif

constexpr int32_t bits(Element element) { return facts(element).bits; }

/// Weights that are converted come packed: 64 rows by 128 of K are a block, in the order in which threads of a
/// warpgroup convert them in registers (convert/weights.cuh). A tensor map sees lines of 1024 bytes, four or eight a
/// block.
inline constexpr int32_t kPackedRows = 64, kPackedK = 128, kPackedLineBytes = 1024;
constexpr int32_t packed_block_bytes(Element element) { return kPackedRows * kPackedK * bits(element) / 8; }
/// A block lies in units of 16 bytes a lane, warp by warp: 16 rows each. Bytes of a unit that so many rows have.
constexpr int32_t packed_unit_bytes(int32_t rows) { return (rows < kPackedRows ? rows : kPackedRows) / 16 * 512; }
constexpr int32_t packed_lines(Element element) { return packed_block_bytes(element) / kPackedLineBytes; }
/// Their rows are padded to multiples of this, so that every tile has whole blocks.
inline constexpr int32_t kPackedRowsPadded = 128;
constexpr bool is_packed(Element element) { return facts(element).weights != nullptr; }
/// Four bits that lie in rows, as other operands do.
constexpr bool in_rows(Element element) { return bits(element) == 4 && !is_packed(element); }
constexpr bool subtracts_zeros(Element element) { return facts(element).subtracts_zeros; }
constexpr bool folds_exponents(Element element) { return facts(element).folds_exponents; }
/// Whether the copy engine brings an operand as bytes that it unpacks: 16 codes in the first half of each 16 bytes, as
/// tensor cores multiply rows of four bits beside eight (TensorMapType::u4_spread). It counts the bytes of memory,
/// which are half.
constexpr bool unpacked_by_tma(Element element, Element other) { return element == Element::e2m1r && bits(other) == 8; }
/// Codes of a spread line: boxes have so many, lines are whole boxes, and start at multiples of so many bytes.
inline constexpr int32_t kSpreadCodes = 128, kUnpackedAlignment = 32;
/// Blocks along the rows of one matrix.
constexpr int32_t packed_blocks(int32_t rows) { return align_up(rows, kPackedRowsPadded) / kPackedRows; }

/// Bytes of so many elements that follow each other, which are a whole number of them.
template <typename Count>
constexpr Count bytes_of(Element element, Count count) {
    return count * bits(element) / 8;
}

/// So many elements lie in so many bytes.
template <typename Count>
constexpr Count elements_in(Element element, Count bytes) {
    return bytes * 8 / bits(element);
}

/// What holds a sum, or an element of C or D, in a register: FP32 or s32.
template <Element>
struct SelectRegister {
    using Type = float;
};
template <>
struct SelectRegister<Element::s32> {
    using Type = int32_t;
};
template <Element kElement>
using RegisterOf = typename SelectRegister<kElement>::Type;

/// Of a Scaling: all rows, or all of K, share a scale.
inline constexpr int32_t kAll = -1;

/// Of one operand: what its scales are, and how many rows and how much of K share one.
struct Scaling {
    Element type = Element::none;
    int32_t rows = 0, k = 0;

    constexpr bool operator==(const Scaling&) const = default;
    constexpr bool any() const { return type != Element::none; }
    /// A scale for each row, or for each block of rows, of every group along K.
    constexpr bool per_row() const { return any() && rows == 1 && k != kAll; }
    constexpr bool per_block() const { return any() && rows > 1 && k != kAll; }
    /// Multiplied into weights when they are converted; a scale for all of K takes what is left of them.
    constexpr bool in_conversion() const { return type == Element::ue5m3; }
    /// Bytes that the tensor cores multiply products by: exponents, or the E4M3 scales of NVFP4.
    constexpr bool in_instruction() const { return type == Element::ue8m0 || type == Element::e4m3; }
    /// A scale for all of K: sums are scaled when they are complete.
    constexpr bool per_channel() const { return any() && k == kAll; }
};

/// FP32 scales as FP8 models have them: a group along K, and rows of a block.
inline constexpr int32_t kScaleGroupK = 128, kScaleBlockRows = 128;
inline constexpr Scaling kUnscaled = {}, kRowScales = {Element::fp32, 1, kScaleGroupK},
                         kBlockScales = {Element::fp32, kScaleBlockRows, kScaleGroupK},
                         kWholeRowScales = {Element::fp32, 1, kAll};
/// The same of weights, in smaller groups.
inline constexpr Scaling kRowScales64 = {Element::fp32, 1, 64}, kRowScales32 = {Element::fp32, 1, 32};

/// Scales of a byte are in words: four that follow each other along K.
inline constexpr int32_t kScalesPerWord = 4;

/// Exponents of powers of two, as the tensor cores multiply them.
inline constexpr Scaling kExponents128 = {Element::ue8m0, 1, 128}, kExponents32 = {Element::ue8m0, 1, 32};

/// NVFP4's: E4M3, whose sign means nothing.
inline constexpr Scaling kE4m3Scales16 = {Element::e4m3, 1, 16};

/// Scales that are multiplied into weights.
inline constexpr Scaling kConversionScales32 = {Element::ue5m3, 1, 32}, kConversionScales16 = {Element::ue5m3, 1, 16};

/// Words in blocks of so many rows, as they lie in tensor memory: row r of a block is at r % 32 * 4 + r / 32.
inline constexpr int32_t kWordBlockRows = 128;

/// Elements of K that the scales of one word are for.
constexpr int32_t word_k(const Scaling& scaling) { return kScalesPerWord * scaling.k; }

/// Words of a row in a block of so many `k`, where blocks do not share them; else one.
constexpr int32_t words_per_block(const Scaling& scaling, int32_t k) {
    return scaling.in_instruction() && word_k(scaling) < k ? k / word_k(scaling) : 1;
}

/// The group of `group_k` of K that a block of so many `k` is in, counted along K, or the first of its groups.
constexpr int32_t k_group(int32_t group_k, int32_t block, int32_t k) {
    if (group_k == kAll) return 0;
    return group_k < k ? block * (k / group_k) : block / (group_k / k);
}

/// Elements of K that four bytes of scales are for: one of FP32, or a word of four smaller ones.
constexpr int32_t entry_k(const Scaling& scaling) { return bits(scaling.type) == 32 ? scaling.k : word_k(scaling); }

/// The entry of scales that a block of so many `k` is in, counted along K, or the first of its entries.
constexpr int32_t scale_entry(const Scaling& scaling, int32_t block, int32_t k) {
    return k_group(entry_k(scaling), block, k);
}

/// Which dimension of an operand lies contiguously.
enum class Major : int32_t { k, mn };

struct Operand {
    Element element = Element::none;
    Major major = Major::k;
    Scaling scaling = {};
    int32_t zeros_k = 0;  // of K, for which there is a word that says what becomes of a row's codes (convert/zeros.cuh)
    // 1: a row's scales are near enough to each other for sums that count in units of one after the other.
    int32_t near_scales = 0;

    constexpr bool operator==(const Operand&) const = default;
    constexpr bool mn_major() const { return major == Major::mn; }
    constexpr bool packed() const { return is_packed(element); }
    constexpr bool has_zeros() const { return zeros_k != 0; }
};

}  // namespace deep_gemm
