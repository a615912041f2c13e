// Adding up the sums of CTAs that split K: each owns some chunks of the tile, and is sent those by the others.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/cluster.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/tile/cluster_position.cuh>

namespace deep_gemm::sm100 {

/// The bytes of all parts come asynchronously. One thread, before others may send.
template <Constant<GemmConfig> c>
DG_DEVICE void expect_parts(const Smem<c>& smem) {
    constexpr int32_t kChunks = warp_chunks(c), kPartBytes = part_bytes(c);
    const int32_t own = (kChunks - ClusterPosition<c>().k + c.cluster.k - 1) / c.cluster.k;
    const uint32_t bytes = (c.cluster.k - 1) * own * kPartBytes;
    for (int32_t warp = 0; warp < store_warps(c); ++warp) {
        ptx::barrier_init(smem.parts_barrier(warp), 1);
        ptx::barrier_arrive_expect(smem.parts_barrier(warp), bytes);
    }
}

template <Constant<GemmConfig> c>
class Parts {
public:
    DG_DEVICE explicit Parts(const Smem<c>& smem) : smem_(smem), warp_(threadIdx.x / 32) {}

    DG_DEVICE bool owns(int32_t chunk) const { return chunk % c.cluster.k == position_.k; }

    /// A thread's values of a chunk to its owner: units of four, those of all lanes side by side.
    template <typename Value, int32_t kCols>
    DG_DEVICE void send(const Value (&values)[kCols], int32_t chunk) const {
        const int32_t owner = chunk % c.cluster.k, rank = position_.rank(position_.row, position_.col, owner);
        const uint32_t part = ptx::map_to_cta(place(position_.k - (position_.k > owner), chunk), rank),
                       barrier = ptx::map_to_cta(smem_.parts_barrier(warp_), rank);
#pragma unroll
        for (int32_t i = 0; i < kCols; i += 4)
            ptx::store_cluster_async(part + i * kUnitStep, values[i], values[i + 1], values[i + 2], values[i + 3],
                                     barrier);
    }

    /// Adds what the others have sent, in the order of their ranks, the own sums in their turn.
    template <typename Value, int32_t kCols>
    DG_DEVICE void add(Value (&values)[kCols], int32_t chunk) const {
        using Four = decltype(load_four(0, Value{}));
        ptx::barrier_wait(smem_.parts_barrier(warp_), 0);
#pragma unroll
        for (int32_t i = 0; i < kCols; i += 4) {
            const Four own{values[i], values[i + 1], values[i + 2], values[i + 3]};
            Four sum{0, 0, 0, 0};
#pragma unroll
            for (int32_t k = 0; k < c.cluster.k; ++k) {
                Four more = own;
                if (k != position_.k) more = load_four(place(k - (k > position_.k), chunk) + i * kUnitStep, Value{});
                sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
            }
            values[i] = sum.x, values[i + 1] = sum.y, values[i + 2] = sum.z, values[i + 3] = sum.w;
        }
    }

private:
    static DG_DEVICE float4 load_four(uint32_t address, float) { return ptx::load_shared_x4(address); }
    static DG_DEVICE int4 load_four(uint32_t address, int32_t) { return ptx::load_shared_int_x4(address); }

    static constexpr int32_t kUnitStep = 32 * 16 / 4;  // bytes between values of a thread, by units

    DG_DEVICE uint32_t place(int32_t sender, int32_t chunk) const {
        return smem_.part(warp_, sender, chunk / c.cluster.k) + ptx::lane() * 16;
    }

    const Smem<c>& smem_;
    int32_t warp_;
    ClusterPosition<c> position_;
};

}  // namespace deep_gemm::sm100
