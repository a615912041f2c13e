// Packed weights on the rows' side of a matrix instruction, as each thread reads and converts them: what wgmma and
// mma.sync, whose A operands have the same map of threads, share.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/convert/exponents.cuh>
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/convert/zeros.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// K that a warp converts of a stage: a block's, or that of two which follow each other, where the other operand has
/// four bits as well; or half a block's, where a stage has no more.
constexpr int32_t packed_k(const GemmConfig& c) {
    const int32_t most = bits(c.cols_operand().element) == 4 ? 2 * kPackedK : kPackedK;
    return c.tile.k < most ? c.tile.k : most;
}

/// Steps along it: the instruction multiplies 32 bytes of the other operand's K.
constexpr int32_t block_steps(const GemmConfig& c) { return bytes_of(c.cols_operand().element, packed_k(c)) / 32; }

/// Words that a row has in what is converted together, of which each is for so much K.
constexpr int32_t block_words(const GemmConfig& c, int32_t k) {
    const int32_t converted = packed_k(c) < kPackedK ? packed_k(c) : kPackedK;
    return k == kAll || k > converted ? 1 : converted / k;
}

/// A block lies in units of 16 bytes a thread of four warps, each for as many steps: warp by warp, 16 rows each.
template <Constant<GemmConfig> c>
struct PackedUnits {
    static constexpr int32_t kThreadBytes = 16, kWarpBytes = 32 * kThreadBytes, kBytes = packed_unit_bytes(kPackedRows),
                             kCount = packed_k(c) * packed_block_bytes(c.rows_operand().element) / kPackedK / kBytes,
                             kSteps = block_steps(c) / kCount, kStepWords = kThreadBytes / 4 / kSteps;
};

/// What becomes of a thread's words of a block: as the pair of elements says. Of what its rows have beside codes,
/// `Smem` has zeros(stage) and row_scales(stage), a word for each of the tile's rows and then the next ones along K,
/// and says which is the thread's of the rows that begin at `first_row`.
template <Constant<GemmConfig> c, Element = c.rows_operand().element, bool = c.row_scales().in_conversion()>
struct Conversion {
    using Way = Convert<c.rows_operand().element, c.cols_operand().element>;

    DG_DEVICE Conversion() {}
    template <typename Smem>
    DG_DEVICE Conversion(const Smem&, int32_t, int32_t) {}

    /// A step of a block's K: `to` is what a matrix instruction's A operand wants of a thread.
    DG_DEVICE void run(const int32_t* of, int32_t, uint32_t (&to)[4]) const {
        if constexpr (c.rows_operand().element == Element::e2m1 && bits(c.cols_operand().element) == 16) {
            Way::run(static_cast<uint32_t>(of[0]), to, Way::kOne, Way::kOne);
        } else if constexpr (c.rows_operand().element == Element::s4b) {
            Way::run(static_cast<uint32_t>(of[0]), to);
        } else if constexpr (bits(c.cols_operand().element) == 4) {
            Way::run(static_cast<uint32_t>(of[0]), static_cast<uint32_t>(of[1]), to[0], to[1]);
            Way::run(static_cast<uint32_t>(of[2]), static_cast<uint32_t>(of[3]), to[2], to[3]);
        } else {
            Way::run(static_cast<uint32_t>(of[0]), to[0], to[1]);
            Way::run(static_cast<uint32_t>(of[1]), to[2], to[3]);
        }
    }
};

/// The same less zero points: of the thread's two rows, in each group of K.
template <Constant<GemmConfig> c>
struct ConversionWithZeros {
    static constexpr Element kFrom = c.rows_operand().element;
    static constexpr Element kTo = c.cols_operand().element;
    static constexpr int32_t kGroups = block_words(c, c.rows_operand().zeros_k),
                             kStepsPerGroup = block_steps(c) / kGroups;

    uint32_t words[kGroups][2];

    DG_DEVICE ConversionWithZeros() {}
    template <typename Smem>
    DG_DEVICE ConversionWithZeros(const Smem& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = Smem::thread_row_word(smem.zeros(stage), first_row);
#pragma unroll
        for (int32_t i = 0; i < kGroups * 2; ++i)
            words[i / 2][i % 2] =
                ptx::load_shared_int(mine + (i / 2 * c.tile.rows + i % 2 * Fragment16x8::kHalfRows) * 4);
    }

    DG_DEVICE void run(const int32_t* of, int32_t step, uint32_t (&to)[4]) const {
        const uint32_t (&zeros)[2] = words[step % block_steps(c) / kStepsPerGroup];
        if constexpr (bits(kTo) == 16) {
            using Way = Convert<kFrom, kTo>;
            const uint32_t first = Way::zeros(zeros[0]), second = Way::zeros(zeros[1]);
            if constexpr (bits(kFrom) == 8) {
                Way::run(static_cast<uint32_t>(of[0]), to[0], to[1], first, second);
                Way::run(static_cast<uint32_t>(of[1]), to[2], to[3], first, second);
            } else {
                Way::run(static_cast<uint32_t>(of[0]), to, first, second);
            }
        } else {
            using Subtract = SubtractZero<kTo>;
#pragma unroll
            for (int32_t i = 0; i < 2; ++i) {
                const auto word = static_cast<uint32_t>(of[i]);
                to[2 * i] = Subtract(zeros[0]).run(lower_codes(word));
                to[2 * i + 1] = Subtract(zeros[1]).run(lower_codes(word >> 4));
            }
        }
    }
};

template <Constant<GemmConfig> c, Element kFrom>
    requires(subtracts_zeros(kFrom))
struct Conversion<c, kFrom, false> : ConversionWithZeros<c> {
    using ConversionWithZeros<c>::ConversionWithZeros;
};

/// The same with the exponents of the thread's two rows, one for each step of K.
template <Constant<GemmConfig> c>
struct Conversion<c, Element::e2m1x, false> {
    uint32_t scales[2];

    DG_DEVICE Conversion() {}
    template <typename Smem>
    DG_DEVICE Conversion(const Smem& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = Smem::thread_row_word(smem.row_scales(stage), first_row);
#pragma unroll
        for (int32_t i = 0; i < 2; ++i)
            scales[i] = static_cast<uint32_t>(ptx::load_shared_int(mine + i * Fragment16x8::kHalfRows * 4));
    }

    DG_DEVICE void run(const int32_t* of, int32_t step, uint32_t (&to)[4]) const {
        const MagnitudeTable first(scales[0], step), second(scales[1], step);
#pragma unroll
        for (int32_t i = 0; i < 2; ++i)
            convert_with_exponents(static_cast<uint32_t>(of[i]), first, second, to[2 * i], to[2 * i + 1]);
    }
};

/// To 16 bits, times the scales of the thread's two rows: words of four along K.
template <Constant<GemmConfig> c>
struct Conversion<c, Element::e2m1, true> {
    using Way = Convert<Element::e2m1, c.cols_operand().element>;
    static constexpr int32_t kWords = block_words(c, entry_k(c.row_scales())), kStepK = 16;

    uint32_t row[kWords], next_row[kWords];

    DG_DEVICE Conversion() {}
    template <typename Smem>
    DG_DEVICE Conversion(const Smem& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = Smem::thread_row_word(smem.row_scales(stage), first_row);
#pragma unroll
        for (int32_t i = 0; i < kWords; ++i) {
            const uint32_t word = mine + i * c.tile.rows * 4;
            row[i] = static_cast<uint32_t>(ptx::load_shared_int(word));
            next_row[i] = static_cast<uint32_t>(ptx::load_shared_int(word + Fragment16x8::kHalfRows * 4));
        }
    }

    DG_DEVICE void run(const int32_t* of, int32_t step, uint32_t (&to)[4]) const {
        const int32_t group = step * kStepK / c.row_scales().k, byte = group % kScalesPerWord;
        const uint32_t both =
            Way::scales(__byte_perm(row[group / kScalesPerWord % kWords], next_row[group / kScalesPerWord % kWords],
                                    (4 + byte) << 12 | byte << 4));
        Way::run(static_cast<uint32_t>(of[0]), to, __byte_perm(both, both, 0x1010), __byte_perm(both, both, 0x3232));
    }
};

/// What sums are multiplied by of a stored row scale: all of it, or what is left beside exponents of 32 of K.
template <Constant<GemmConfig> c>
DG_DEVICE float row_scale(uint32_t address) {
    if constexpr (folds_exponents(c.rows_operand().element))
        return __int_as_float(ptx::load_shared_int(address) & static_cast<int32_t>(kScaleWithoutFields));
    else
        return ptx::load_shared(address);
}

}  // namespace deep_gemm
