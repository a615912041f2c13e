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

/// Where the word of the first of the thread's two rows lies, among one for each of the tile's rows.
DG_DEVICE uint32_t thread_row_word(uint32_t words, int32_t first_row) {
    return words + (first_row + Fragment16x8::warp_row(threadIdx.x / 32) + Fragment16x8::row(threadIdx.x % 32)) * 4;
}

/// What becomes of a thread's words of a stage: as the pair of elements says. `first_row` is the first of the 64 rows,
/// counted within the tile.
template <GemmConfig c, Element = c.rows_operand().element>
struct Conversion {
    DG_DEVICE Conversion(const Smem<c>&, int32_t, int32_t) {}

    DG_DEVICE void run(uint32_t word, int32_t, uint32_t& first, uint32_t& second) const {
        Convert<c.rows_operand().element, c.cols_operand().element>::run(word, first, second);
    }
};

/// The same less zero points: of the thread's two rows, in each group of K.
template <GemmConfig c>
struct Conversion<c, Element::u4> {
    static constexpr int32_t kGroups = zero_groups(c), kStepsPerGroup = kPackedK / 32 / kGroups;
    using Subtract = SubtractZero<c.cols_operand().element>;

    uint32_t words[kGroups][2];

    DG_DEVICE Conversion(const Smem<c>& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = thread_row_word(smem.zeros(stage), first_row);
#pragma unroll
        for (int32_t i = 0; i < kGroups * 2; ++i)
            words[i / 2][i % 2] =
                ptx::load_shared_int(mine + (i / 2 * c.tile.rows + i % 2 * Fragment16x8::kHalfRows) * 4);
    }

    DG_DEVICE void run(uint32_t word, int32_t step, uint32_t& first, uint32_t& second) const {
        const uint32_t (&zeros)[2] = words[step / kStepsPerGroup];
        first = Subtract(zeros[0]).run(lower_codes(word));
        second = Subtract(zeros[1]).run(lower_codes(word >> 4));
    }
};

/// The same with the exponents of the thread's two rows, one for each step of K.
template <GemmConfig c>
struct Conversion<c, Element::e2m1x> {
    uint32_t scales[2];

    DG_DEVICE Conversion(const Smem<c>& smem, int32_t stage, int32_t first_row) {
        const uint32_t mine = thread_row_word(smem.row_scales(stage), first_row);
#pragma unroll
        for (int32_t i = 0; i < 2; ++i)
            scales[i] = static_cast<uint32_t>(ptx::load_shared_int(mine + i * Fragment16x8::kHalfRows * 4));
    }

    DG_DEVICE void run(uint32_t word, int32_t step, uint32_t& first, uint32_t& second) const {
        convert_with_exponents(word, MagnitudeTable(scales[0], step), MagnitudeTable(scales[1], step), first, second);
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
    static constexpr int32_t kSteps = kPackedK / 32;
    uint32_t words[kSteps][4];

    /// A block of 4096 bytes: two units of 16 bytes a thread, each of two K steps.
    DG_DEVICE void load(uint32_t block, const Conversion<c>& conversion) {
        constexpr int32_t kUnitBytes = kPackedBlockBytes / 2;
        const uint32_t mine = block + threadIdx.x % 128 * 16;
#pragma unroll
        for (int32_t i = 0; i < 2; ++i) {
            const int4 unit = ptx::load_shared_int_x4(mine + i * kUnitBytes);
            convert(conversion, unit.x, 2 * i, 0), convert(conversion, unit.y, 2 * i, 2);
            convert(conversion, unit.z, 2 * i + 1, 0), convert(conversion, unit.w, 2 * i + 1, 2);
        }
    }

    /// wgmma may read them until here.
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(words[i / 4][i % 4]);
    }

private:
    DG_DEVICE void convert(const Conversion<c>& conversion, int32_t word, int32_t step, int32_t place) {
        conversion.run(static_cast<uint32_t>(word), step, words[step][place], words[step][place + 1]);
    }
};

}  // namespace deep_gemm
