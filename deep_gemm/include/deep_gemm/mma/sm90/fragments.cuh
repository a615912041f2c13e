// Rows of which the tensor cores find nothing to multiply in shared memory: packed weights, which each thread reads,
// converts and hands over in registers.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

namespace deep_gemm {

/// What a thread holds of 64 rows of a K block, from its conversion until the tensor cores have read it. Nothing, where
/// rows are multiplied where they lie.
template <GemmConfig c, bool = c.rows_operand().packed()>
struct Fragments {
    DG_DEVICE void load(uint32_t) {}
    DG_DEVICE void pin() {}
};

template <GemmConfig c>
struct Fragments<c, true> {
    static constexpr int32_t kSteps = row_bytes(c, c.cols_operand()) / 32;  // of wgmma: 32 bytes of K of both operands
    uint32_t words[kSteps][4];

    /// A block: units of 16 bytes a thread, 2048 bytes apart, each for as many K steps.
    DG_DEVICE void load(uint32_t block) {
        constexpr int32_t kUnitBytes = 128 * 16, kUnits = packed_block_bytes(c.rows_operand().element) / kUnitBytes,
                          kStepWords = 4 * kUnits / kSteps;
        const uint32_t mine = block + threadIdx.x % 128 * 16;
#pragma unroll
        for (int32_t i = 0; i < kUnits; ++i) {
            const int4 unit = ptx::load_shared_int_x4(mine + i * kUnitBytes);
            const int32_t of[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
            for (int32_t j = 0; j < 4; j += kStepWords) convert(of + j, words[(4 * i + j) / kStepWords]);
        }
    }

    /// wgmma may read them until here.
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(words[i / 4][i % 4]);
    }

private:
    static DG_DEVICE void convert(const int32_t* of, uint32_t (&step)[4]) {
        using Conversion = Convert<c.rows_operand().element, c.cols_operand().element>;
        if constexpr (bits(c.cols_operand().element) == 16) {
            Conversion::run(static_cast<uint32_t>(of[0]), step);
        } else {
            Conversion::run(static_cast<uint32_t>(of[0]), step[0], step[1]);
            Conversion::run(static_cast<uint32_t>(of[1]), step[2], step[3]);
        }
    }
};

}  // namespace deep_gemm
