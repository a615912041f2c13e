// Rows of which the tensor cores find nothing to multiply in shared memory: packed weights, which each thread reads,
// converts and hands over in registers.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/convert/exponents.cuh>
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/convert/zeros.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

namespace deep_gemm {

/// Steps along K that a stage has beside packed rows: wgmma multiplies 32 bytes of K.
constexpr int32_t wgmma_steps(const GemmConfig& c) { return row_bytes(c, c.cols_operand()) / 32; }

/// Where the word of the first of the thread's two rows lies, among one for each of the tile's rows.
DG_DEVICE uint32_t thread_row_word(uint32_t words, int32_t first_row) {
    return words + (first_row + Fragment16x8::warp_row(threadIdx.x / 32) + Fragment16x8::row(threadIdx.x % 32)) * 4;
}

/// What becomes of a thread's words of a stage: as the pair of elements says. `first_row` is the first of the 64 rows,
/// counted within the tile.
template <GemmConfig c, Element = c.rows_operand().element, bool = c.row_scales().in_conversion()>
struct Conversion {
    using Way = Convert<c.rows_operand().element, c.cols_operand().element>;

    DG_DEVICE Conversion(const Smem<c>&, int32_t, int32_t) {}

    /// A step of K's: `to` is what wgmma's A operand wants of a thread.
    DG_DEVICE void run(const int32_t* of, int32_t, uint32_t (&to)[4]) const {
        if constexpr (c.rows_operand().element == Element::e2m1 && bits(c.cols_operand().element) == 16) {
            Way::run(static_cast<uint32_t>(of[0]), to, Way::kOne, Way::kOne);
        } else if constexpr (c.rows_operand().element == Element::s4b) {
            Way::run(static_cast<uint32_t>(of[0]), to);
        } else {
            Way::run(static_cast<uint32_t>(of[0]), to[0], to[1]);
            Way::run(static_cast<uint32_t>(of[1]), to[2], to[3]);
        }
    }
};

/// The same less zero points: of the thread's two rows, in each group of K.
template <GemmConfig c>
struct Conversion<c, Element::u4, false> {
    static constexpr Element kTo = c.cols_operand().element;
    static constexpr int32_t kGroups = zero_groups(c), kStepsPerGroup = wgmma_steps(c) / kGroups;

    uint32_t words[kGroups][2];

    DG_DEVICE Conversion(const Smem<c>& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = thread_row_word(smem.zeros(stage), first_row);
#pragma unroll
        for (int32_t i = 0; i < kGroups * 2; ++i)
            words[i / 2][i % 2] =
                ptx::load_shared_int(mine + (i / 2 * c.tile.rows + i % 2 * Fragment16x8::kHalfRows) * 4);
    }

    DG_DEVICE void run(const int32_t* of, int32_t step, uint32_t (&to)[4]) const {
        const uint32_t (&zeros)[2] = words[step / kStepsPerGroup];
        if constexpr (bits(kTo) == 16) {
            using Way = Convert<Element::u4, kTo>;
            Way::run(static_cast<uint32_t>(of[0]), to, Way::zeros(zeros[0]), Way::zeros(zeros[1]));
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

/// The same with the exponents of the thread's two rows, one for each step of K.
template <GemmConfig c>
struct Conversion<c, Element::e2m1x, false> {
    uint32_t scales[2];

    DG_DEVICE Conversion(const Smem<c>& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = thread_row_word(smem.row_scales(stage), first_row);
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
template <GemmConfig c>
struct Conversion<c, Element::e2m1, true> {
    using Way = Convert<Element::e2m1, c.cols_operand().element>;
    static constexpr int32_t kWords = scale_entries(c), kStepK = 16;

    uint32_t row[kWords], next_row[kWords];

    DG_DEVICE Conversion(const Smem<c>& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = thread_row_word(smem.row_scales(stage), first_row);
#pragma unroll
        for (int32_t i = 0; i < kWords; ++i) {
            const uint32_t word = mine + i * c.tile.rows * 4;
            row[i] = static_cast<uint32_t>(ptx::load_shared_int(word));
            next_row[i] = static_cast<uint32_t>(ptx::load_shared_int(word + Fragment16x8::kHalfRows * 4));
        }
    }

    DG_DEVICE void run(const int32_t* of, int32_t step, uint32_t (&to)[4]) const {
        const int32_t group = step * kStepK / c.row_scales().k, byte = group % kExponentsPerWord;
        const uint32_t both =
            Way::scales(__byte_perm(row[group / kExponentsPerWord], next_row[group / kExponentsPerWord],
                                    (4 + byte) << 12 | byte << 4));
        Way::run(static_cast<uint32_t>(of[0]), to, __byte_perm(both, both, 0x1010), __byte_perm(both, both, 0x3232));
    }
};

/// What a thread holds of 64 rows of a K block, from its conversion until the tensor cores have read it. Nothing, where
/// rows are multiplied where they lie.
template <GemmConfig c, bool = c.rows_operand().packed()>
struct Fragments {
    DG_DEVICE void load(uint32_t, const Conversion<c>&) {}
    DG_DEVICE void pin() {}
};

template <GemmConfig c>
struct Fragments<c, true> {
    static constexpr int32_t kSteps = wgmma_steps(c);
    uint32_t words[kSteps][4];

    /// A block: units of 16 bytes a thread, 2048 bytes apart, each for as many K steps.
    DG_DEVICE void load(uint32_t block, const Conversion<c>& conversion) {
        constexpr int32_t kUnitBytes = 128 * 16, kUnits = packed_block_bytes(c.rows_operand().element) / kUnitBytes,
                          kStepWords = 4 * kUnits / kSteps;
        const uint32_t mine = block + threadIdx.x % 128 * 16;
#pragma unroll
        for (int32_t i = 0; i < kUnits; ++i) {
            const int4 unit = ptx::load_shared_int_x4(mine + i * kUnitBytes);
            const int32_t of[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
            for (int32_t j = 0; j < 4; j += kStepWords) convert_step(conversion, of + j, (4 * i + j) / kStepWords);
        }
    }

    /// wgmma may read them until here.
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(words[i / 4][i % 4]);
    }

private:
    DG_DEVICE void convert_step(const Conversion<c>& conversion, const int32_t* of, int32_t step) {
        conversion.run(of, step, words[step]);
    }
};

}  // namespace deep_gemm
