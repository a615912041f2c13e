// Rows of which the tensor cores find nothing to multiply in shared memory: packed weights, which each thread reads,
// converts and hands over in registers.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/mma/packed_rows.cuh>
#include <deep_gemm/ptx/wgmma.cuh>

namespace deep_gemm {

/// What a thread holds of 64 rows of a K block, from its conversion until the tensor cores have read it. Nothing, where
/// rows are multiplied where they lie.
template <Constant<GemmConfig> c, bool = c.rows_operand().packed()>
struct Fragments {
    DG_DEVICE void load(uint32_t, const Conversion<c>&, int32_t = 0) {}
    DG_DEVICE void pin() {}
};

template <Constant<GemmConfig> c>
struct Fragments<c, true> {
    static constexpr int32_t kSteps = block_steps(c);
    uint32_t words[kSteps][4];

    /// `part`: of a block that lies in several stages.
    DG_DEVICE void load(uint32_t block, const Conversion<c>& conversion, int32_t part = 0) {
        using Units = PackedUnits<c>;
        const uint32_t mine = block + threadIdx.x % 128 * Units::kThreadBytes;
#pragma unroll
        for (int32_t i = 0; i < Units::kCount; ++i) {
            const int4 unit = ptx::load_shared_int_x4(mine + i * Units::kBytes);
            const int32_t of[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
            for (int32_t j = 0; j < Units::kSteps; ++j)
                convert_step(conversion, of + j * Units::kStepWords, i * Units::kSteps + j, part);
        }
    }

    /// wgmma may read them until here.
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(words[i / 4][i % 4]);
    }

private:
    DG_DEVICE void convert_step(const Conversion<c>& conversion, const int32_t* of, int32_t step, int32_t part) {
        conversion.run(of, part * kSteps + step, words[step]);
    }
};

}  // namespace deep_gemm
