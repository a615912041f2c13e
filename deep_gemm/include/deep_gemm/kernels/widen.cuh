// E4M3 to FP16 ahead of a product, for tensor cores without E4M3, where many warps would convert the same.
//
// Of each 16 of K, those come first that mma.sync takes from the first words of threads which hold four neighbours each
// (mma/sm80/widened.cuh): the product's other operand is converted that way.
#pragma once

#include <deep_gemm/convert/bytes.cuh>
#include <deep_gemm/kernels/widen_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// Two threads read the same 16 bytes, and write 16 bytes each.
DG_DEVICE void run_widen(const WidenParams& params) {
    using Way = Convert<Element::e4m3, Element::fp16>;
    ptx::wait_for_previous_grid();
    const uint32_t line = blockIdx.x / params.row_blocks, group = line / params.rows, row = line - group * params.rows;
    if (params.row_counts != nullptr && static_cast<int32_t>(row) >= params.row_counts[group]) return;
    const int32_t half = threadIdx.x % 2,
                  first = (blockIdx.x - line * params.row_blocks) * kWidenBlockK + threadIdx.x / 2 * kWidenUnitK;
    const uint8_t* const source = params.source + group * params.source_group_stride + row * params.source_stride;
    uint8_t* const target = params.target + line * params.target_stride + half * sizeof(int4);
#pragma unroll
    for (int32_t i = 0; i < kWidenUnits; ++i) {
        const int32_t k = first + i * (kWidenThreads / 2 * kWidenUnitK);
        if (k >= params.k) return;
        const int4 four = *reinterpret_cast<const int4*>(source + k);
        const auto widened = [&](int32_t word) {
            uint32_t halves[2];
            Way::run(static_cast<uint32_t>(word), halves[0], halves[1]);
            return static_cast<int32_t>(ptx::multiply_f16x2(half == 0 ? halves[0] : halves[1], in_both(Way::kAhead)));
        };
        *reinterpret_cast<int4*>(target + k * 2) =
            make_int4(widened(four.x), widened(four.y), widened(four.z), widened(four.w));
    }
}

}  // namespace deep_gemm
