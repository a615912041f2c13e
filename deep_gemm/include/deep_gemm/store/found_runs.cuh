// When all warps have sent the largest magnitudes of columns that share a scale (epilogue/run_exchange.cuh).
#pragma once

#include <deep_gemm/epilogue/run_exchange.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

inline constexpr int32_t kRunsFound = 7;  // a named barrier, or the first of one for each warpgroup

/// Of a tile, by `kWarps` of each CTA, which have sums of it; or (`kByWarpgroup`) by each warpgroup of its own part. A
/// piece of a warp has `kHeld` columns of D side by side.
template <Constant<GemmConfig> c, typename Smem, int32_t kHeld, int32_t kWarps, bool kByWarpgroup = false>
class FoundRunsOf {
public:
    DG_DEVICE explicit FoundRunsOf(const Smem& smem) : smem_(smem) {}

    template <typename Place>
    DG_DEVICE void set_exchange(Place& at) const {
        at.area = smem_.exchange(buffer()), at.barrier = smem_.maxima_barrier(buffer());
    }
    /// Nobody reads maxima of the tile before.
    DG_DEVICE void begin() const {
        if constexpr (!kAcross) wait_for_warps();
    }
    /// This warp has sent what it found, and has read what it wanted of the tile before.
    DG_DEVICE void wait() const {
        if constexpr (!kAcross) return wait_for_warps();
        if constexpr (kBuffers > 1) {
            __syncwarp();
            const int32_t lane = threadIdx.x % 32;
            if (lane < run_ctas(c))
                ptx::barrier_arrive_remote(smem_.maxima_barrier(buffer()), run_cta_rank<c>(lane, 0));
        }
        ptx::barrier_wait(smem_.maxima_barrier(buffer()), tile_ / kBuffers % 2);
        if (kBuffers > 1 && threadIdx.x == 0)
            ptx::barrier_arrive_expect(smem_.maxima_barrier(buffer()), maxima_bytes(c, kHeld));
    }
    DG_DEVICE void end() { ++tile_; }

    /// Before others may send anything. One thread.
    static DG_DEVICE void initialise(const Smem& smem) {
        for (int32_t buffer = 0; buffer < kBarriers; ++buffer) {
            ptx::barrier_init(smem.maxima_barrier(buffer), kArrivals);
            ptx::barrier_arrive_expect(smem.maxima_barrier(buffer), maxima_bytes(c, kHeld));
        }
    }

private:
    static constexpr int32_t kBarriers = exchange_barriers(c, kHeld), kBuffers = kBarriers > 0 ? kBarriers : 1;
    /// Of a CTA's thread that knows how many bytes come, and of warps that have sent theirs.
    static constexpr int32_t kArrivals = 1 + (kBuffers > 1 ? kWarps * run_ctas(c) : 0);
    static constexpr bool kAcross = exchanges_across(c, kHeld);
    static_assert(!kAcross || c.cluster.size() > 1, "st.async is for launches with clusters");
    static_assert(!kAcross || !kByWarpgroup, "of CTAs, all warps send together");
    static_assert(!kAcross || !c.split_k.last_tiles, "who shares last tiles has no barriers for it");

    DG_DEVICE uint32_t buffer() const { return tile_ % kBuffers; }
    static DG_DEVICE void wait_for_warps() {
        ptx::named_barrier_wait(kRunsFound + (kByWarpgroup ? threadIdx.x / 128 : 0), kWarps * 32);
    }

    const Smem smem_;
    uint32_t tile_ = 0;
};

}  // namespace deep_gemm
