// Copy lines that may start anywhere to multiples of 16 bytes, where the copy engine can read them.
//
// A lane writes 16 bytes, which it gathers in the largest units that every line is made of; neighbours' come from the
// same cache lines.
#pragma once

#include <deep_gemm/kernels/copy_lines_params.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

template <int32_t kBytes>
struct CopyUnit;
template <>
struct CopyUnit<1> {
    using Type = uint8_t;
};
template <>
struct CopyUnit<2> {
    using Type = uint16_t;
};
template <>
struct CopyUnit<4> {
    using Type = uint32_t;
};
template <>
struct CopyUnit<8> {
    using Type = uint64_t;
};

template <Constant<CopyLinesConfig> kConfig>
DG_DEVICE void run_copy_lines(const CopyLinesParams& params) {
    constexpr int32_t kUnit = kConfig.unit_bytes;
    using Unit = typename CopyUnit<kUnit>::Type;
    const uint32_t warp = blockIdx.x * kCopyLinesWarps + threadIdx.x / 32;
    ptx::wait_for_previous_grid();
    if (warp >= params.warps) return;
    const uint32_t piece = warp % params.pieces, line = warp / params.pieces, group = line / params.lines;
    const int64_t at = static_cast<int64_t>(piece) * kCopyLinesPiece + threadIdx.x % 32 * 16;
    const int64_t left = params.line_bytes - at;
    const uint8_t* source =
        params.source + group * params.source_group_stride + (line - group * params.lines) * params.source_stride + at;
    uint64_t halves[2] = {};
#pragma unroll
    for (int32_t i = 0; i < 16; i += kUnit)
        if (i < left) halves[i / 8] |= static_cast<uint64_t>(*reinterpret_cast<const Unit*>(source + i)) << (i % 8 * 8);
    if (left > 0)
        *reinterpret_cast<ulonglong2*>(params.target + line * params.target_stride + at) =
            make_ulonglong2(halves[0], halves[1]);
}

}  // namespace deep_gemm
