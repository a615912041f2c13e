// The pre-norm product on Hopper. One warp copies blocks of 64 of K of both operands into a ring; warpgroups take them
// in turn. Each divides B's block into halves of BF16, side by side as columns of one product, and multiplies A's rows
// by them out of registers, where it has their squares from.
#pragma once

#include <deep_gemm/arch/sm90_prenorm_memory.cuh>
#include <deep_gemm/prenorm/finish.cuh>
#include <deep_gemm/prenorm/split_tf32.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/load_matrix.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/ptx/wgmma_from_registers.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm {

namespace sm90 {

template <Constant<PrenormConfig> c>
struct PrenormSmem {
    static constexpr PrenormSmemPlan kPlan = plan_prenorm_smem(c);
    static_assert(kPlan.bytes <= kMaxSmemBytes, "the ring does not fit shared memory");

    DG_DEVICE uint32_t a(int32_t stage) const { return base + stage * kPlan.stage_bytes; }
    DG_DEVICE uint32_t b(int32_t stage) const { return a(stage) + c.a_bytes(); }
    DG_DEVICE uint32_t halves(int32_t warpgroup) const { return base + kPlan.halves + warpgroup * c.b_bytes(); }
    DG_DEVICE uint32_t full(int32_t stage) const { return base + kPlan.barriers + stage * 16; }
    DG_DEVICE uint32_t empty(int32_t stage) const { return full(stage) + 8; }

    uint32_t base;
};

/// By a warp.
template <Constant<PrenormConfig> c>
DG_DEVICE void initialise_barriers(const PrenormSmem<c>& smem, int32_t lane, const PrenormParams& p) {
    if (lane == 0) {
        ptx::prefetch_tensor_map(&p.a_boxes), ptx::prefetch_tensor_map(&p.b_boxes);
        // By one lane: lanes of a warp would follow each other, some 60 cycles a barrier.
#pragma unroll
        for (int32_t stage = 0; stage < c.stages; ++stage)
            ptx::barrier_init(smem.full(stage), 1), ptx::barrier_init(smem.empty(stage), 4);
    }
    ptx::fence_barrier_init();
    __syncwarp();
}

template <Constant<PrenormConfig> c>
DG_DEVICE void load_prenorm(const PrenormSmem<c>& smem, const PrenormTile& tile, int32_t first,
                            const PrenormParams& p) {
    Ring<c.stages> ring;
#pragma unroll 1
    for (int32_t block = first; block < tile.end; block += c.cluster) {
        const uint32_t full = smem.full(ring.stage);
        ptx::barrier_wait(smem.empty(ring.stage), ring.phase ^ 1);
        ptx::barrier_arrive_expect(full, c.a_bytes() + c.b_bytes());
        const int32_t k = block * kPrenormBlockK;
        ptx::load_box(smem.a(ring.stage), &p.a_boxes, full, k, tile.first_row, 0, ptx::CacheHint::evict_first);
        ptx::load_box(smem.b(ring.stage), &p.b_boxes, full, k, tile.first_col, 0, ptx::CacheHint::evict_last);
        ring.advance();
    }
}

/// A warpgroup's way through its blocks of K.
template <Constant<PrenormConfig> c>
class PrenormWarpgroup {
public:
    DG_DEVICE PrenormWarpgroup(const PrenormSmem<c>& smem, int32_t warpgroup, int32_t warp, int32_t lane)
        : smem_(smem), warpgroup_(warpgroup), warp_(warp), lane_(lane) {}

    /// Blocks [first, end) in steps of the cluster; every warpgroup takes its own of them.
    DG_DEVICE void run(int32_t first, int32_t end) {
        Ring<c.stages> ring;
        ring.advance(warpgroup_);
#pragma unroll 1
        for (int32_t block = first + warpgroup_ * c.cluster; block < end; block += c.warpgroups * c.cluster) {
            ptx::barrier_wait(smem_.full(ring.stage), ring.phase);
            split_b(smem_.b(ring.stage));
            multiply(smem_.a(ring.stage), smem_.empty(ring.stage));
            ring.advance(c.warpgroups);
        }
    }

    /// [rows][columns and the squares], FP32.
    DG_DEVICE void write(float* sums) const {
#pragma unroll
        for (int32_t tile = 0; tile < kTiles; ++tile)
#pragma unroll
            for (int32_t half = 0; half < 2; ++half) {
                const int32_t row = tile * kWgmmaRows + warp_ * 16 + half * 8 + lane_ / 4;
                float squares = squares_[tile][half];
                squares += __shfl_xor_sync(0xffffffff, squares, 1);
                squares += __shfl_xor_sync(0xffffffff, squares, 2);
                if (!has_rows(tile)) continue;
                float* const to = sums + row * prenorm_sum_stride(c.cols);
#pragma unroll
                for (int32_t i = 0; i < c.cols / 4; ++i) {
                    const int32_t sum = i / 2 * 4 + half * 2 + i % 2;
                    to[i / 2 * 8 + lane_ % 4 * 2 + i % 2] = sums_[tile][sum] + sums_[tile][sum + c.cols / 2];
                }
                if (lane_ % 4 == 0) to[c.cols] = squares;
            }
    }

private:
    static constexpr int32_t kTiles = c.row_tiles(), kSteps = kPrenormBlockK / 16, kBuffers = kTiles > 1 ? 2 : 1;

    /// Of a tile that the CTA's rows do not fill, some warps have none.
    DG_DEVICE bool has_rows(int32_t tile) const {
        return (tile + 1) * kWgmmaRows <= c.rows || tile * kWgmmaRows + warp_ * 16 < c.rows;
    }

    /// Threads have four neighbours along K of so many columns. Rows of the halves have 128 bytes, swizzled; the low
    /// ones follow the high ones.
    DG_DEVICE void split_b(uint32_t b) {
        constexpr int32_t kPieces = kPrenormBlockK / 4, kRows = c.cols * kPieces / 128;
        const int32_t thread = warp_ * 32 + lane_, row = thread / kPieces, piece = thread % kPieces;
        float values[kRows][4];
        uint32_t high[kRows][2], low[kRows][2];
#pragma unroll
        for (int32_t i = 0; i < kRows; ++i) {
            const float4 four = ptx::load_shared_x4(b + (i * 128 + thread) * 16);
            values[i][0] = four.x, values[i][1] = four.y, values[i][2] = four.z, values[i][3] = four.w;
        }
        split_pairs(values, high, low);
        // All have waited for the products that read the block before.
        ptx::named_barrier_wait(1 + warpgroup_, 128);
        const uint32_t to = smem_.halves(warpgroup_) + row * kSwizzleBytes + (piece / 2 ^ row % 8) * 16 + piece % 2 * 8;
#pragma unroll
        for (int32_t i = 0; i < kRows; ++i) {
            store(to + i * 8 * kSwizzleBytes, high[i]);
            store(to + (c.cols + i * 8) * kSwizzleBytes, low[i]);
        }
        ptx::fence_for_async_proxy();
        ptx::named_barrier_wait(1 + warpgroup_, 128);
    }

    static DG_DEVICE void store(uint32_t to, const uint32_t (&pairs)[2]) {
        ptx::store_shared_x2(to, static_cast<int32_t>(pairs[0]), static_cast<int32_t>(pairs[1]));
    }

    DG_DEVICE void multiply(uint32_t a, uint32_t empty) {
        const uint64_t cols = ptx::wgmma_descriptor(smem_.halves(warpgroup_));
#pragma unroll
        for (int32_t tile = 0; tile < kTiles; ++tile) {
            uint32_t (&rows)[kSteps][4] = rows_[tile % kBuffers];
            if (tile >= kBuffers) {  // those that read the buffer are over
                ptx::wgmma_wait<1>();
                pin(rows);
            }
            if (has_rows(tile)) load_rows(rows, a + tile * kWgmmaRows * kSwizzleBytes);
#pragma unroll
            for (int32_t i = 0; i < kSteps * 4; ++i) add_squares(squares_[tile][i % 2], rows[i / 4][i % 4]);
            if (tile == kTiles - 1) {
                __syncwarp();
                if (lane_ == 0) ptx::barrier_arrive(empty);
            }
            pin(rows);
            ptx::wgmma_fence();
#pragma unroll
            for (int32_t step = 0; step < kSteps; ++step)
                ptx::WgmmaFromRegisters<2 * c.cols>::template bf16<false>(sums_[tile], rows[step],
                                                                          cols + step * (32 >> 4), 1);
            ptx::wgmma_commit();
        }
        wait_for_products();
    }

    DG_DEVICE void load_rows(uint32_t (&rows)[kSteps][4], uint32_t a) const {
        const int32_t row = warp_ * 16 + lane_ % 16;
#pragma unroll
        for (int32_t step = 0; step < kSteps; ++step)
            ptx::load_matrix_x4<false>(a + row * kSwizzleBytes + ((step * 2 + lane_ / 16) ^ row % 8) * 16, rows[step]);
    }

    static DG_DEVICE void pin(uint32_t (&rows)[kSteps][4]) {
#pragma unroll
        for (int32_t i = 0; i < kSteps * 4; ++i) ptx::pin(rows[i / 4][i % 4]);
    }

    DG_DEVICE void wait_for_products() {
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int32_t i = 0; i < kTiles * c.cols; ++i) ptx::pin(sums_[i / c.cols][i % c.cols]);
#pragma unroll
        for (int32_t i = 0; i < kBuffers; ++i) pin(rows_[i]);
    }

    const PrenormSmem<c>& smem_;
    int32_t warpgroup_, warp_, lane_;
    float sums_[kTiles][c.cols] = {};  // of high halves, then of low ones
    float squares_[kTiles][2] = {};
    uint32_t rows_[kBuffers][kSteps][4] = {};
};

}  // namespace sm90

template <Constant<sm90::PrenormConfig> c>
DG_DEVICE void run_tf32_hc_prenorm_gemm_sm90(const PrenormParams& p) {
    using namespace sm90;
    extern __shared__ uint8_t dynamic_smem[];
    const uint32_t start = ptx::shared_address(dynamic_smem), base = align_up(start, kPrenormAlignment);
    const PrenormSmem<c> smem{base};
    const int32_t warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0),
                  warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0), lane = ptx::lane();
    const bool loads = warpgroup == c.warpgroups;
    const int32_t rank = static_cast<int32_t>(blockIdx.x) % c.cluster;
    const PrenormTile tile = PrenormTile::of(static_cast<int32_t>(blockIdx.x) / c.cluster, c.rows, c.cols, p);
    auto* const sums = reinterpret_cast<float*>(dynamic_smem + (base - start));
    const PrenormShare<c.rows, c.cols, c.cluster> share{base + smem.kPlan.share};
    share.begin(rank);
    // The warp that loads waits for nobody: the others learn of it that there are barriers.
    constexpr int32_t kReady = 1 + c.warpgroups, kTold = c.warpgroups * 128 + 32;
    if (loads) {
        ptx::give_registers<kPrenormLoadRegisters>();
        if (warp == 0) {
            initialise_barriers<c>(smem, lane, p);
            ptx::named_barrier_arrive(kReady, kTold);
            ptx::wait_for_previous_grid();
            if (lane == 0) load_prenorm<c>(smem, tile, tile.begin + rank, p);
            __syncwarp();
        }
        // Sums take the ring's place when all warpgroups have read it.
        __syncthreads();
    } else {
        ptx::take_registers<prenorm_registers(c)>();
        PrenormWarpgroup<c> of_warpgroup(smem, warpgroup, warp, lane);
        ptx::named_barrier_wait(kReady, kTold);
        of_warpgroup.run(tile.begin + rank, tile.end);
        __syncthreads();
        of_warpgroup.write(sums + warpgroup * c.rows * prenorm_sum_stride(c.cols));
    }
    ptx::wait_for_previous_grid();  // which may read what is written now, though a CTA may have had nothing to load
    finish_prenorm<c.rows, c.cols, c.warpgroups, c.cluster, c.threads()>(sums, share, rank, tile, p);
}

}  // namespace deep_gemm
