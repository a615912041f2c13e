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
    static constexpr int32_t kSteps = kPackedK / 32;
    uint32_t words[kSteps][4];

    /// A block of 4096 bytes: two units of 16 bytes a thread, each of two K steps.
    DG_DEVICE void load(uint32_t block) {
        constexpr int32_t kUnitBytes = kPackedBlockBytes / 2;
        const uint32_t mine = block + threadIdx.x % 128 * 16;
#pragma unroll
        for (int32_t i = 0; i < 2; ++i) {
            const int4 unit = ptx::load_shared_int_x4(mine + i * kUnitBytes);
            convert(unit.x, 2 * i, 0), convert(unit.y, 2 * i, 2);
            convert(unit.z, 2 * i + 1, 0), convert(unit.w, 2 * i + 1, 2);
        }
    }

    /// wgmma may read them until here.
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(words[i / 4][i % 4]);
    }

private:
    DG_DEVICE void convert(int32_t word, int32_t step, int32_t place) {
        Convert<c.rows_operand().element, c.cols_operand().element>::run(static_cast<uint32_t>(word),
                                                                         words[step][place], words[step][place + 1]);
    }
};

}  // namespace deep_gemm
