// A part of a sum on its way to who adds it up: one warp's accumulators in shared memory. Four registers of a lane lie
// together, behind them those of the next lane.
#pragma once

#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// Where a lane's first four registers lie in a part; how far from there the next ones lie.
DG_DEVICE uint32_t lane_of_part(const uint32_t& part, const int32_t& lane) { return part + lane * 16; }
constexpr int32_t part_offset(int32_t index) { return index * 32 * 4; }

/// Into this CTA's shared memory.
template <Constant<GemmConfig> c>
DG_DEVICE void put_part(const Sums<c>& total, uint32_t target) {
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; i += 4)
        ptx::store_shared_x4(target + part_offset(i), total[i], total[i + 1], total[i + 2], total[i + 3]);
}

/// Into another CTA's, whose barrier counts the bytes.
template <Constant<GemmConfig> c>
DG_DEVICE void send_part(const Sums<c>& total, uint32_t target, uint32_t barrier) {
#pragma unroll
    for (int32_t i = 0; i < kAccumulators<c>; i += 4)
        ptx::store_cluster_async(target + part_offset(i), total[i], total[i + 1], total[i + 2], total[i + 3], barrier);
}

/// Four registers of a part.
template <Constant<GemmConfig> c>
DG_DEVICE auto load_part(uint32_t address) {
    if constexpr (c.sum() == Element::s32)
        return ptx::load_shared_int_x4(address);
    else
        return ptx::load_shared_x4(address);
}

}  // namespace deep_gemm
