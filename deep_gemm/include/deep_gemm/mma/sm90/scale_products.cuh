// Products of row and column scales by the tensor cores, where both sides have a scale for each row.
//
// Promotion then wants a factor of its own for each accumulator. FP32 multiplications beside wgmma slow wgmma down
// (docs/notes/what-binds.md), so one TF32 wgmma of K = 8 multiplies 64 row scales by all column scales
// instead. TF32 has 11 bits, so a scale s is split into high + low: s rounded to 11 bits, and 11 of the 12 bits that
// are left. Of K = 8 four are used,
//
//   k                        0     1     2  3     4     5     6  7
//   of a row's scale r       high  high  ...      low   low   ...
//   of a column's scale c    high  low   0  0     high  low   0  0
//
// which add up to r c up to 2^-22 of it. (A third part would make the sum exact, and cost more than that is worth:
// docs/notes/tried.md.) The columns' second half equals the first, and the descriptor says so: 16 bytes a column
// are all that is written.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/mma/fragment_16x8.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/wgmma.cuh>
#include <deep_gemm/tile/ring.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// Bits of TF32 values, of whose last 13 wgmma takes no notice. (A scale of 2^128 - 2^116 and more becomes infinite.)
struct Tf32Parts {
    uint32_t high, low;
    DG_DEVICE explicit Tf32Parts(float value) {
        constexpr uint32_t kHalf = 0x1000, kKept = 0xffffe000;
        high = __float_as_uint(value) + kHalf;
        low = __float_as_uint(value - __uint_as_float(high & kKept));
    }
};

/// Neighbouring columns change places among the products, so that no FFMA of promotion has all three operands in even
/// or all in odd registers, which the register file may not serve at once.
constexpr int32_t exchanged(int32_t column) { return column ^ 1; }

/// One K block's scales as one thread needs them: the same interface as BlockScales.
template <Constant<GemmConfig> c>
struct ScaleProducts {
    static constexpr bool kColsUniform = false;
    static constexpr int32_t kRuns = 1;

    float row[2];               // of the block that is multiplied next
    uint32_t fragment[4] = {};  // of the block under way
    Sums<c> product;

    DG_DEVICE void load(const Smem<c>& smem, int32_t stage, int32_t first_row) {
        const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const uint32_t mine = Fragment16x8::thread_word(smem.row_scales(stage), first_row, lane, warp);
        row[0] = ptx::load_shared(mine);
        row[1] = ptx::load_shared(mine + Fragment16x8::kHalfRows * 4);
    }

    /// Issue the wgmma. Of a row's eight values a thread holds those of k = lane % 4 and k = lane % 4 + 4, also where
    /// the columns have zeros: asking would cost more.
    ///
    /// wgmma reads them until it is waited for. ptxas (CUDA 13.0) gives registers away earlier that hold copies of what
    /// is computed under wgmma: wrong products. So each is computed behind the wait, from the one before, of which
    /// nothing is left. tests/kernels/test_every_kernel.py looks for writes to operands of wgmma.
    DG_DEVICE void multiply(const Smem<c>& smem, int32_t stage) {
        const uint32_t nothing = blockIdx.y;  // ptxas does not know that
#pragma unroll
        for (int32_t i = 0; i < 2; ++i) {
            const Tf32Parts of(row[i]);
            fragment[i] = (fragment[i] & nothing) | of.high;
            fragment[i + 2] = (fragment[i + 2] & nothing) | of.low;
        }
        pin();
        ptx::wgmma_fence();
        ptx::WgmmaTf32<c.tile.cols>::run(product, fragment, ptx::wgmma_descriptor_repeated(smem.col_scales(stage)));
        ptx::wgmma_commit();
        pin();
    }

    /// total += partial * scales, when all wgmma are done.
    DG_DEVICE void promote(Sums<c>& total, const Accumulators<c>& partial) {
        pin();
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i)
            total[i] = __fmaf_rn(partial[i], product[exchanged(i)], total[i]);
    }

private:
    DG_DEVICE void pin() {
#pragma unroll
        for (int32_t i = 0; i < kAccumulators<c>; ++i) ptx::pin(product[i]);
    }
};

/// The load role's share: a warp reads four K blocks' scales of its columns at once (memory takes longer than a K
/// block), and writes them when their stages are free.
template <Constant<GemmConfig> c>
DG_DEVICE void load_split_scales(const Smem<c>& smem, const GemmParams& params, int32_t warp) {
    constexpr int32_t kBatch = 4;                                                           // K blocks
    constexpr int32_t kShare = c.tile.cols / kSplitWarps, kColumns = ceil_div(kShare, 32);  // of a warp, of a lane
    static_assert(kShare % 2 == 0, "neighbours change places");
    // The last lanes write the share's last column again, rather than go apart from the others before the fence.
    const int32_t lane = threadIdx.x % 32, first = warp * kShare;
    const auto column = [&](int32_t i) { return min(lane + i * 32, kShare - 1); };
    const int32_t extent = c.swap_ab ? extent_m<c>(params) : extent_n<c>(params);
    TileScheduler<c> tiles(params, smem.groups());
    Ring<c.stages> ring;
    Tile tile;
    while (tiles.next(tile)) {
        tiles.place(tile);
        const int32_t group = c.swap_ab ? group_of_a<c>(tile) : group_of_b<c>(tile);
        const int32_t inside = extent - tile.col - first;
        const float* scales = params.block_scales + group * params.block_scale_group_stride +
                              tile.k_block * params.block_scale_k_stride + tile.col + first;
#pragma unroll 1
        for (int32_t batch = 0; batch < tile.k_blocks; batch += kBatch) {
            float values[kBatch][kColumns];
#pragma unroll
            for (int32_t turn = 0; turn < kBatch; ++turn) {
#pragma unroll
                for (int32_t i = 0; i < kColumns; ++i)
                    values[turn][i] = column(i) < inside ? __ldg(scales + column(i)) : 0.0f;
                if (batch + turn + 1 < tile.k_blocks) scales += params.block_scale_k_stride;
            }
#pragma unroll
            for (int32_t turn = 0; turn < kBatch; ++turn) {
                if (batch + turn == tile.k_blocks) break;
                ptx::barrier_wait(smem.empty(ring.stage), ring.phase ^ 1);
                __syncwarp();  // with the lane that arrived
#pragma unroll
                for (int32_t i = 0; i < kColumns; ++i) {
                    const Tf32Parts of(values[turn][i]);
                    const uint32_t at = smem.col_scales(ring.stage) + exchanged(first + column(i)) * kColScaleBytes;
                    ptx::store_shared_int_x4(at, of.high, of.low, 0, 0);
                }
                ptx::fence_for_async_proxy();
                __syncwarp();
                if (ptx::lane() == 0) ptx::barrier_arrive(smem.full(ring.stage));
                ring.advance();
            }
        }
    }
}

}  // namespace deep_gemm
