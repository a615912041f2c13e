// The load role of SM100: one warp of each CTA keeps its ring filled through the copy engine.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/load/gated_boxes.cuh>
#include <deep_gemm/load/pacer.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/scale/words.cuh>
#include <deep_gemm/tile/batches.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

/// A box at (x, y). In a pair, `barrier` may be the leader's.
template <Constant<GemmConfig> c>
DG_DEVICE void load_box(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t x, int32_t y,
                        int32_t group, ptx::CacheHint hint) {
    if constexpr (mma_ctas(c) == 1)
        ptx::load_box(destination, &map, barrier, x, y, group, hint);
    else
        ptx::load_box_of_pair(destination, &map, barrier, x, y, group, hint);
}

/// `kExtent` rows of an operand, of one K block.
template <Constant<GemmConfig> c, Constant<Operand> kOperand, int32_t kExtent>
DG_DEVICE void load_operand(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t k, int32_t start,
                            int32_t group, ptx::CacheHint hint) {
    if constexpr (kOperand.mn_major()) {
        constexpr int32_t kBlock = block_rows(kOperand.element);
#pragma unroll
        for (int32_t row = 0; row < kExtent; row += kBlock)
            load_box<c>(destination + row * kSwizzleBytes, map, barrier, start + row, k, group, hint);
    } else {
        load_box<c>(destination, map, barrier, k, start, group, hint);
    }
}

/// `kExtent` rows of B where tiles have gates and ups.
template <Constant<GemmConfig> c, int32_t kExtent>
DG_DEVICE void load_gated_operand(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t k,
                                  int32_t start, int32_t group, ptx::CacheHint hint) {
    for_each_gated_box<c, kExtent>(start, [&](int32_t row, int32_t pair, int32_t pairs) {
        const uint32_t to = destination + row * kSwizzleBytes;
        if constexpr (mma_ctas(c) == 1)
            ptx::load_box_5d(to, &map, barrier, k, pair, pairs, group, hint);
        else
            ptx::load_box_5d_of_pair(to, &map, barrier, k, pair, pairs, group, hint);
    });
}

/// Words of scales of `kExtent` rows, kWords from `word` on. `in_blocks`: sm100::Schedule. `of_b`: of B's rows.
template <Constant<GemmConfig> c, int32_t kExtent, bool kInBlocks, int32_t kWords, bool kOfB>
DG_DEVICE void load_words(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t start, int32_t word,
                          int32_t group, int32_t group_rows) {
    constexpr auto kHint = ptx::CacheHint::normal;
    if constexpr (kOfB && c.gate.joins_halves()) {
        static_assert(!kInBlocks);
        for_each_half_of_scales<c, scale_blocks(kExtent) * kScaleRows, kWords>(
            start, group_rows, [&](int32_t offset, int32_t row, int32_t entry) {
                load_box<c>(destination + offset, map, barrier, row, word + entry, group, kHint);
            });
    } else if constexpr (kInBlocks) {
        const int32_t first = group * ((group_rows + kScaleRows - 1) / kScaleRows) + start / kScaleRows;
#pragma unroll
        for (int32_t block = 0; block < scale_blocks(kExtent); ++block)
            load_box<c>(destination + word_offset(true, scale_blocks(kExtent), kWords, block, 0), map, barrier, 0, word,
                        first + block, kHint);
    } else {
        load_box<c>(destination, map, barrier, start, word, group, kHint);
    }
}

/// Where a tile's operands lie. K groups that are matrices of their own count K from their own start.
struct TileSource {
    const TensorMap* rows;
    const TensorMap* cols;
    int32_t k_origin;
};

template <Constant<GemmConfig> c>
DG_DEVICE TileSource tile_source(const GemmParams& params, const Tile& tile) {
    if constexpr (c.group_maps) {
        const GroupMaps* groups = static_cast<const ParamsFor<c>&>(params).groups;
        const int32_t index = tile.group - params.first_group;
        return {&groups[index].rows, &groups[index].cols, tile.k_block};
    } else {
        return {&params.rows, &params.cols, 0};
    }
}

/// The load warp: all its lanes walk tiles and K blocks together, and one of them copies.
template <Constant<GemmConfig> c>
class LoadRole {
public:
    DG_DEVICE LoadRole(const Smem<c>& smem, const GemmParams& params) : smem_(smem), params_(params) {}

    DG_DEVICE void run() {
        TileScheduler<c> tiles(params_, smem_.groups());
        Tile tile;
        while (tiles.next(tile)) {
            tiles.place(tile);
            copy(tile);
        }
        if constexpr (mma_ctas(c) > 1) drain();
    }

private:
    /// All K blocks of a tile.
    DG_DEVICE void copy(const Tile& tile) {
        const TileSource source = tile_source<c>(params_, tile);
        const int32_t end = tile.k_block + tile.k_blocks;
#pragma unroll 1
        for (int32_t block = tile.k_block; block < end; ++block, ring_.advance()) {
            ptx::barrier_wait(smem_.empty(ring_.stage), ring_.phase ^ 1);
            pacer_.wait();
            if (!ptx::elect_one()) continue;
            if constexpr (converts(c))
                copy_packed_block(tile, block);
            else
                copy_block(tile, source, block);
        }
    }

    /// Who waits for a stage counts its bytes: where a warp of each CTA transposes words, each CTA its own; otherwise
    /// the pair's leader those of both.
    DG_DEVICE void copy_block(const Tile& tile, const TileSource& source, int32_t block) {
        const bool row_word = scales_in_instruction(c) && begins_word<c, kRowBlocks>(tile, block),
                   col_word = scales_in_instruction(c) && begins_word<c, kColBlocks>(tile, block);
        if constexpr (promotes(c)) copy_fp32_scales(tile, block);
        constexpr int32_t kRowWords = kWords * copied_scales(c, kScaleRows, c.swap_ab),
                          kColWords = kWords * copied_scales(c, scale_blocks(c.tile.cols) * kScaleRows, !c.swap_ab);
        const uint32_t bytes = stage_operand_bytes(c) + (row_word ? kRowWords * 4 : 0) + (col_word ? kColWords * 4 : 0);
        const uint32_t own = smem_.full(ring_.stage);
        const uint32_t full = kLeaderCounts ? in_leader(own) : own;
        if (!kLeaderCounts || position_.row == 0)
            ptx::barrier_arrive_expect(own, kLeaderCounts ? mma_ctas(c) * bytes : bytes);

        const int32_t row_group = c.swap_ab ? group_of_b<c>(tile) : group_of_a<c>(tile),
                      col_group = c.swap_ab ? group_of_a<c>(tile) : group_of_b<c>(tile);
        const auto [k, matrix] = place_block<c>(params_, block - source.k_origin);
        const int32_t own_col = tile.col + position_.row * own_cols(c);
        if constexpr (c.gate.joins() && c.swap_ab)
            load_gated_operand<c, kRows>(smem_.rows(ring_.stage), *source.rows, full, k, tile.row, row_group + matrix,
                                         kHintB);
        else
            load_operand<c, ConfigParts<c>::kRows, kRows>(smem_.rows(ring_.stage), *source.rows, full, k, tile.row,
                                                          row_group + matrix, c.swap_ab ? kHintB : kHintA);
        if constexpr (c.gate.joins() && !c.swap_ab)
            load_gated_operand<c, own_cols(c)>(smem_.cols(ring_.stage), *source.cols, full, k, own_col,
                                               col_group + matrix, kHintB);
        else
            load_operand<c, ConfigParts<c>::kCols, own_cols(c)>(smem_.cols(ring_.stage), *source.cols, full, k, own_col,
                                                                col_group + matrix, c.swap_ab ? kHintA : kHintB);
        const int32_t row_extent = c.swap_ab ? extent_n<c>(params_) : extent_m<c>(params_),
                      col_extent = c.swap_ab ? extent_m<c>(params_) : extent_n<c>(params_);
        if (row_word)
            load_words<c, kRows, c.sm100.row_blocks, kWords, c.swap_ab>(smem_.row_scales(ring_.stage),
                                                                        params_.row_scales, full, tile.row,
                                                                        word_of<c, kRowBlocks, kWords>(tile, block,
                                                                                                       smem_.groups(),
                                                                                                       params_),
                                                                        row_group, row_extent);
        if (col_word)
            load_words<c, c.tile.cols, c.sm100.col_blocks, kWords, !c.swap_ab>(
                smem_.col_scales(ring_.stage), params_.col_scales, full, tile.col,
                word_of<c, kColBlocks, kWords>(tile, block, smem_.groups(), params_), col_group, col_extent);
    }

    /// Packed rows, with what they have beside codes for their conversion, and spans of columns. Each CTA of a pair
    /// counts its own bytes, for the warps that convert its rows.
    DG_DEVICE void copy_packed_block(const Tile& tile, int32_t block) {
        constexpr auto kHint = ptx::CacheHint::normal;
        constexpr int32_t kSpanK = elements_in(c.cols_operand().element, kSwizzleBytes);
        constexpr Element kElement = c.rows_operand().element;
        if constexpr (promotes(c)) copy_fp32_scales(tile, block);
        const uint32_t full = smem_.full(ring_.stage);
        const int32_t group = group_of_b<c>(tile);
        ptx::barrier_arrive_expect(full, stage_operand_bytes(c) +
                                             (conversion_scale_words(c) + zero_words(c)) * c.tile.rows * 4);
        load_box<c>(smem_.rows(ring_.stage), params_.rows, full, 0, block * packed_lines(kElement),
                    group * packed_blocks(extent_n<c>(params_)) + tile.row / kPackedRows, kHintB);
#pragma unroll
        for (int32_t span = 0; span < col_spans(c); ++span)
            load_box<c>(smem_.cols(ring_.stage) + span * own_cols(c) * kSwizzleBytes, params_.cols, full,
                        block * c.tile.k + span * kSpanK, tile.col + position_.row * own_cols(c), group_of_a<c>(tile),
                        kHintA);
        if constexpr (conversion_scale_words(c) > 0)
            load_box<c>(smem_.row_scales(ring_.stage), params_.row_scales, full, tile.row,
                        scale_entry(c.row_scales(), block, c.tile.k), group, kHint);
        if constexpr (zero_words(c) > 0)
            load_box<c>(smem_.zeros(ring_.stage), params_.zeros, full, tile.row,
                        k_group(c.rows_operand().zeros_k, block, c.tile.k), group, kHint);
    }

    /// Of each row and column that has some, in each CTA all that it needs, for its own promoting warps.
    DG_DEVICE void copy_fp32_scales(const Tile& tile, int32_t block) {
        const uint32_t full = smem_.scales_full(ring_.stage);
        constexpr int32_t kRowScales = copied_scales(c, kRows, c.swap_ab),
                          kColScales = copied_scales(c, c.tile.cols, !c.swap_ab);
        ptx::barrier_arrive_expect(full, fp32_scale_bytes(c, c.row_scales(), kRowScales) +
                                             fp32_scale_bytes(c, c.col_scales(), kColScales));
        if constexpr (scale_entries(c, c.row_scales()) > 0)
            load_fp32_scales<kRows, scale_entries(c, c.row_scales()), c.swap_ab>(smem_.row_scales(ring_.stage),
                                                                                 params_.row_scales, full, tile.row,
                                                                                 scale_entry(c.row_scales(), block,
                                                                                             c.tile.k),
                                                                                 c.swap_ab ? group_of_b<c>(tile)
                                                                                           : group_of_a<c>(tile));
        if constexpr (scale_entries(c, c.col_scales()) > 0)
            load_fp32_scales<c.tile.cols, scale_entries(c, c.col_scales()), !c.swap_ab>(
                smem_.col_scales(ring_.stage), params_.col_scales, full, tile.col,
                scale_entry(c.col_scales(), block, c.tile.k), c.swap_ab ? group_of_a<c>(tile) : group_of_b<c>(tile));
    }

    template <int32_t kExtent, int32_t kEntries, bool kOfB>
    DG_DEVICE void load_fp32_scales(uint32_t destination, const TensorMap& map, uint32_t barrier, int32_t start,
                                    int32_t first, int32_t group) {
        constexpr auto kHint = ptx::CacheHint::normal;
        if constexpr (kOfB && c.gate.joins_halves())
            for_each_half_of_scales<c, kExtent, kEntries>(start, extent_n<c>(params_),
                                                          [&](int32_t offset, int32_t row, int32_t entry) {
                                                              load_box<c>(destination + offset, map, barrier, row,
                                                                          first + entry, group, kHint);
                                                          });
        else
            load_box<c>(destination, map, barrier, start, first, group, kHint);
    }

    /// Until all stages are free again: commits then arrive at this CTA's barriers no more.
    DG_DEVICE void drain() {
#pragma unroll 1
        for (int32_t i = 0; i < c.stages; ++i, ring_.advance())
            ptx::barrier_wait(smem_.empty(ring_.stage), ring_.phase ^ 1);
    }

    static constexpr bool kLeaderCounts = mma_ctas(c) > 1 && !transposes_words(c);
    static constexpr int32_t kRowBlocks = blocks_per_word(c, c.row_scales()),
                             kColBlocks = blocks_per_word(c, c.col_scales()), kWords = block_words(c);
    static constexpr ptx::CacheHint kHintA = c.stream_b ? ptx::CacheHint::evict_last : ptx::CacheHint::normal;
    static constexpr ptx::CacheHint kHintB = c.stream_b ? ptx::CacheHint::evict_first : ptx::CacheHint::normal;

    const Smem<c>& smem_;
    const GemmParams& params_;
    ClusterPosition<c> position_;
    Ring<c.stages> ring_;
    Pacer<c, tensor_cycles(c)> pacer_;
};

}  // namespace deep_gemm::sm100
