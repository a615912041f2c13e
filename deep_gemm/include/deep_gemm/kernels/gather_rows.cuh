// Copies each token's row to the rows that its experts have of it, and its scales where it has some. A warp has a row.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/routing/config.cuh>

namespace deep_gemm {

template <int32_t kBytes>
struct PieceOf;
template <>
struct PieceOf<16> {
    using Type = uint4;
};
template <>
struct PieceOf<4> {
    using Type = uint32_t;
};
template <>
struct PieceOf<2> {
    using Type = uint16_t;
};
template <>
struct PieceOf<1> {
    using Type = uint8_t;
};

template <Constant<GatherConfig> c>
DG_DEVICE void run_gather_rows(const GatherParams& params) {
    using Piece = typename PieceOf<c.piece_bytes>::Type;
    const int32_t row = static_cast<int32_t>(blockIdx.x * kMoveWarps + threadIdx.x / 32),
                  lane = static_cast<int32_t>(threadIdx.x % 32);
    ptx::wait_for_previous_grid();
    if (row >= params.rows) return;
    const int32_t source = ptx::load_global_int(params.source + row);
    if (source < 0 && !c.clear) return;
    const int64_t token = source < 0 ? 0 : source / params.choices;
    const Piece* const from = reinterpret_cast<const Piece*>(params.x + token * params.x_row_stride);
    Piece* const to = reinterpret_cast<Piece*>(params.out + row * params.out_row_stride);
#pragma unroll 4
    for (int32_t i = lane; i < params.pieces; i += 32) to[i] = source < 0 ? Piece{} : from[i];
    if constexpr (c.scales) {
        const int32_t group = row / params.rows_of_group, in_group = row - group * params.rows_of_group;
        const uint32_t* const scales = params.scales + token * params.s_row_stride;
        uint32_t* const out =
            params.out_scales + group * params.out_s_group_stride + in_group * params.out_s_row_stride;
        for (int32_t i = lane; i < params.scale_count; i += 32)
            out[i * params.out_s_k_stride] = source < 0 ? 0 : scales[i * params.s_k_stride];
    }
}

}  // namespace deep_gemm
