// The pre-norm product of hyperconnections: few columns, long K, and the squares of A's rows on the way.
//
// A number of TF32 is exactly the sum of two of BF16, so mma.sync of BF16 multiplies B's halves one after the other.
// The warps of a CTA, and the CTAs of a cluster, take chunks of K in turn; their sums are added up in a fixed order.
#pragma once

#include <deep_gemm/prenorm/finish.cuh>
#include <deep_gemm/prenorm/split_tf32.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/cp_async.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/mma_sync.cuh>

namespace deep_gemm {

/// A warp's way through its chunks of K. Lane l copies 16 bytes of rows l / 4 and up, and reads what it copied itself:
/// of 32 of K it has 8 of each row, which are the same 8 that it has of B's rows. With few rows both operands come
/// through the ring: B is then as much of what is read, and K as long as the stages that are under way wait for memory
/// once.
template <Constant<PrenormConfig> c>
class PrenormWarp {
public:
    DG_DEVICE PrenormWarp(uint32_t ring, int32_t first_row, int32_t first_col, int32_t lane, const PrenormParams& p)
        : ring_(ring + lane * 16), lane_(lane), first_row_(first_row), first_col_(first_col), p_(p) {
        if constexpr (c.b_in_ring) {
#pragma unroll
            for (int32_t i = 0; i < kRowPointers; ++i)
                a_[i] = p.a + min(first_row + i * 8 + lane / 4, p.m - 1) * p.a_stride_bytes + lane % 4 * 16;
#pragma unroll
            for (int32_t i = 0; i < kColTiles; ++i)
                b_[i] = p.b + min(first_col + i * 8 + lane / 4, p.n - 1) * p.b_stride + lane % 4 * 8;
        }
    }

    /// Chunks [first, last) in steps of `step`.
    DG_DEVICE void run(int32_t first, int32_t last, int32_t step) {
#pragma unroll
        for (int32_t stage = 0; stage < c.stages - 1; ++stage) copy(first + stage * step, last, stage);
        float b[kColTiles][8];
        if constexpr (!c.b_in_ring) load_b(b, first, last);
        int32_t stage = 0;
#pragma unroll 1
        for (int32_t chunk = first; chunk < last; chunk += step) {
            const int32_t free = stage == 0 ? c.stages - 1 : stage - 1;
            copy(chunk + (c.stages - 1) * step, last, free);
            uint32_t high[kColTiles][4], low[kColTiles][4];
            if constexpr (!c.b_in_ring) {
                split_pairs(b, high, low);
                load_b(b, chunk + step, last);
            }
            ptx::wait_copies<c.stages - 1>();
            if constexpr (c.b_in_ring) {
                read_b(b, stage);
                split_pairs(b, high, low);
            }
            multiply(stage, high, low);
            stage = stage + 1 == c.stages ? 0 : stage + 1;
        }
        ptx::wait_all_copies();
    }

    /// [rows][columns and the squares], FP32.
    DG_DEVICE void write(float* sums) const {
#pragma unroll
        for (int32_t tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
            for (int32_t half = 0; half < 2; ++half) {
                float* const row = sums + (tile * 16 + half * 8 + lane_ / 4) * prenorm_sum_stride(c.cols);
#pragma unroll
                for (int32_t col = 0; col < kColTiles; ++col)
#pragma unroll
                    for (int32_t i = 0; i < 2; ++i)
                        row[col * 8 + lane_ % 4 * 2 + i] = products_[tile][col][half * 2 + i];
                float squares = squares_[tile][half];
                squares += __shfl_xor_sync(0xffffffff, squares, 1);
                squares += __shfl_xor_sync(0xffffffff, squares, 2);
                if (lane_ % 4 == 0) row[c.cols] = squares;
            }
    }

private:
    static constexpr int32_t kRowTiles = c.rows / 16, kColTiles = c.cols / 8;
    static constexpr int32_t kRowPointers = c.b_in_ring ? c.rows / 8 : 1;

    DG_DEVICE void copy(int32_t chunk, int32_t last, int32_t stage) const {
        const uint32_t to = ring_ + stage * c.stage_bytes();
        if constexpr (c.b_in_ring) {
            if (chunk < last) copy_both(chunk, to);
        } else {
            const uint8_t* const source = p_.a + static_cast<int64_t>(chunk) * kPrenormChunkK * 2 + lane_ % 4 * 16;
#pragma unroll
            for (int32_t i = 0; i < c.rows / 8; ++i) {
                const int32_t row = first_row_ + i * 8 + lane_ / 4;
                const bool given = chunk < last && row < p_.m;
                ptx::copy_async_x16(to + i * 512, given ? source + row * p_.a_stride_bytes : p_.a, given ? 16 : 0);
            }
        }
        ptx::commit_copies();
    }

    /// Of rows and columns that do not exist the last one: what becomes of them is not stored.
    DG_DEVICE void copy_both(int32_t chunk, uint32_t to) const {
        const int64_t k = static_cast<int64_t>(chunk) * kPrenormChunkK;
#pragma unroll
        for (int32_t i = 0; i < kRowPointers; ++i) ptx::copy_async_x16(to + i * 512, a_[i] + k * 2, 16);
#pragma unroll
        for (int32_t i = 0; i < kColTiles * 2; ++i)
            ptx::copy_async_x16(to + c.a_bytes() + i * 512, b_[i / 2] + k + i % 2 * 4, 16);
    }

    DG_DEVICE void read_b(float (&values)[kColTiles][8], int32_t stage) const {
        const uint32_t from = ring_ + stage * c.stage_bytes() + c.a_bytes();
#pragma unroll
        for (int32_t i = 0; i < kColTiles * 2; ++i) {
            const float4 four = ptx::load_shared_x4(from + i * 512);
            float* const of = values[i / 2] + i % 2 * 4;
            of[0] = four.x, of[1] = four.y, of[2] = four.z, of[3] = four.w;
        }
    }

    DG_DEVICE void load_b(float (&values)[kColTiles][8], int32_t chunk, int32_t last) const {
        if (chunk >= last) return;
#pragma unroll
        for (int32_t col = 0; col < kColTiles; ++col) {
            const int32_t n = first_col_ + col * 8 + lane_ / 4;
            const float* const row = p_.b + n * p_.b_stride + chunk * kPrenormChunkK + lane_ % 4 * 8;
#pragma unroll
            for (int32_t i = 0; i < 2; ++i) {
                const float4 four = n < p_.n ? reinterpret_cast<const float4*>(row)[i] : float4{};
                values[col][4 * i] = four.x, values[col][4 * i + 1] = four.y;
                values[col][4 * i + 2] = four.z, values[col][4 * i + 3] = four.w;
            }
        }
    }

    DG_DEVICE void multiply(int32_t stage, const uint32_t (&high)[kColTiles][4], const uint32_t (&low)[kColTiles][4]) {
#pragma unroll
        for (int32_t tile = 0; tile < kRowTiles; ++tile) {
            const uint32_t at = ring_ + stage * c.stage_bytes() + tile * 1024;
            const int4 upper = ptx::load_shared_int_x4(at), lower = ptx::load_shared_int_x4(at + 512);
            const uint32_t rows[2][4] = {{words(upper.x), words(lower.x), words(upper.y), words(lower.y)},
                                         {words(upper.z), words(lower.z), words(upper.w), words(lower.w)}};
#pragma unroll
            for (int32_t half = 0; half < 2; ++half)
#pragma unroll
                for (int32_t i = 0; i < 4; ++i) add_squares(squares_[tile][half], rows[i / 2][i % 2 * 2 + half]);
            // No product waits for the one before it.
#pragma unroll
            for (int32_t step = 0; step < 2; ++step)
#pragma unroll
                for (int32_t part = 0; part < 2; ++part)
#pragma unroll
                    for (int32_t col = 0; col < kColTiles; ++col) {
                        const uint32_t (&of)[4] = part == 0 ? high[col] : low[col];
                        const uint32_t cols[2] = {of[step * 2], of[step * 2 + 1]};
                        ptx::mma_bf16(products_[tile][col], rows[step], cols);
                    }
        }
    }

    static DG_DEVICE uint32_t words(int32_t word) { return static_cast<uint32_t>(word); }

    uint32_t ring_;
    int32_t lane_, first_row_, first_col_;
    const PrenormParams& p_;
    // Where a lane copies both operands from, with few rows.
    const uint8_t* a_[kRowPointers];
    const float* b_[kColTiles];
    float products_[kRowTiles][kColTiles][4] = {};
    float squares_[kRowTiles][2] = {};
};

template <Constant<PrenormConfig> c>
DG_DEVICE void run_tf32_hc_prenorm_gemm(const PrenormParams& p) {
    extern __shared__ __align__(128) uint8_t dynamic_smem[];
    const int32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = ptx::lane();
    const int32_t rank = static_cast<int32_t>(blockIdx.x) % c.cluster;
    const PrenormTile tile = PrenormTile::of(static_cast<int32_t>(blockIdx.x) / c.cluster, c.rows, c.cols, p);
    constexpr int32_t kChunks = kPrenormBlockK / kPrenormChunkK;
    const PrenormShare<c.rows, c.cols, c.cluster> share{ptx::shared_address(dynamic_smem) + c.share_place()};
    share.begin(rank);
    ptx::wait_for_previous_grid();
    PrenormWarp<c> of_warp(ptx::shared_address(dynamic_smem) + warp * c.stages * c.stage_bytes(), tile.first_row,
                           tile.first_col, lane, p);
    of_warp.run(tile.begin * kChunks + rank * c.warps + warp, tile.end * kChunks, c.warps * c.cluster);
    // Rings are over when all warps have read theirs.
    __syncthreads();
    auto* const sums = reinterpret_cast<float*>(dynamic_smem);
    of_warp.write(sums + warp * c.rows * prenorm_sum_stride(c.cols));
    finish_prenorm<c.rows, c.cols, c.warps, c.cluster, c.threads()>(sums, share, rank, tile, p);
}

}  // namespace deep_gemm
