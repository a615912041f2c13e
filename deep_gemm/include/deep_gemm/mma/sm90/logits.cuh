// The role that multiplies keys by queries and finishes logits: a warpgroup.
#pragma once

#include <deep_gemm/arch/sm90_logits_smem.cuh>
#include <deep_gemm/logits/finish.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/wgmma.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm90 {

template <LogitsConfig c>
class ScoreRole {
public:
    DG_DEVICE ScoreRole(const LogitsSmem<c>& smem, const LogitsParams& params, int32_t warpgroup)
        : smem_(smem),
          params_(params),
          warpgroup_(warpgroup),
          row_group_(c.shares_keys ? warpgroup : 0),
          warp_(static_cast<int32_t>(threadIdx.x) / 32 % 4),
          lane_(ptx::lane()) {}

    DG_DEVICE void run(const LogitsShare& share) {
        ShareWalk<c> walk(share);
        LogitsSegment segment;
        Ring<c.query_stages> query_ring;
        while (walk.next(segment, lane_, params_)) {
            begin_atom(segment.atom);
            ptx::barrier_wait(smem_.queries_full(query_ring.stage), query_ring.phase);
#pragma unroll 1
            for (int32_t tile = 0; tile < segment.tiles; ++tile) {
                if (c.shares_keys || turn_ == warpgroup_)
                    score(query_ring.stage, segment.first_key + tile * kLogitsTile);
                if constexpr (!c.shares_keys) turn_ = turn_ + 1 == kLogitsMathWarpgroups ? 0 : turn_ + 1;
                ring_.advance();
            }
            if (lane_ == 0) ptx::barrier_arrive(smem_.queries_empty(query_ring.stage));
            query_ring.advance();
        }
    }

private:
    static constexpr int32_t kSums = c.columns() / 2, kWeights = c.columns() / 4;
    using Quads = QuadSums<c.rows>;

    /// What the rows of this warpgroup see, and their weights.
    DG_DEVICE void begin_atom(int32_t atom) {
        const AtomRows rows = rows_of_atom<c>(atom, params_);
        const int32_t thread = warp_ * 32 + lane_, end = rows.first + rows.count;
        first_row_ = rows.first + row_group_ * c.group_rows();
        ranges_ = smem_.ranges() + row_group_ * c.group_rows();
        // Warpgroups that share rows write the same.
        const int32_t barrier = 1 + row_group_, threads = c.shares_keys ? 128 : 128 * kLogitsMathWarpgroups;
        ptx::named_barrier_wait(barrier, threads);
        for (int32_t i = c.shares_keys ? thread : thread + 128 * warpgroup_; i < c.group_rows(); i += threads)
            ranges_[i] = first_row_ + i < end ? keys_of_row<c>(first_row_ + i, params_) : KeyRange{};
#pragma unroll
        for (int32_t product = 0; product < c.products; ++product)
#pragma unroll
            for (int32_t i = 0; i < kWeights; ++i) {
                const int32_t column = i / 2 * 8 + lane_ % 4 * 2 + i % 2;
                weights_[product][i] = logits_weight<c>(first_row_ + product * c.rows + i / 2 * 8 / c.padded_heads, end,
                                                        column % c.padded_heads, params_);
            }
        ptx::named_barrier_wait(barrier, threads);
    }

    /// One tile of keys by all query rows of the group.
    DG_DEVICE void score(int32_t query_stage, int32_t first_key) {
        float sums[c.products][kSums];
        ptx::barrier_wait(smem_.full(ring_.stage), ring_.phase);
#pragma unroll
        for (int32_t product = 0; product < c.products; ++product)
            multiply(sums[product], smem_.keys(ring_.stage), smem_.queries(query_stage, row_group_, product));
        const int32_t in_tile = warp_ * 16 + Quads::key(lane_);
        const float scale = ptx::load_shared(smem_.scales(ring_.stage) + in_tile * 4);
        static_assert(c.products <= 2);
        if constexpr (c.products == 2) {
            wait<1>(sums[0]);
            finish(sums[0], 0, first_key + in_tile, scale);
        }
        wait<0>(sums[c.products - 1]);
        __syncwarp();
        if (lane_ == 0) ptx::barrier_arrive(smem_.empty(ring_.stage));
        finish(sums[c.products - 1], c.products - 1, first_key + in_tile, scale);
    }

    static DG_DEVICE void multiply(float (&sums)[kSums], uint32_t keys, uint32_t queries) {
        const uint64_t rows = ptx::wgmma_descriptor_of_rows<c.key_bytes()>(keys),
                       cols = ptx::wgmma_descriptor_of_rows<c.key_bytes()>(queries);
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
    static DG_DEVICE void wait(float (&sums)[kSums]) {
        ptx::wgmma_wait<kPending>();
#pragma unroll
        for (int32_t i = 0; i < kSums; ++i) ptx::pin(sums[i]);
    }

    DG_DEVICE void finish(const float (&sums)[kSums], int32_t product, int32_t key, float scale) {
        constexpr int32_t kEights = c.padded_heads / 8;  // of columns, of a row
        float of_row[c.rows][2];
#pragma unroll
        for (int32_t row = 0; row < c.rows; ++row) {
            of_row[row][0] = of_row[row][1] = 0.0f;
#pragma unroll
            for (int32_t i = 0; i < kEights * 2; ++i) {
                const int32_t eight = row * kEights + i / 2;
                const float weight = weights_[product][eight * 2 + i % 2];
#pragma unroll
                for (int32_t half = 0; half < 2; ++half)
                    of_row[row][half] =
                        __fmaf_rn(ptx::relu(sums[eight * 4 + half * 2 + i % 2]), weight, of_row[row][half]);
            }
        }
        float kept[Quads::kKept];
        Quads::reduce(of_row, kept, lane_);
        if (!Quads::stores(lane_)) return;
#pragma unroll
        for (int32_t i = 0; i < Quads::kKept; ++i) {
            const int32_t row = product * c.rows + Quads::first_row(lane_) + i;
            const KeyRange seen = ranges_[row];
            if (key >= seen.first && key < seen.end)
                store_logit<c>(first_row_ + row, params_.compressed ? key - seen.first : key, kept[i] * scale, params_);
        }
    }

    LogitsSmem<c> smem_;
    const LogitsParams& params_;
    int32_t warpgroup_, row_group_, warp_, lane_;
    int32_t turn_ = 0, first_row_ = 0;
    KeyRange* ranges_ = nullptr;
    Ring<c.stages> ring_;
    float weights_[c.products][kWeights];
};

}  // namespace deep_gemm::sm90
