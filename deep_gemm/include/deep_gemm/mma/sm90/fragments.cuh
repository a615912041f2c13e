// Rows of which the tensor cores find nothing to multiply in shared memory: packed weights, which each thread reads,
// converts and hands over in registers.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

namespace deep_gemm {

/// The scales of a thread's two rows that are multiplied into a K block of weights: words of four along K. Nothing,
/// where there are none.
template <GemmConfig c, bool = c.row_scales().in_conversion()>
struct ConversionScales {
    DG_DEVICE void load(uint32_t) {}
};
template <GemmConfig c>
struct ConversionScales<c, true> {
    static constexpr int32_t kWords = scale_entries(c);
    uint32_t row[kWords], next_row[kWords];

    /// `address`: of the first row's first word.
    DG_DEVICE void load(uint32_t address) {
#pragma unroll
        for (int32_t i = 0; i < kWords; ++i) {
            const uint32_t mine = address + i * c.tile.rows * 4;
            row[i] = static_cast<uint32_t>(ptx::load_shared_int(mine));
            next_row[i] = static_cast<uint32_t>(ptx::load_shared_int(mine + Fragment16x8::kHalfRows * 4));
        }
    }
};

/// What a thread holds of 64 rows of a K block, from its conversion until the tensor cores have read it. Nothing, where
/// rows are multiplied where they lie.
template <GemmConfig c, bool = c.rows_operand().packed()>
struct Fragments {
    DG_DEVICE void load(uint32_t, const ConversionScales<c>&) {}
    DG_DEVICE void pin() {}
};

template <GemmConfig c>
struct Fragments<c, true> {
    static constexpr int32_t kSteps = row_bytes(c, c.cols_operand()) / 32;  // of wgmma: 32 bytes of K of both operands
    uint32_t words[kSteps][4];

    /// A block: units of 16 bytes a thread, 2048 bytes apart, each for as many K steps.
    DG_DEVICE void load(uint32_t block, const ConversionScales<c>& scales) {
        constexpr int32_t kUnitBytes = 128 * 16, kUnits = packed_block_bytes(c.rows_operand().element) / kUnitBytes,
                          kStepWords = 4 * kUnits / kSteps;
        const uint32_t mine = block + threadIdx.x % 128 * 16;
#pragma unroll
        for (int32_t i = 0; i < kUnits; ++i) {
            const int4 unit = ptx::load_shared_int_x4(mine + i * kUnitBytes);
            const int32_t of[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
            for (int32_t j = 0; j < 4; j += kStepWords) convert(of + j, (4 * i + j) / kStepWords, scales);
        }
    }

    /// wgmma may read them until here.
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(words[i / 4][i % 4]);
    }

private:
    using Conversion = Convert<c.rows_operand().element, c.cols_operand().element>;

    DG_DEVICE void convert(const int32_t* of, int32_t step, const ConversionScales<c>& scales) {
        uint32_t (&to)[4] = words[step];
        const auto word = static_cast<uint32_t>(of[0]);
        if constexpr (c.row_scales().in_conversion()) {
            const int32_t group = step * (kPackedK / kSteps) / c.row_scales().k, byte = group % kExponentsPerWord;
            const uint32_t both = Conversion::scales(__byte_perm(scales.row[group / kExponentsPerWord],
                                                                 scales.next_row[group / kExponentsPerWord],
                                                                 (4 + byte) << 12 | byte << 4));
            Conversion::run(word, to, __byte_perm(both, both, 0x1010), __byte_perm(both, both, 0x3232));
        } else if constexpr (c.rows_operand().element == Element::e2m1 && bits(c.cols_operand().element) == 16) {
            Conversion::run(word, to, Conversion::kOne, Conversion::kOne);
        } else if constexpr (c.rows_operand().element == Element::s4b) {
            Conversion::run(word, to);
        } else {
            Conversion::run(word, to[0], to[1]);
            Conversion::run(static_cast<uint32_t>(of[1]), to[2], to[3]);
        }
    }
};

}  // namespace deep_gemm
