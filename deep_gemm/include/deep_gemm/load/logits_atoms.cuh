// The role that brings atoms of index logits: their queries by the copy engine, weights and what rows see.
#pragma once

#include <deep_gemm/logits/finish.cuh>
#include <deep_gemm/logits/share.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm {

/// Queries of an atom, by the copy engine. By one lane.
template <Constant<LogitsConfig> c, typename Smem>
DG_DEVICE void copy_queries(const Smem& smem, int32_t stage, int32_t first_row, const LogitsParams& p) {
    constexpr int32_t kProducts = c.products * c.row_groups(), kBytes = c.columns() * c.key_bytes();
    ptx::barrier_arrive_expect(smem.queries_full(stage), kBytes * kProducts);
#pragma unroll
    for (int32_t i = 0; i < kProducts; ++i)
        ptx::load_box(smem.queries(stage, i / c.products, i % c.products), &p.queries, smem.queries_full(stage), 0, 0,
                      first_row + i * c.rows, ptx::CacheHint::evict_first);
}

/// What finishing logits takes beside that, by all lanes.
template <Constant<LogitsConfig> c, typename Smem>
DG_DEVICE void write_atom(const Smem& smem, int32_t stage, const LogitsSegment& segment, int32_t lane,
                          const LogitsParams& p) {
    const AtomRows rows = rows_of_atom<c>(segment.atom, p);
    const int32_t end = rows.first + rows.count;
    float* const weights = smem.weights(stage);
    constexpr int32_t kWeights = c.cta_rows() * c.padded_heads;
#pragma unroll 4
    for (int32_t i = lane; i < kWeights; i += 32)
        weights[i] = logits_weight<c>(rows.first + i / c.padded_heads, end, i % c.padded_heads, p);
    for (int32_t i = lane; i < c.cta_rows(); i += 32) {
        const int32_t row = rows.first + i;
        const KeyRange keys = row < end ? keys_of_row<c>(row, rows.request, p) : KeyRange{};
        const int64_t place = row * p.logits_stride - (p.compressed ? keys.first : 0);
        smem.rows(stage)[i] = {reinterpret_cast<uint64_t>(p.logits) + bytes_of(c.logits, place), keys};
    }
    if (lane == 0) *smem.segment(stage) = make_int2(segment.first_key, segment.tiles);
}

/// Walks the CTA's share. Behind the last atom one of no tiles says that there are no more. `write_more(stage, rows)`
/// is what an architecture needs beside: all of the queries, if !kCopies.
template <Constant<LogitsConfig> c, bool kCopies, typename Smem, typename WriteMore>
DG_DEVICE void load_atoms(const Smem& smem, const LogitsShare& share, int32_t lane, const LogitsParams& p,
                          const WriteMore& write_more) {
    Ring<c.query_stages> ring;
    ShareWalk<c> walk(share);
    LogitsSegment segment;
    while (walk.next(segment, lane, p)) {
        ptx::barrier_wait(smem.queries_empty(ring.stage), ring.phase ^ 1);
        __syncwarp();
        if (kCopies && lane == 0) copy_queries<c>(smem, ring.stage, rows_of_atom<c>(segment.atom, p).first, p);
        if (!kCopies && lane == 0) ptx::barrier_arrive(smem.queries_full(ring.stage));
        write_atom<c>(smem, ring.stage, segment, lane, p);
        write_more(ring.stage, rows_of_atom<c>(segment.atom, p));
        ptx::barrier_arrive(smem.queries_full(ring.stage));
        ring.advance();
    }
    ptx::barrier_wait(smem.queries_empty(ring.stage), ring.phase ^ 1);
    if (lane == 0) *smem.segment(ring.stage) = make_int2(0, 0);
    if (lane == 0) ptx::barrier_arrive_expect(smem.queries_full(ring.stage), 0);
    ptx::barrier_arrive(smem.queries_full(ring.stage));
}

}  // namespace deep_gemm
