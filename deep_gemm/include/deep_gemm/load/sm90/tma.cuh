// The load role: one warp keeps the ring filled through the copy engine.
#pragma once

#include <deep_gemm/arch/sm90_smem.cuh>
#include <deep_gemm/load/gated_boxes.cuh>
#include <deep_gemm/load/pacer.cuh>
#include <deep_gemm/load/sm90/boxes.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/tile/batches.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm {

/// A box at (x, y) for this CTA, or for all that share it.
template <int32_t kSharers>
DG_DEVICE void load_for_sharers(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t x, int32_t y,
                                int32_t group, uint16_t mask, ptx::CacheHint hint) {
    if constexpr (kSharers == 1)
        ptx::load_box(destination, &map, barrier, x, y, group, hint);
    else
        ptx::load_box_multicast(destination, &map, barrier, x, y, group, mask, hint);
}

/// One operand's share of a stage: CTAs that need the same box load a slice each and send it to all. An MN-major one
/// comes in boxes of 64 of its rows by the K block.
template <int32_t kExtent, int32_t kSharers, int32_t kRowBytes, bool kMnMajor>
DG_DEVICE void load_operand(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t k, int32_t start,
                            int32_t group, int32_t sharer, uint16_t mask, ptx::CacheHint hint) {
    constexpr int32_t kSlice = kExtent / kSharers;
    static_assert(kSharers == 1 || kSlice % 8 == 0, "a slice is a whole number of swizzle atoms");
    const int32_t first = kSharers == 1 ? 0 : sharer * kSlice;
    if constexpr (kMnMajor) {
        static_assert(kSlice % kMnBlock == 0, "a slice is a whole number of boxes");
#pragma unroll 1
        for (int32_t row = first; row < first + kSlice; row += kMnBlock)
            load_for_sharers<kSharers>(destination + row * kRowBytes, map, barrier, start + row, k, group, mask, hint);
    } else {
        load_for_sharers<kSharers>(destination + first * kRowBytes, map, barrier, k, start + first, group, mask, hint);
    }
}

/// load_operand of B where tiles have gates and ups.
template <Constant<GemmConfig> c, int32_t kExtent, int32_t kSharers, int32_t kRowBytes>
DG_DEVICE void load_gated_operand(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t k,
                                  int32_t start, int32_t group, int32_t sharer, uint16_t mask, ptx::CacheHint hint) {
    constexpr int32_t kSlice = kExtent / kSharers;
    const int32_t first = kSharers == 1 ? 0 : sharer * kSlice;
    for_each_gated_box<c, kSlice>(start + first, [&](int32_t row, int32_t pair, int32_t pairs) {
        const uint32_t to = destination + (first + row) * kRowBytes;
        if constexpr (kSharers == 1)
            ptx::load_box_5d(to, &map, barrier, k, pair, pairs, group, hint);
        else
            ptx::load_box_5d_multicast(to, &map, barrier, k, pair, pairs, group, mask, hint);
    });
}

/// The rows operand, 64 rows at a time, without those that are nothing but padding.
template <Constant<GemmConfig> c, int32_t kRowBytes>
DG_DEVICE void load_wanted_rows(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t k,
                                const Tile& tile, int32_t group, int32_t sharer, uint16_t mask, ptx::CacheHint hint) {
    constexpr int32_t kSlice = c.tile.rows / c.cluster.cols;
    const int32_t end = min(wanted_rows(tile), (sharer + 1) * kSlice);
#pragma unroll 1
    for (int32_t row = sharer * kSlice; row < end; row += kWgmmaRows)
        load_for_sharers<c.cluster.cols>(destination + row * kRowBytes, map, barrier, k, tile.row + row, group, mask,
                                         hint);
}

/// The rows operand, packed: blocks of 64 rows by 128 of K, or halves of them.
template <Constant<GemmConfig> c>
DG_DEVICE void load_packed_rows(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t k, int32_t row,
                                int32_t group, const GemmParams& params, ptx::CacheHint hint) {
    static_assert(c.cluster.cols == 1 && c.tile.k * c.stages_of_block() == kPackedK);
    ptx::load_box(destination, &map, barrier, 0, k / c.tile.k * packed_stage_lines(c),
                  group * packed_blocks(extent_n<c>(params)) + row / kPackedRows, hint);
}

/// Where a tile's operands lie. K groups that are matrices of their own count K from their own start; scales never do.
struct TileSource {
    const TensorMap* rows;
    const TensorMap* cols;
    int32_t k_origin;
    int32_t stage_bytes;  // that the copies of one stage bring
};

template <Constant<GemmConfig> c>
DG_DEVICE TileSource tile_source(const GemmParams& params, const Tile& tile) {
    if constexpr (c.group_maps) {
        const GroupMaps* groups = static_cast<const ParamsFor<c>&>(params).groups;
        const int32_t index = tile.group - params.first_group;
        return {&groups[index].rows, &groups[index].cols, tile.k_block, stage_transaction_bytes(c)};
    } else {
        TileSource source = {&params.rows, &params.cols, 0, stage_transaction_bytes(c)};
        const int32_t rows = c.swap_ab ? extent_n<c>(params) : extent_m<c>(params),
                      cols = c.swap_ab ? extent_m<c>(params) : extent_n<c>(params);
        if (has_last_rows(c) && tile.row + c.tile.rows > rows) {
            source.rows = &params.last_rows;
            source.stage_bytes -= (c.tile.rows - last_box(rows, c.tile.rows)) * row_bytes(c, c.rows_operand());
        }
        if (has_last_cols(c) && tile.col + c.tile.cols > cols) {
            source.cols = &params.last_cols;
            source.stage_bytes -= (c.tile.cols - last_box(cols, c.tile.cols)) * row_bytes(c, c.cols_operand());
        }
        if constexpr (c.skips_padding)
            source.stage_bytes -= (c.tile.rows - wanted_rows(tile)) * row_bytes(c, c.rows_operand());
        return source;
    }
}

/// Copies a tile's K blocks. All lanes of the load warp walk tiles and K blocks together and one of them copies: what a
/// copy takes is then in uniform registers. (For one thread ptxas moves it there for each K block, before the copy.)
template <Constant<GemmConfig> c>
class Loader {
public:
    DG_DEVICE Loader(const Smem<c>& smem, const GemmParams& params) : smem_(smem), params_(params) {}

    /// All K blocks of a tile.
    DG_DEVICE void copy(const Tile& tile, const TileSource& source) {
        const uint16_t rows_mask = position_.rows_mask(), cols_mask = position_.cols_mask();
        const int32_t row_group = c.swap_ab ? group_of_b<c>(tile) : group_of_a<c>(tile),
                      col_group = c.swap_ab ? group_of_a<c>(tile) : group_of_b<c>(tile);
        const int32_t end = tile.k_block + tile.k_blocks;
        // There is time enough, but few registers: unrolled, this loop made ptxas spill one of them.
#pragma unroll 1
        for (int32_t block = tile.k_block; block < end; ++block, ring_.advance()) {
            // All readers, in every CTA that our copies reach.
            ptx::barrier_wait(smem_.empty(ring_.stage), ring_.phase ^ 1);
            pacer_.wait();
            if (!ptx::elect_one()) continue;
            const uint32_t full = smem_.full(ring_.stage);
            const auto [k, matrix] = place_block<c>(params_, block - source.k_origin);
            ptx::barrier_arrive_expect(full, source.stage_bytes);
            if constexpr (c.skips_padding)
                load_wanted_rows<c, kRowBytes>(smem_.rows(ring_.stage), *source.rows, full, k, tile, row_group,
                                               position_.col, rows_mask, kHintA);
            else if constexpr (c.rows_operand().packed())
                load_packed_rows<c>(smem_.rows(ring_.stage), *source.rows, full, k, tile.row, row_group, params_,
                                    kHintB);
            else if constexpr (c.gate.joins() && c.swap_ab)
                load_gated_operand<c, c.tile.rows, c.cluster.cols, kRowBytes>(smem_.rows(ring_.stage), *source.rows,
                                                                              full, k, tile.row, row_group + matrix,
                                                                              position_.col, rows_mask, kHintB);
            else
                load_operand<c.tile.rows, c.cluster.cols, kRowBytes, c.rows_operand().mn_major()>(
                    smem_.rows(ring_.stage), *source.rows, full, k, tile.row, row_group + matrix, position_.col,
                    rows_mask, c.swap_ab ? kHintB : kHintA);
            if constexpr (c.gate.joins() && !c.swap_ab)
                load_gated_operand<c, c.tile.cols, c.cluster.rows, kSwizzleBytes>(smem_.cols(ring_.stage), *source.cols,
                                                                                  full, k, tile.col, col_group + matrix,
                                                                                  position_.row, cols_mask, kHintB);
            else {
#pragma unroll
                for (int32_t span = 0; span < col_spans(c); ++span)
                    load_operand<c.tile.cols, c.cluster.rows, kSwizzleBytes, c.cols_operand().mn_major()>(
                        smem_.cols(ring_.stage) + span * col_span_bytes(c), *source.cols, full,
                        k + span * span_k(c.cols_operand().element), tile.col, col_group + matrix, position_.row,
                        cols_mask, c.swap_ab ? kHintA : kHintB);
            }
            if constexpr (c.row_scales().per_row())
                load_scales<c.tile.rows, scale_entries(c, c.row_scales()), c.swap_ab>(smem_.row_scales(ring_.stage),
                                                                                      params_.row_scales, full,
                                                                                      tile.row,
                                                                                      scale_entry(c.row_scales(), block,
                                                                                                  c.tile.k),
                                                                                      row_group);
            if constexpr (copies_col_scales(c))
                load_scales<c.tile.cols, scale_entries(c, c.col_scales()), !c.swap_ab>(smem_.col_scales(ring_.stage),
                                                                                       params_.col_scales, full,
                                                                                       tile.col,
                                                                                       scale_entry(c.col_scales(),
                                                                                                   block, c.tile.k),
                                                                                       col_group);
            if constexpr (c.rows_operand().has_zeros())
                ptx::load_box(smem_.zeros(ring_.stage), &params_.zeros, full, tile.row,
                              k_group(c.rows_operand().zeros_k, block, c.tile.k), row_group, ptx::CacheHint::normal);
        }
    }

    /// Until all stages are free again. Readers in other CTAs then arrive at this one's barriers no more.
    DG_DEVICE void drain() {
#pragma unroll 1
        for (int32_t i = 0; i < c.stages; ++i, ring_.advance())
            ptx::barrier_wait(smem_.empty(ring_.stage), ring_.phase ^ 1);
    }

private:
    template <int32_t kExtent, int32_t kEntries, bool kOfB>
    DG_DEVICE void load_scales(uint32_t destination, const TensorMap& map, uint32_t full, int32_t start, int32_t first,
                               int32_t group) const {
        if constexpr (kOfB && c.gate.joins_halves())
            for_each_half_of_scales<c, kExtent, kEntries>(start, extent_n<c>(params_),
                                                          [&](int32_t offset, int32_t row, int32_t entry) {
                                                              ptx::load_box(destination + offset, &map, full, row,
                                                                            first + entry, group,
                                                                            ptx::CacheHint::normal);
                                                          });
        else
            ptx::load_box(destination, &map, full, start, first, group, ptx::CacheHint::normal);
    }

    static constexpr ptx::CacheHint kHintA = c.stream_b ? ptx::CacheHint::evict_last : ptx::CacheHint::normal;
    static constexpr ptx::CacheHint kHintB = c.stream_b ? ptx::CacheHint::evict_first : ptx::CacheHint::normal;
    static constexpr int32_t kRowBytes = row_bytes(c, c.rows_operand());

    const Smem<c>& smem_;
    const GemmParams& params_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    Pacer<c, tensor_cycles(c)> pacer_;
};

/// The load warp: copies a tile, finds the next.
template <Constant<GemmConfig> c>
class LoadRole {
public:
    DG_DEVICE LoadRole(const Smem<c>& smem, const GemmParams& params)
        : tiles_(params, smem.groups()), loader_(smem, params), params_(params) {}

    /// Finds the first tile.
    DG_DEVICE void begin() { find(); }

    DG_DEVICE void run() {
        for (; more_; find()) loader_.copy(tile_, source_);
        if constexpr (c.multicasts()) loader_.drain();
    }

private:
    DG_DEVICE void find() {
        more_ = tiles_.next(tile_);
        if (!more_) return;
        tiles_.place(tile_);
        source_ = tile_source<c>(params_, tile_);
    }

    TileScheduler<c> tiles_;
    Loader<c> loader_;
    const GemmParams& params_;
    Tile tile_ = {};
    TileSource source_;
    bool more_ = false;
};

}  // namespace deep_gemm
