// The role that multiplies keys by queries and finishes logits: a warpgroup.
#pragma once

#include <deep_gemm/arch/sm90_logits_smem.cuh>
#include <deep_gemm/logits/finish.cuh>
#include <deep_gemm/mma/sm90/logits_keys.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/wgmma.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm90 {

template <Constant<LogitsConfig> c>
class ScoreRole {
public:
    DG_DEVICE ScoreRole(const LogitsSmem<c>& smem, const LogitsParams& params, int32_t warpgroup)
        : smem_(smem),
          params_(params),
          warpgroup_(c.shares_keys ? 0 : warpgroup),
          row_group_(c.shares_keys ? warpgroup : 0),
          warp_(static_cast<int32_t>(threadIdx.x) / 32 % 4),
          lane_(ptx::lane()) {
        ring_.advance(warpgroup_);
    }

    DG_DEVICE void run() {
        Ring<c.query_stages> ring;
        while (true) {
            ptx::barrier_wait(smem_.queries_full(ring.stage), ring.phase);
            const int2 segment = *smem_.segment(ring.stage);
            if (segment.y == 0) return;
            begin_atom(ring.stage);
            // Of the tiles of all segments, those whose turn it is.
            const int32_t first = (warpgroup_ - turn_ + kStep) % kStep;
            const int32_t first_key = segment.x + first * kLogitsTile, tiles = ceil_div(segment.y - first, kStep);
            if constexpr (c.exponents)
                score_converted(ring.stage, first_key, tiles);
            else
                score(ring.stage, first_key, tiles);
            turn_ = (turn_ + segment.y) % kStep;
            __syncwarp();
            if (lane_ == 0) ptx::barrier_arrive(smem_.queries_empty(ring.stage));
            ring.advance();
        }
    }

private:
    static constexpr int32_t kSums = c.columns() / 2, kWeights = c.columns() / 4;
    static constexpr int32_t kStep = tile_step(c);  // of tiles
    static_assert(c.stages % kStep == 0, "a stage belongs to one warpgroup");
    using Quads = QuadSums<c.rows>;
    using Sums = float[kSums];

    DG_DEVICE void begin_atom(int32_t stage) {
        const int32_t first_row = row_group_ * c.group_rows();
        rows_ = smem_.rows(stage) + first_row;
        const float* const weights = smem_.weights(stage) + first_row * c.padded_heads + lane_ % 4 * 2;
#pragma unroll
        for (int32_t product = 0; product < c.products; ++product)
#pragma unroll
            for (int32_t i = 0; i < kWeights / 2; ++i) {
                const float2 pair = *reinterpret_cast<const float2*>(weights + product * c.columns() + i * 8);
                weights_[product][2 * i] = pair.x, weights_[product][2 * i + 1] = pair.y;
            }
    }

    /// So many tiles, kStep apart, by all query rows of the group.
    DG_DEVICE void score(int32_t query_stage, int32_t first_key, int32_t tiles) {
        if (tiles <= 0) return;
        static_assert(c.products <= 2);
        const int32_t in_tile = warp_ * 16 + Quads::key(lane_);
        int32_t key = first_key + in_tile;
#pragma unroll 1
        for (int32_t tile = 0; tile < tiles; ++tile, key += kStep * kLogitsTile) {
            Sums sums[c.products];
            ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);
#pragma unroll
            for (int32_t product = 0; product < c.products; ++product) multiply(sums[product], product, query_stage);
            const float scale = scale_of(in_tile);
            if constexpr (c.products == 2) {
                wait<1>(sums[0]);
                finish(sums[0], 0, key, scale);
            }
            wait<0>(sums[c.products - 1]);
            __syncwarp();
            if (lane_ == 0) ptx::barrier_arrive(smem_.empty(ring_.stage));
            ring_.advance(kStep);
            finish(sums[c.products - 1], c.products - 1, key, scale);
        }
    }

    /// The same of keys with exponents. Once a tile's codes are in registers, its stage is let go.
    DG_DEVICE void score_converted(int32_t query_stage, int32_t first_key, int32_t tiles) {
        static_assert(c.products == 1 && !c.shares_keys);
        int32_t key = first_key + warp_ * 16 + Quads::key(lane_);
#pragma unroll 1
        for (int32_t tile = 0; tile < tiles; ++tile, key += kStep * kLogitsTile) {
            ConvertedKeys<c> keys;
            ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);
            keys.load(smem_.keys(ring_.stage), smem_.scales(ring_.stage), warp_ * 16, lane_);
            __syncwarp();
            if (lane_ == 0) ptx::barrier_arrive(smem_.empty(ring_.stage));
            ring_.advance(kStep);
            keys.convert(lane_);
            Sums sums;
            keys.pin();
#pragma unroll
            for (int32_t i = 0; i < kSums; ++i) ptx::pin(sums[i]);
            keys.multiply(sums, smem_.queries(query_stage, 0, 0));
            wait<0>(sums);
            keys.pin();
            finish(sums, 0, key, keys.scale());
        }
    }

    DG_DEVICE float scale_of(int32_t in_tile) const {
        return ptx::load_shared(smem_.scales(ring_.stage) + in_tile * 4);
    }

    DG_DEVICE void multiply(Sums& sums, int32_t product, int32_t query_stage) const {
        const uint64_t rows = ptx::wgmma_descriptor_of_rows<c.key_bytes()>(smem_.keys(ring_.stage)),
                       cols = ptx::wgmma_descriptor_of_rows<c.key_bytes()>(smem_.queries(query_stage, row_group_,
                                                                                         product));
#pragma unroll
        for (int32_t i = 0; i < kSums; ++i) ptx::pin(sums[i]);
        ptx::wgmma_fence();
#pragma unroll
        for (int32_t step = 0; step < c.key_bytes() / 32; ++step)
            ptx::Wgmma<c.columns()>::e4m3(sums, rows + step * (32 >> 4), cols + step * (32 >> 4), step > 0);
        ptx::wgmma_commit();
#pragma unroll
        for (int32_t i = 0; i < kSums; ++i) ptx::pin(sums[i]);
    }

    template <int32_t kPending>
    static DG_DEVICE void wait(Sums& sums) {
        ptx::wgmma_wait<kPending>();
#pragma unroll
        for (int32_t i = 0; i < kSums; ++i) ptx::pin(sums[i]);
    }

    DG_DEVICE void finish(const Sums& sums, int32_t product, int32_t key, float scale) const {
        constexpr int32_t kEights = c.padded_heads / 8;  // of columns, of a row
        float of_row[c.rows][2] = {};
        // Rows side by side: no sum waits for the one before it.
#pragma unroll
        for (int32_t i = 0; i < kEights * 2; ++i)
#pragma unroll
            for (int32_t row = 0; row < c.rows; ++row) {
                const int32_t eight = row * kEights + i / 2;
                const float weight = weights_[product][eight * 2 + i % 2];
#pragma unroll
                for (int32_t half = 0; half < 2; ++half)
                    of_row[row][half] =
                        __fmaf_rn(ptx::relu(sums[eight * 4 + half * 2 + i % 2]), weight, of_row[row][half]);
            }
        float kept[Quads::kKept];
        Quads::reduce(of_row, kept, lane_);
        if (!Quads::stores(lane_)) return;
#pragma unroll
        for (int32_t i = 0; i < Quads::kKept; ++i) {
            const LogitsRow row = rows_[product * c.rows + Quads::first_row(lane_) + i];
            if (key >= row.keys.first && key < row.keys.end) {
                auto* const logits = reinterpret_cast<StorageOf<c.logits>*>(row.address);
                from_register<c.logits>(logits[key], kept[i] * scale);
            }
        }
    }

    LogitsSmem<c> smem_;
    const LogitsParams& params_;
    int32_t warpgroup_, row_group_, warp_, lane_;  // the first: whose turn it is to take a tile
    int32_t turn_ = 0;
    const LogitsRow* rows_ = nullptr;
    Ring<c.stages> ring_;
    float weights_[c.products][kWeights];
};

}  // namespace deep_gemm::sm90
